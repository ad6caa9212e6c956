"""Jobs of models that were trained at scale, by name.

A preset states a model and the degrees of one replica, with the source of each number: some are in
the paper, one may be fitted to published steps, and the others are chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from types import MappingProxyType

from optmatch.model import InputError, Value, integer
from optmatch.problems.rails.problem import RailJob
from optmatch.problems.rails.training.network import RailNetwork
from optmatch.problems.rails.training.parallelism import Parallelism
from optmatch.problems.rails.training.workload import TransformerModel, Workload

_SERVER = RailNetwork(gpus_per_server=8, change_rail_s=500e-9)


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
    """

    model: TransformerModel
    parallelism: Parallelism
    batch: int
    micro_batch: int
    source: str
    paper: str


_SIZES = (
    *("layers", "hidden", "heads", "kv_heads", "sequence", "vocabulary", "ffn", "ffn_matrices"),
    *("experts", "active_experts"),
)


def _model(*sizes: int | None) -> TransformerModel:
    """Make a model of its sizes, in the order of `_SIZES`."""
    return TransformerModel(**dict(zip(_SIZES, sizes, strict=True)))  # type: ignore[arg-type]


PRESETS = MappingProxyType(
    {
        "llama3-405b": Preset(
            model=_model(126, 16384, 128, 8, 131072, 128256, 53248, 3, 1, 1),
            parallelism=Parallelism(
                tp=8, cp=16, pp=16, sequence_parallel=True, stage_layers=(7, *[8] * 14, 7)
            ),
            batch=16,
            micro_batch=1,
            source="The Llama 3 Herd of Models, arXiv 2407.21783: table 3; table 4, last row"
            " (16,384 GPUs, 16 sequences for each replica); section 3.3.2, one layer less in the"
            " first and the last stage. Chosen: micro-batches of one sequence, 1F1B.",
            paper="model tp cp pp stage_layers batch",
        ),
        "deepseek-v3": Preset(
            model=_model(61, 7168, 128, None, 4096, 129280, 2048, 3, 256, 8),
            parallelism=Parallelism(
                ep=64,
                dp=64,
                pp=16,
                zero_stage=1,
                schedule="dualpipe",
                stage_layers=(*[4] * 13, *[3] * 3),
            ),
            batch=120,
            micro_batch=3,
            source="DeepSeek-V3 Technical Report, arXiv 2412.19437: section 3.2 (16-way pipeline,"
            " 64-way experts over 8 nodes, ZeRO-1, 2,048 GPUs), section 4.2 (sizes; 15,360"
            " sequences of 4,096 tokens, so 120 for each of 128 replicas). Left out: the shared"
            " expert, three dense layers, and that a token goes to at most four nodes. Chosen: the"
            " layers of each stage, micro-batches of three sequences.",
            paper="model ep dp pp zero_stage schedule batch",
        ),
        "mixtral-8x22b": Preset(
            model=_model(56, 6144, 48, 8, 4096, 32000, 16384, 3, 8, 2),
            parallelism=Parallelism(tp=2, ep=8, dp=8, pp=8, sequence_parallel=True, zero_stage=1),
            batch=16,
            micro_batch=1,
            source="Sizes: config.json of mistralai/Mixtral-8x22B-v0.1. Sequence, micro-batches"
            " and stages: table of parallel mappings in megatron/core/transformer/moe/README.md of"
            " Megatron-LM, there with tp 4 and ep 2 on 128 GPUs. Chosen: 16 micro-batches.",
            paper="model pp",
        ),
        "gpt3-175b-fsdp": Preset(
            model=_model(96, 12288, 96, None, 2048, 50257, 49152, 2, 1, 1),
            parallelism=Parallelism(dp=512, zero_stage=3, shard=512, fsdp="fsdp2"),
            batch=2,
            micro_batch=-1,
            source="Language Models are Few-Shot Learners, arXiv 2005.14165, table 2.1. Hybrid"
            " sharding over 512 GPUs as in PyTorch FSDP, arXiv 2304.11277, which trains this model"
            " on up to 512. Chosen: two sequences for each GPU, and the streams of FSDP2.",
            paper="model dp shard zero_stage",
        ),
    }
)
"""The jobs, by name; their least replicas are in the degrees."""


