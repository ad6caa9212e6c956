"""The workload of a training job: the model and its batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from optmatch.model import Amount, Count, InputError, Positive, Range, Value, check_fields
from optmatch.problems.rails.training.step import Step


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TransformerModel(Value):
    """A transformer, by its sizes.

    Parameters
    ----------
    layers
        The number of layers.
    hidden
        The number of hidden units.
    heads
        The number of attention heads.
    sequence
        The tokens of a sequence.
    vocabulary
        The words of the vocabulary.
    ffn
        The hidden units of the feed-forward part, of one expert if there are experts.
    experts
        The experts of a layer; 1 of a dense model.
    active_experts
        How many experts a token visits; 1 of a dense model.
    kv_heads
        The heads of keys and values, which queries share. None: as many as `heads`.
    ffn_matrices
        The matrices of the feed-forward part: 2, or 3 where it is gated.
    attended
        To how many tokens each one attends on average. This is half the sequence if attention is
        causal and no work is done for what is masked, and less with a window. None: the whole
        sequence.
    expert_servers
        To how many servers a token goes at most, once to each of them. None: as many as it has
        experts.

    See Also
    --------
    Workload : a model with its batch.

    Examples
    --------
    >>> import optmatch as om
    >>> sizes = {"layers": 32, "hidden": 4096, "heads": 32, "sequence": 8192}
    >>> model = om.TransformerModel(**sizes, vocabulary=128256, ffn=14336)
    >>> model.experts
    1
    """

    layers: Count
    hidden: Count
    heads: Count
    sequence: Count
    vocabulary: Count
    ffn: Count
    experts: Count = 1
    active_experts: Count = 1
    kv_heads: Count | None = None
    ffn_matrices: Count = 3
    attended: Count | None = None
    expert_servers: Count | None = field(default=None, metadata={"brief": True})

    def __post_init__(self) -> None:
        """Refuse sizes that do not divide each other.

        Raises
        ------
        InputError
            Naming the size: hidden units that are no multiple of the heads, heads that are no
            multiple of those of keys and values, or more active experts than there are.
        """
        check_fields(self)
        if self.hidden % self.heads:
            raise InputError(
                f"hidden = {self.hidden}: no multiple of {self.heads} heads", where="hidden"
            )
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise InputError(
                f"kv_heads = {self.kv_heads}: does not divide {self.heads} heads", where="kv_heads"
            )
        if self.active_experts > self.experts:
            raise InputError(
                f"active_experts = {self.active_experts}: at most {self.experts} experts",
                where="active_experts",
            )

    @property
    def shared_keys(self) -> float:
        """The size of keys, or values, over that of queries."""
        return 1.0 if self.kv_heads is None else self.kv_heads / self.heads


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload(Value):
    """The computations of one step of a training job: a model and its batch, or a recorded step.

    Parameters
    ----------
    model
        The model; None with a recorded step.
    batch
        The sequences of a step, over all replicas.
    micro_batch
        The sequences of a micro-batch at one replica; -1: all in one.
    peak_flops_per_s
        The floating-point operations of a GPU per second, at its peak. Those of known GPUs are in
        `optmatch.problems.rails.accelerators.ACCELERATORS`.
    efficiency
        The part of the peak that is reached, 0 to 1.
    memory_bytes_per_s
        What a GPU reads and writes in its memory, in bytes per second. With it, what moves more
        bytes than it computes takes as long as its bytes (the roofline), and the optimiser takes
        time. None: operations alone count.
    optimizer_bytes
        The bytes that the optimiser reads and writes for each weight. 30 is Adam in mixed
        precision: weight, two moments and their copy of 4 bytes, each read and written, a gradient
        of 4 and a weight of 2.
    bucket_bytes
        The bytes of gradients that are exchanged at once; 0: those of each layer. They are
        exchanged as soon as so many bytes of whole layers are there, and when a backward pass
        ends. A bucket waits for the bucket before.
    one_stream
        Whether a GPU communicates one thing at a time, in the order of its program. This is so for
        sends and collectives of all dimensions, as with ``CUDA_DEVICE_MAX_CONNECTIONS=1``; the
        last gradients of a backward pass go before its message. Else each dimension has a stream
        of its own, and messages go first.
    skew
        The tokens of the busiest rank of a group over the mean, or those of each expert as
        3,1,1,1. Tokens of experts may be in any unit. As everyone waits for the busiest rank,
        all-to-alls carry so many times the bytes, and experts compute so much longer.
    width_bytes
        The bytes of an activation or weight.
    gradient_width_bytes
        The bytes of a gradient.
    dispatch_width_bytes
        The bytes of an activation, or its gradient, on the way to experts. It has `width_bytes` on
        the way back. None: `width_bytes`.
    recorded
        A step from a trace, instead of one that is derived from the model.

    Raises
    ------
    InputError
        Naming the option: of neither or both of model and recorded step, or a value out of range.

    See Also
    --------
    RailJob : the problem that it is a part of.

    Examples
    --------
    >>> model = TransformerModel(layers=8, hidden=1024, heads=8, sequence=128, vocabulary=1000,
    ...                          ffn=4096)
    >>> Workload(model=model, batch=64, micro_batch=2).count_micro_batches(4)
    8
    """

    model: TransformerModel | None = None
    batch: Count = 1
    micro_batch: Annotated[int, Range(-1)] = -1
    peak_flops_per_s: Positive = 989e12
    efficiency: Annotated[float, Range(0, 1, above=True)] = 0.5
    memory_bytes_per_s: Positive | None = None
    optimizer_bytes: Amount = 30.0
    bucket_bytes: Amount = 0.0
    one_stream: bool = False
    skew: Annotated[float, Range(1)] | tuple[Positive, ...] = 1.0
    width_bytes: Positive = 2.0
    gradient_width_bytes: Positive = 2.0
    dispatch_width_bytes: Positive | None = field(default=None, metadata={"brief": True})
    recorded: Step | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse both or neither of model and recorded step, and loads of another number."""
        check_fields(self)
        if (self.model is None) == (self.recorded is None):
            both = "neither model nor recorded is" if self.model is None else "both are"
            raise InputError(f"{both} given: a model or a recorded step", where="model")
        if self.micro_batch == 0:
            raise InputError("micro_batch = 0: must be >= 1, or -1", where="micro_batch")
        if isinstance(self.skew, tuple) and self.model and len(self.skew) != self.model.experts:
            raise InputError(
                f"skew: {len(self.skew)} loads, the model has {self.model.experts} experts",
                where="skew",
            )

    def skew_of(self, ranks: int) -> float:
        """Return the load of the busiest of the ranks over the mean; experts lie in order.

        An all-to-all waits for this rank: in each of its matchings some rank sends to it.

        Parameters
        ----------
        ranks
            The number of ranks over which the experts are divided, consecutive ones together; it
            divides the number of experts.

        Returns
        -------
        float
            At least 1, which is an even load.

        Examples
        --------
        >>> model = TransformerModel(layers=1, hidden=64, heads=1, sequence=8, vocabulary=100,
        ...                          ffn=128, experts=4)
        >>> work = Workload(model=model, skew=(3, 1, 1, 1))
        >>> work.skew_of(4), round(work.skew_of(2), 3), work.skew_of(1)
        (2.0, 1.333, 1.0)
        """
        if not isinstance(self.skew, tuple):
            return self.skew
        loads = np.reshape(self.skew, (ranks, -1)).sum(axis=1)
        return float(loads.max() / loads.mean())

    def count_micro_batches(self, replicas: int) -> int:
        """Count the micro-batches of one of so many replicas, which share the batch evenly."""
        return 1 if self.micro_batch == -1 else self.batch // replicas // self.micro_batch
