"""Published training steps beside predictions: ``python benchmarks/presets.py``.

One efficiency of H100 and H800 for all rows is fitted to the first, Llama 3 405B on 8,192 GPUs;
the others are predicted, all links there at once. Published steps: model operations, causal
attention counted, over the Tflop/s of table 4 of arXiv 2407.21783; GPU hours of arXiv 2412.19437.
Chosen: as many virtual stages as two layers a part allow, one layer less in the first and last.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import defects  # noqa: F401 - they end the run

import optmatch as om
from optmatch.problems import Parallelism, RailJob, RailNetwork, TransformerModel, Workload
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
    job = make_job("deepseek-v3", 2048, as_run=True)
    model, step_s = job.workload.model, 180e3 / 1e12 * 15360 * 4096 * 3600 / 2048
    assert model is not None
    fewer = replace(job.workload, peak_flops_per_s=989e12 * 112 / 132)
    apart = replace(job, parallelism=replace(job.parallelism, overlap=False))
    plain = replace(
        job.workload, model=replace(model, expert_servers=None), dispatch_width_bytes=None
    )
    free = replace(job.network, port_bytes_per_s=1e18, scale_up_bytes_per_s=1e18)
    yield "DeepSeek-V3, 2,048 GPUs", job, step_s
    yield "- 112 of 132 processors compute", replace(job, workload=fewer), step_s
    yield "- bf16, to all eight servers of experts", replace(job, workload=plain), step_s
    yield "- without overlap", apart, step_s
    yield "- links that take no time", replace(job, network=free), step_s
    fast = RailNetwork(gpus_per_server=8)
    yield (
        "- without all three, 450 GB/s in a server",
        replace(apart, workload=plain, network=fast),
        step_s,
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


EMULATED = {
    0.0: (14.709, 13.973), 0.01: (14.703, 13.986), 0.05: (14.933, 14.093), 0.1: (14.991, 14.308),
    0.25: (15.766, 15.027), 0.5: (17.235, 16.173), 0.75: (18.332, 17.593), 1.0: (19.551, 18.721),
}  # fmt: skip
"""Mean step in s by delay, on demand and provisioned: ``llama-3-3d-64-latency`` of
https://github.com/opusfabric/Opus; without control 14.498."""
SWEPT = {
    1: (53.224, 76.943, 77.228, 79.928),
    2: (26.740, 38.947, 39.232, 41.932),
    4: (13.437, 20.764, 21.049, 23.749),
    8: (6.787, 10.766, 11.051, 13.751),
}
"""By degree of expert parallelism, of 256 GPUs: fully connected, and optical at 0.5, 10 and
100 ms, the last finish in s (``large_scale_ep_scaleout_8gpu_256_all2allv_topk_context``)."""


def print_artifact() -> None:
    """Predict the emulation and the sweep from their configurations, with nothing fitted."""
    model = TransformerModel(
        layers=32, hidden=4096, heads=32, kv_heads=8, sequence=8192, vocabulary=128256,
        ffn=14336, attended=4096,
    )  # fmt: skip
    emulated = RailJob(
        parallelism=Parallelism(dp=8, tp=4, pp=2, zero_stage=3, sequence_parallel=True),
        network=RailNetwork(
            gpus_per_server=4, scale_up_bytes_per_s=300e9, port_bytes_per_s=25e9, latency_s=1e-6
        ),
        workload=Workload(
            model=model, batch=64, micro_batch=4, peak_flops_per_s=312e12, efficiency=0.52
        ),
    )
    print(f"Llama 3 8B, 64 GPUs: published 14.498, all links {emulated.lower_bound():.3f} s")
    for delay_s, published in EMULATED.items():
        _print_policies(f"{delay_s:g} s", emulated.with_delay(delay_s), published)
    for degree, (connected, *optical) in SWEPT.items():
        model = TransformerModel(
            layers=8, hidden=7168, heads=128, sequence=4096, vocabulary=1024, ffn=2048,
            ffn_matrices=2, experts=256, active_experts=8,
        )  # fmt: skip
        swept = RailJob(
            parallelism=Parallelism(dp=8, tp=8, pp=4, ep=degree, sequence_parallel=True),
            network=RailNetwork(gpus_per_server=8, latency_s=1e-6),
            workload=Workload(model=model, batch=256, micro_batch=8, efficiency=0.8),
        )
        print(f"ep {degree}: published {connected}, all links {swept.lower_bound():.3f} s")
        for delay_s, finish_s in zip((0.0005, 0.01, 0.1), optical, strict=True):
            _print_policies(f"{delay_s:g} s", swept.with_delay(delay_s), (finish_s,))


def _print_policies(name: str, job: RailJob, published: tuple[float, ...]) -> None:
    found = [om.solve(job, method=each, seed=0).objective for each in ("on-demand", "provisioned")]
    print(f"  {name}: published {published}, on demand {found[0]:.3f}, provisioned {found[1]:.3f}")


if __name__ == "__main__":
    print_artifact() if "--artifact" in sys.argv else print_rows()
