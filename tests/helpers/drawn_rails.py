"""Rail jobs drawn at random over all options: loaded, simulated, solved and verified."""

import random
from pathlib import Path
from typing import Any

import optmatch as om
from optmatch.problems.rails.training.parallelism import DEGREES
from optmatch.simulation.rails.replay import simulate_rails
from tests.helpers.rails import make_job


def draw_rail_job(rng: random.Random) -> om.RailJob | None:
    """Draw a job of up to 64 ranks with any options; None if they do not fit each other."""
    try:
        return make_job(**draw_options(rng))
    except om.InputError:
        return None


def draw_options(rng: random.Random) -> dict[str, Any]:
    """Draw the options of a job, by the fields of its parts."""
    pick = rng.choice
    dp, tp, pp, cp = pick((1, 2, 2, 4, 8)), pick((1, 1, 2, 4)), pick((1, 2, 2, 4)), pick((1, 1, 2))
    schedule = pick(("gpipe", "1f1b", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe"))
    virtual = pick((2, 3)) if schedule == "interleaved" else 1
    parts = pp * (2 if schedule == "zb-v" else virtual)
    experts = pick((1, 1, 2, 4, 8))
    ep = pick([e for e in (1, 1, 2, 4, 8) if dp * cp % e == 0 and experts % e == 0])
    layers = parts * pick((1, 1, 2))
    micro_batches = pick((1, 2, 4)) if schedule != "dualpipe" else 2 * pp
    loads = tuple(rng.randint(1, 5) for _ in range(experts))
    zero = pick((0, 0, 1, 2, 3))
    model = om.TransformerModel(
        layers=layers,
        hidden=64,
        heads=4,
        sequence=pick((8, 256)),
        vocabulary=pick((100, 10_000)),
        ffn=128,
        experts=experts,
        active_experts=pick((1, min(2, experts))),
        kv_heads=pick((None, 2)),
    )
    orders = [*DEGREES], [*DEGREES, "ep"]
    servers = [k for k in (1, 2, 4, 8) if dp * tp * pp * cp % k == 0]
    return {
        **{"dp": dp, "tp": tp, "pp": pp, "cp": cp, "ep": ep, "zero_stage": zero},
        **{"schedule": schedule, "virtual_stages": virtual, "model": model},
        **{name: tuple(rng.sample(o := pick(orders), len(o))) for name in ("order", "placement")},
        "shard": pick((None, None, 2, 4)) if zero else None,
        "sequence_parallel": pick((False, True)),
        "gpus_per_server": pick(servers),
        "ports_per_gpu": pick((1, 1, 2, 3, 4)),
        "port_bytes_per_s": pick((1e8, 50e9)),
        "latency_s": pick((0.0, 5e-7, 1e-3)),
        "spanning": pick(("hierarchical", "rings")),
        "delay_s": pick((0.0, 1e-6, 1e-4, 1e-2, 1.0)),
        "switching": pick(("per-circuit", "per-circuit", "all-stop")),
        "fabric": pick(
            (None,) * 12
            + (om.IdealSwitch(128), om.Benes(16), om.Crossbar(20))
            + (om.HexMesh(5, 5, ports=8), om.HexMesh(7, 7, tx=8, rx=8))
        ),
        "radix": pick((None, None, None, 16)),
        "batch": dp * micro_batches,
        "micro_batch": pick((1, -1)) if schedule != "dualpipe" else 1,
        "peak_flops_per_s": pick((1e9, 1e14)),
        "memory_bytes_per_s": pick((None, 1e9)),
        "bucket_bytes": pick((0.0, 1e5)),
        "one_stream": pick((False, False, True)),
        "skew": pick((1.0, 1.5, loads)),
        "collectives": {
            name: pick(("ring", "halving", "tree"))
            for name in rng.sample(("dp", "cp", "ep"), pick((0, 0, 1, 2)))
        },
    }


def try_rail_job(job: om.RailJob, method: str, folder: Path) -> str:
    """Write, read, simulate, solve and verify a job; return the faults, empty if there are none.

    Orders that ranks cannot keep, and ports that do not come in twos, are refused by name.
    """
    om.save(job, folder / "drawn.json", force=True)
    loaded = om.load(folder / "drawn.json")
    if not isinstance(loaded, om.RailJob) or loaded != job:
        return "another job is read than was written"
    try:
        loaded.lower_bound()
        for policy in ("on-demand", "provisioned", "all-links"):
            simulate_rails(loaded, policy)
        solution = om.solve(loaded, method, seed=0, limits=om.Limits(time_s=20, iterations=200))
    except om.InputError:
        return ""
    report = om.verify(loaded, solution)
    return "" if report.valid else f"{method}: {report.violations[:2]} {report.skipped}"
