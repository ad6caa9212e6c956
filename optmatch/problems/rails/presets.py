"""Jobs of models that were trained at scale, by name.

A preset states a model and the degrees of one replica, with the source of each number: some are in
the paper, one may be fitted to published steps, and the others are chosen. The figures are in
``optmatch/problems/data/presets.toml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from optmatch.model import InputError, Value, integer
from optmatch.model.declarations import FrozenMap
from optmatch.problems.rails.problem import RailJob
from optmatch.problems.rails.training.network import RailNetwork
from optmatch.problems.rails.training.parallelism import Parallelism
from optmatch.problems.rails.training.workload import TransformerModel, Workload
from optmatch.problems.records import build_records, from_object, read_tables


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Preset(Value):
    """A model, how it is split, and its batch, of one replica.

    Parameters
    ----------
    model
        The model.
    parallelism
        The degrees; replicas are added until all GPUs are used.
    batch, micro_batch
        Sequences of a replica in a step, and in a micro-batch.
    source
        Where the numbers are from, and which are chosen.
    paper
        The inputs that the source states.
    as_run
        The fields that the preset as it was run has beside causal attention and the fitted
        efficiency: by part of the job (``"model"``, ``"parallelism"``, ``"workload"``,
        ``"network"``) and name of the field.
    """

    model: TransformerModel
    parallelism: Parallelism
    batch: int
    micro_batch: int
    source: str
    paper: tuple[str, ...]
    as_run: Mapping[str, Mapping[str, Any]] = FrozenMap()


_TABLES = read_tables("presets.toml")
PRESETS = build_records(Preset, _TABLES["presets"])
"""The jobs, by name; their least replicas are in the degrees."""
_FITTED_EFFICIENCY: float = _TABLES["calibration"]["efficiency"]
"""The efficiency of presets as they were run; the file says what it was fitted to."""
_SERVER = from_object(RailNetwork, _TABLES["network"], "/network")
"""The network of all presets, unless another one is given."""

_INPUTS_OF_ALL = ("attended", "peak_flops_per_s", "efficiency", "network")
"""Inputs that no preset states, and that are chosen for all of them."""


def list_inputs(name: str, *, as_run: bool = False) -> dict[str, str]:
    """Say of each input of a preset whether it is from a paper, fitted or chosen.

    A preset is the job of a model that was trained at scale: its sizes, degrees of parallelism,
    batch and network. An input is from the paper if the published source states it, *fitted* if
    it was adjusted until predicted times of steps agree with published ones, and *chosen* if it
    was set here for lack of a source. Only one input is ever fitted: the efficiency of GPUs,
    with `as_run` (``benchmarks/presets.py`` does it).

    Parameters
    ----------
    name
        The name of the preset, a key of `PRESETS`, such as ``"deepseek-v3"``.
    as_run
        Whether the preset is meant as it was run, with causal attention, the fitted efficiency,
        and whatever else the paper says of the run (overlap, precision of what is sent).

    Returns
    -------
    dict
        By the name of the input ``"paper"``, ``"fitted"`` or ``"chosen"``.

    Examples
    --------
    >>> inputs = list_inputs("deepseek-v3", as_run=True)
    >>> inputs["schedule"], inputs["stage_layers"], inputs["efficiency"]
    ('paper', 'chosen', 'fitted')
    """
    preset = PRESETS[name]
    origin_of_input = dict.fromkeys(preset.paper, "paper")

    # Degrees that differ from the defaults were chosen, unless the paper states them.
    plain = Parallelism()
    degrees = [
        field.name
        for field in fields(plain)
        if getattr(preset.parallelism, field.name) != getattr(plain, field.name)
    ]
    for name_of_input in (*degrees, "schedule", "batch", "micro_batch", *_INPUTS_OF_ALL):
        origin_of_input.setdefault(name_of_input, "chosen")

    # As it was run, all that is added is of the paper but the efficiency.
    if as_run:
        origin_of_input |= {"attended": "paper", "efficiency": "fitted"}
        for changes in preset.as_run.values():
            origin_of_input |= dict.fromkeys(changes, "paper")
    return origin_of_input


def make_job(
    name: str, gpus: int, network: RailNetwork | None = None, *, as_run: bool = False
) -> RailJob:
    """Make the training job of a published model on a chosen number of GPUs.

    A preset is such a model with the degrees of parallelism and the batch of its training. More
    GPUs make more replicas of the model; the batch of each replica stays.

    Parameters
    ----------
    name
        The name of a preset, one of `PRESETS`, which tell their sources.
    gpus
        The number of GPUs: a multiple of what one preset needs (one replica, or one group of
        experts or shards). ``"llama3-405b"`` may also have 1,024, with half of its context
        parallelism.
    network
        Servers and rails. None takes servers of eight GPUs, each with a port of 50 GB/s, in which
        data change rail in 500 ns (`RailNetwork.change_rail_s`). A network that is given replaces
        all of this. To change single fields of a job afterwards, use
        ``replace(job, network=replace(job.network, ...))`` of `dataclasses`.
    as_run
        False takes only the sizes of the preset. True takes what its published run had beside
        them: attention is causal, and the efficiency of computations is fitted to published steps.
        For ``"deepseek-v3"`` passes also overlap as in DualPipe, a token goes to experts on at
        most four servers, in FP8, and without `network` a server has the 160 GB/s of an H800
        inside.

    Returns
    -------
    RailJob
        The job, with as many replicas as the GPUs make, each with the batch of the preset.

    Raises
    ------
    InputError
        Naming the preset, or the number of GPUs and what it has to be a multiple of.

    Examples
    --------
    >>> job = make_job("mixtral-8x22b", 1024)
    >>> job.parallelism.dp, job.n_gpus
    (64, 1024)
    """
    if name not in PRESETS:
        raise InputError(f"preset = {name!r}: one of {', '.join(PRESETS)}", where="preset")
    gpus = integer("gpus", gpus, at_least=1)
    preset = PRESETS[name]
    parallelism = preset.parallelism

    # Half of the GPUs of one replica are enough with half of the context parallelism.
    if parallelism.cp > 1 and gpus == parallelism.n_ranks // 2:
        parallelism = replace(parallelism, cp=parallelism.cp // 2)
    if gpus % parallelism.n_ranks:
        degrees = {degree: getattr(parallelism, degree) for degree in ("dp", "tp", "pp", "cp")}
        product = " x ".join(f"{degree} {n}" for degree, n in degrees.items() if n > 1)
        raise InputError(
            f"gpus = {gpus}: {name} needs a multiple of {parallelism.n_ranks} ({product})",
            where="gpus",
        )

    # All further GPUs are further replicas, each with the batch of one.
    parallelism = replace(parallelism, dp=parallelism.dp * gpus // parallelism.n_ranks)
    workload = Workload(
        model=preset.model, batch=preset.batch * parallelism.dp, micro_batch=preset.micro_batch
    )

    # Runs were published with more than sizes: attention, overlap, precision of what is sent.
    own_network = _SERVER
    if as_run:
        changes = preset.as_run
        parallelism = replace(parallelism, **changes.get("parallelism", {}))
        own_network = replace(own_network, **changes.get("network", {}))
        model = replace(
            preset.model, attended=preset.model.sequence // 2, **changes.get("model", {})
        )
        workload = replace(
            workload,
            model=model,
            efficiency=_FITTED_EFFICIENCY,
            **changes.get("workload", {}),
        )
    return RailJob(parallelism=parallelism, network=network or own_network, workload=workload)
