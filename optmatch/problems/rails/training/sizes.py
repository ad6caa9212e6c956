"""Bytes and seconds of one micro-batch at one rank, by model sizes."""

from __future__ import annotations

import math

from optmatch.problems.rails.training.parallelism import Parallelism
from optmatch.problems.rails.training.workload import TransformerModel, Workload

_MOVED_BESIDE_MATRICES = 8
"""What a layer moves in memory beside its matrices, forward, in units of its input: two
normalisations and two residual sums, which all tensor-parallel ranks have if they do not share
activations, and queries, keys, values and what attention makes of them."""


class Sizes:
    """Bytes and seconds of one micro-batch, at one rank.

    Parameters
    ----------
    split
        The degrees.
    workload
        The batch, rates, and widths in bytes.
    model
        The sizes of the model.

    Attributes
    ----------
    vocabulary_weights, dense, sparse : float
        Numbers of weights at a rank: of the vocabulary, and of a layer those that all replicas
        hold and those of experts that differ between them. Without expert parallelism `dense` has
        all of a layer.
    attention_s, ffn_s, head_s : float
        Seconds of a forward pass: of a layer's attention, of its feed-forward part, and of the
        output over the vocabulary.
    inner : float
        Numbers in the input of a layer: tokens times hidden units.
    activation, message : float
        Bytes of the input of a layer, and of the part of it that a rank sends to the next stage.
    keys_and_values : float
        Bytes of keys and values of the tokens of a rank.
    dispatch, combine : float
        Bytes of an all-to-all of tokens to their experts, and of that back.
    leaving : float
        The part of these bytes that leaves servers: a token goes once to each of its servers.
    """

    def __init__(self, split: Parallelism, workload: Workload, model: TransformerModel) -> None:
        """Work out the sizes of a micro-batch at a rank.

        These are weights of a layer, seconds of computations by the roofline, and bytes of what is
        sent.
        """
        # The tokens of a micro-batch at a rank. With context parallelism (cp) a rank has a part of
        # each sequence.
        sequences = workload.batch / split.dp / workload.count_micro_batches(split.dp)
        tokens = sequences * model.sequence / split.cp
        self.workload = workload
        self.tp = split.tp
        self.inner = tokens * model.hidden  # numbers of a layer's input

        # Weights. Attention has two matrices of hidden x hidden, for queries and outputs, and two
        # for keys and values, which are smaller where queries share them. `attention_weights`
        # counts the weights of these in a layer at all tensor-parallel ranks together,
        # `expert_weights` those of one expert, or of the feed-forward part if there are no
        # experts; `expert_weights_of_rank` is per rank.
        expert_weights = model.ffn_matrices * model.hidden * model.ffn
        attention_weights = (2 + 2 * model.shared_keys) * model.hidden**2
        self.vocabulary_weights = model.hidden * model.vocabulary / split.tp
        expert_weights_of_rank = expert_weights * model.experts / split.ep / split.tp
        # Without expert parallelism all ranks hold all experts, like any other weights.
        self.dense = attention_weights / split.tp + (
            expert_weights_of_rank if split.ep == 1 else 0.0
        )
        self.sparse = expert_weights_of_rank if split.ep > 1 else 0.0

        # Seconds, by (operations, weights at this rank, inputs that are read and written). A
        # weight takes two operations for each token, a product and a sum. `score_operations` are
        # the operations of attention for a token: two for each pair of numbers of queries and
        # keys, and as many for the values. Experts compute for the tokens of the busiest rank:
        # `skew` says how many times the mean it has, `expert_tokens` counts a token once for each
        # of its experts.
        score_operations = 4 * (model.attended or model.sequence) * model.hidden
        skew = workload.skew_of(split.ep) if model.experts > 1 else 1.0
        expert_tokens = tokens * model.active_experts * skew
        self.attention_s = self._lasts_s(
            tokens * (2 * attention_weights + score_operations),
            attention_weights / split.tp,
            2 + 4 / split.tp,
        )

        # The third argument is what is read and written beside weights, in units of the input of a
        # layer: the input and the output, and between them queries, keys, values and the result,
        # or the wide activations, of which each tensor-parallel rank has its part.
        wide = (model.ffn_matrices - 1) * model.ffn / model.hidden / split.tp
        self.ffn_s = self._lasts_s(
            expert_tokens * 2 * expert_weights,
            expert_weights_of_rank,
            (2 + wide) * expert_tokens / tokens,
        )
        self.head_s = self._lasts_s(
            tokens * 2 * self.vocabulary_weights * split.tp,
            self.vocabulary_weights,
            1 + model.vocabulary / model.hidden / split.tp,
        )

        # What a layer moves beside its matrices comes on top: half of it is divided among the
        # tensor-parallel ranks, the other half only if they share activations.
        if workload.memory_bytes_per_s:
            shared = split.tp if split.sequence_parallel else 1
            moved = self.inner * workload.width_bytes / workload.memory_bytes_per_s
            self.attention_s += _MOVED_BESIDE_MATRICES * moved * (1 / split.tp + 1 / shared) / 2

        # Bytes of what is sent. Tensor-parallel ranks divide messages among themselves; tokens go
        # to experts perhaps in narrower numbers than they come back.
        self.activation = self.inner * workload.width_bytes
        self.message = self.activation / split.tp
        self.keys_and_values = 2 * model.shared_keys * self.message
        self.combine = self.message * model.active_experts * skew
        width = workload.dispatch_width_bytes or workload.width_bytes
        self.dispatch = self.combine * (width / workload.width_bytes)
        servers = model.expert_servers or model.active_experts
        self.leaving = min(1.0, servers / model.active_experts)

    def _lasts_s(self, flops: float, weights: float, activations: float) -> float:
        """Return the seconds of a computation, at the rate of processors or of memory.

        `flops` are those of all tensor-parallel ranks together, `weights` numbers that this rank
        reads, and `activations` what it reads and writes beside them, in inputs of a layer.
        """
        # The roofline: work at the rate of all tensor-parallel ranks, or bytes at that of memory.
        work = self.workload
        flops_per_s = work.peak_flops_per_s * work.efficiency * self.tp
        # The product of tiny rates is 0 in floats; a step without end is refused where it is used.
        flops_s = flops / flops_per_s if flops_per_s > 0 else math.inf
        if work.memory_bytes_per_s is None:
            return flops_s
        moved = (weights + activations * self.inner) * work.width_bytes
        return max(flops_s, moved / work.memory_bytes_per_s)