_OF_ALL = ("attended", "peak_flops_per_s", "efficiency", "network")
_FITTED = 0.544
"""The efficiency of H100 and H800, from the step of Llama 3 405B on 8,192 GPUs
(``benchmarks/presets.py``)."""
_H800 = 160e9
"""Bytes per second inside a server of DeepSeek-V3 (section 3.2.2 of its report)."""


def list_inputs(name: str, *, as_run: bool = False) -> dict[str, str]:
    """Say of each input of a preset whether it is of the paper, fitted or chosen.

    Nothing in a preset is fitted, but the efficiency of one that is `as_run`, as in `make_job`.
    ``benchmarks/presets.py`` fits it, and predicts published steps with it.

    Parameters
    ----------
    name
        A name of `PRESETS`.
    as_run
        As in `make_job`.

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
    # Degrees that differ from the defaults were chosen, unless the paper states them.
    split, usual = PRESETS[name].parallelism, Parallelism()
    found = dict.fromkeys(PRESETS[name].paper.split(), "paper")
    own = [f.name for f in fields(split) if getattr(split, f.name) != getattr(usual, f.name)]
    for each in (*own, "schedule", "batch", "micro_batch", *_OF_ALL):
        found.setdefault(each, "chosen")
    if as_run:
        found |= {"attended": "paper", "efficiency": "fitted"}
        if name == "deepseek-v3":
            more = "overlap expert_servers dispatch_width_bytes scale_up_bytes_per_s"
            found |= dict.fromkeys(more.split(), "paper")
    return found


def make_job(
    name: str, gpus: int, network: RailNetwork | None = None, *, as_run: bool = False
) -> RailJob:
    """Make the job of a preset on so many GPUs.

    Parameters
    ----------
    name
        A name of `PRESETS`, which tell their sources.
    gpus
        How many, as a multiple of what one replica needs, or one group of experts or shards. Of
        ``"llama3-405b"`` also 1,024: with half of its context parallelism.
    network
        Servers and rails; None for servers of eight GPUs with a port of 50 GB/s for each, in which
        data change rail in 500 ns. A network that is given replaces the whole of it, so
        `RailNetwork.change_rail_s` is None if not given too. To change single fields, use
        ``replace(job, network=replace(job.network, ...))`` of `dataclasses`.
    as_run
        Attention is causal and the efficiency fitted to published steps; of ``"deepseek-v3"``
        also: the overlap of DualPipe, at most four servers for a token, to which it goes in FP8,
        and with `network` None the 160 GB/s inside a server of H800.

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
    # Half of the GPUs of one replica: with half of the context parallelism.
    gpus = integer("gpus", gpus, at_least=1)
    preset, split = PRESETS[name], PRESETS[name].parallelism
    if split.cp > 1 and gpus == split.n_ranks // 2:
        split = replace(split, cp=split.cp // 2)
    if gpus % split.n_ranks:
        degrees = {degree: getattr(split, degree) for degree in ("dp", "tp", "pp", "cp")}
        shown = " x ".join(f"{degree} {n}" for degree, n in degrees.items() if n > 1)
        raise InputError(
            f"gpus = {gpus}: {name} needs a multiple of {split.n_ranks} ({shown})", where="gpus"
        )
    # All further GPUs are further replicas, each with the batch of one.
    split = replace(split, dp=split.dp * gpus // split.n_ranks)
    workload = Workload(
        model=preset.model, batch=preset.batch * split.dp, micro_batch=preset.micro_batch
    )

    # Runs were published with more than sizes: attention, overlap, precision of what is sent.
    own = _SERVER
    if as_run:
        model = replace(preset.model, attended=preset.model.sequence // 2)
        workload = replace(workload, model=model, efficiency=_FITTED)
        if name == "deepseek-v3":
            split, own = replace(split, overlap=True), replace(own, scale_up_bytes_per_s=_H800)
            model = replace(model, expert_servers=4)
            workload = replace(workload, model=model, dispatch_width_bytes=1.0)
    return RailJob(parallelism=split, network=network or own, workload=workload)
