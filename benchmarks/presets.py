"""Published training steps beside predictions: ``python benchmarks/presets.py``.

One efficiency of H100 and H800 for all rows is fitted to the first, Llama 3 405B on 8,192 GPUs;
the others are predicted, all links there at once. Published steps: model operations, causal
attention counted, over the Tflop/s of table 4 of arXiv 2407.21783; GPU hours of arXiv 2412.19437.
Chosen: as many virtual stages as two layers a part allow, one layer less in the first and last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from optmatch.problems import Parallelism, RailJob, RailNetwork, Workload
from optmatch.problems.rails.calibration import calibrate
from optmatch.problems.rails.presets import PRESETS, make_job

LLAMA = (
    (8192, 1, 64, 8192, 32, 430),
    (16384, 1, 128, 8192, 16, 400),
    (16384, 16, 8, 131072, 16, 380),
)
"""GPUs, degrees of context and data parallelism, sequence, batch of a replica, Tflop/s."""
LAYERS = (1, *[2] * 62, 1)


def list_rows() -> Iterator[tuple[str, RailJob, float]]:
    """List jobs with their published steps in s."""
    known = PRESETS["llama3-405b"].model
    for gpus, cp, dp, sequence, batch, speed in LLAMA:
        split = Parallelism(
            tp=8, cp=cp, pp=16, dp=dp, sequence_parallel=True,
            schedule="interleaved", virtual_stages=4, stage_layers=LAYERS,
        )  # fmt: skip
        model = replace(known, sequence=sequence, attended=sequence // 2)
        work = Workload(model=model, batch=batch * dp, micro_batch=1)
        operations = 6 * 405e9 + 6 * known.layers * known.hidden * sequence
        step_s = operations * batch * dp * sequence / gpus / (speed * 1e12)
        name = f"Llama 3 405B, {gpus:,} GPUs, {sequence:,} tokens"
        yield (
            name,
            RailJob(parallelism=split, network=RailNetwork(gpus_per_server=8), workload=work),
            step_s,
        )
    job = make_job("deepseek-v3", 2048)
    assert job.workload.model is not None
    causal = replace(job.workload.model, attended=2048)
    work = replace(job.workload, model=causal)
    yield (
        "DeepSeek-V3, 2,048 GPUs",
        replace(job, workload=work),
        180e3 / 1e12 * 15360 * 4096 * 3600 / 2048,
    )


def print_rows() -> None:
    """Fit the first row, predict the others."""
    efficiency = 0.0
    for name, job, step_s in list_rows():
        if not efficiency:
            efficiency = calibrate(job, step_s).workload.efficiency
            print(f"efficiency {efficiency:.4f}, fitted to the first row")
        job = replace(job, workload=replace(job.workload, efficiency=efficiency))
        found = job.lower_bound()
        print(
            f"{name:46}{step_s:10.2f}{found:10.2f} s {100 * (found / step_s - 1):+8.1f} %",
            flush=True,
        )


if __name__ == "__main__":
    print_rows()
