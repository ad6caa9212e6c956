"""Small rail jobs for tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import optmatch as om
from optmatch.problems.rail_step import COMPUTE, RECV, SEND, Group, Step

PAIR = Group("pp.0", "pp", (0, 1), rail=0)
MODEL = om.TransformerModel(
    layers=4, hidden=64, heads=4, sequence=32, vocabulary=100, ffn=128, ffn_matrices=2
)


def message_step() -> Step:
    """Return a step of one computation, and a message of its result."""
    columns: dict[str, Any] = {
        "rank": [0, 0, 1],
        "kind": [COMPUTE, SEND, RECV],
        "group": [-1, 0, 0],
        "size_bytes": [0, 8, 8],
        "duration_s": [1, 0, 0],
        "peer": [-1, 1, 0],
        "match": [-1, 0, 0],
        "dep_start": [0, 0, 1, 1],
        "dep": [0],
    }
    return Step(groups=(PAIR,), **columns)


def small_job(dp: int = 2, tp: int = 2, pp: int = 2, **options: Any) -> om.RailJob:
    """Return a job whose servers hold the tensor-parallel ranks."""
    plain: dict[str, Any] = {
        "n_gpus": dp * tp * pp * options.get("cp", 1),
        "gpus_per_server": tp,
        "model": om.TransformerModel(
            layers=12, hidden=64, heads=4, sequence=32, vocabulary=100, ffn=128
        ),
        "batch": 4 * dp,
        "peak_flops_per_s": 1e9,
        "port_bytes_per_s": 1e8,
    }
    return om.RailJob(dp=dp, tp=tp, pp=pp, **{**plain, **options})


@st.composite
def random_jobs(draw: Any) -> om.RailJob:
    """Draw a job of up to 32 ranks, of any kind of parallelism."""
    dp, tp, pp, cp = (
        draw(st.sampled_from(sizes)) for sizes in ((1, 2, 4), (1, 2), (1, 2, 3), (1, 2))
    )
    schedule = draw(st.sampled_from(["gpipe", "1f1b", "interleaved"]))
    parts = 2 if schedule == "interleaved" else 1
    micro_batches = pp * draw(st.sampled_from([1, 2]))
    ep = draw(st.sampled_from([e for e in (1, 2, 4) if dp % e == 0]))
    model = om.TransformerModel(
        layers=2 * pp * parts,
        hidden=64,
        heads=4,
        sequence=32,
        vocabulary=100,
        ffn=128,
        experts=4 if ep > 1 else 1,
    )
    return small_job(
        dp,
        tp,
        pp,
        cp=cp,
        ep=ep,
        schedule=schedule,
        virtual_stages=parts,
        zero_stage=draw(st.sampled_from([0, 1, 2, 3])),
        batch=dp * micro_batches,
        micro_batch=1,
        model=model,
        ports_per_gpu=draw(st.sampled_from([1, 2])),
        switching=draw(st.sampled_from(["per-circuit", "all-stop"])),
        delay_s=draw(st.sampled_from([0.0, 1e-5, 1e-3, 0.1])),
        order=draw(st.permutations(["dp", "tp", "pp", "cp"])),
    )
