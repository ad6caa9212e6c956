"""The scattering solution of a mesh: time for a state, and the same by `sax`, in one run.

    PYTHONPATH=. python benchmarks/optics.py [--rows 9] [--states 20] [--skip-sax] [--jit]

Cells are lossy and leaky, in random states with random phase errors; all terminals of the
perimeter are inputs. `sax` needs `pip install 'optmatch[crosscheck]'`; it is timed as it comes, on
its later calls, with cells joined directly; with --jit also compiled as a whole. The schedule of
the 9x9 all-to-all then shows the times that users wait for.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import defects  # noqa: F401 - they end the run
import numpy as np

import optmatch as om
from optmatch.model import SolverUnavailable
from optmatch.optics.scattering import scatter
from optmatch.verify.light import check_light
from optmatch.verify.report import Findings
from tests.helpers.crosscheck import SaxCircuit


def clock(what: str, run: Callable[[], Any], repeats: int) -> float:
    """Run often; print least and median milliseconds, return the median."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - started))
    print(f"{what}: least {min(times):.3g} ms, median {np.median(times):.3g} ms")
    return float(np.median(times))


def draw(fabric: om.Fabric, count: int) -> list[np.ndarray]:
    """Draw the matrices of all cells in random states."""
    device = om.Device(
        bar_loss_db=0.48,
        cross_loss_db=0.48,
        bar_extinction_db=33.0,
        cross_extinction_db=44.0,
        phase_error_rad=0.1,
    )
    rng = np.random.default_rng(0)
    return [
        device.cell(rng.integers(0, 2, fabric.n_cells), device.draw_errors(fabric.n_cells, seed=k))
        for k in range(count)
    ]


def time_states(rows: int, states: int, with_sax: bool, compiled: bool) -> None:
    """Time single states, ours and those of sax by turns."""
    fabric = om.HexMesh(rows, rows)
    graph = fabric.graph
    guides = np.ones(graph.links.count, dtype=np.complex128)
    drawn = draw(fabric, states)
    started = time.perf_counter()
    scatter(graph, drawn[0], guides, graph.perimeter)
    prepared = 1e3 * (time.perf_counter() - started)
    print(f"hex {rows}x{rows}: {graph.n_cells} cells, {len(graph.perimeter)} inputs")
    print(f"  first state, with the order of elimination: {prepared:.3g} ms")
    turn = iter(drawn * 100)
    ours = clock(
        "  optmatch, a state",
        lambda: scatter(graph, next(turn), guides, graph.perimeter),
        5 * states,
    )
    if not with_sax:
        return
    circuit = SaxCircuit(graph, guided=False, refined=False)
    circuit.scatter(drawn[0], guides)
    theirs = clock(
        "  sax, later calls", lambda: circuit.scatter(next(turn), guides), max(3, states // 4)
    )
    print(f"  ratio of medians: {theirs / ours:.0f}")
    if compiled:
        time_compiled(circuit, drawn, guides, ours)
    ours_again = clock(
        "  optmatch again",
        lambda: scatter(graph, next(turn), guides, graph.perimeter),
        5 * states,
    )
    print(f"  ratio of medians, the slower of ours: {theirs / max(ours, ours_again):.0f}")
    refined = SaxCircuit(graph, guided=False)
    errors, own = [], []
    for cells in drawn[:5]:
        found = scatter(graph, cells, guides, graph.perimeter).leaving[graph.perimeter]
        plain = circuit.scatter(cells, guides)
        errors.append(np.abs(found - refined.scatter(cells, guides)).max())
        own.append((np.abs(found - plain).max(), np.abs(plain - plain.T).max()))
    print(f"  largest difference to sax with one step of refinement: {max(errors):.1e}")
    print("  to plain sax, and how far plain sax is from reciprocity, by state:")
    print("    " + "; ".join(f"{off:.1e}, {skew:.1e}" for off, skew in own))


def time_compiled(
    circuit: SaxCircuit, drawn: list[np.ndarray], guides: np.ndarray, ours: float
) -> None:
    """Time sax when all of it is compiled."""
    import jax
    import sax

    whole = jax.jit(lambda settings: sax.sdense(circuit.circuit(**settings))[0])
    given = [circuit.settings(cells, guides) for cells in drawn]
    started = time.perf_counter()
    whole(given[0]).block_until_ready()
    print(f"  sax in jax.jit, first call: {time.perf_counter() - started:.3g} s")
    turn = iter(given * 100)
    theirs = clock(
        "  sax in jax.jit, later calls", lambda: whole(next(turn)).block_until_ready(), len(given)
    )
    print(f"  ratio of medians: {theirs / ours:.1f}")


def time_schedule() -> None:
    """Time what users wait for: tracing, and the optics of a whole schedule."""
    problem = om.AllToAll(om.HexMesh(9, 9, ports=32))
    solution = om.solve(problem, seed=0)
    assert solution.schedule is not None
    schedule = solution.schedule
    print(f"hex 9x9, 32 ports, {schedule.n_slots} slots")
    traced = (problem.fabric, schedule.matchings, schedule.cell_states)
    clock("  tracing, all rules", lambda: check_light(*traced, Findings()), 20)
    clock("  optics, cross", lambda: om.measure_optics(problem, solution, "smartlight"), 5)
    clock(
        "  settling of free cells",
        lambda: om.settle_free_cells(problem, solution, "smartlight"),
        3,
    )
    for size in (4, 8, 16, 32):
        routing = om.Routing(om.SwitchAndSelect(size), np.roll(np.arange(size), size // 2))
        routed = om.solve(routing, seed=0)
        settled = om.settle_free_cells(routing, routed, "smartlight")
        worst = [
            om.measure_optics(routing, routed, "smartlight", idle=idle).figures[
                "worst_signal_to_crosstalk_db"
            ]
            for idle in ("cross", settled)
        ]
        print(
            f"  switch-and-select {size}, free cells in cross and settled:"
            f" {worst[0]:.1f} and {worst[1]:.1f} dB"
        )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=9)
    parser.add_argument("--states", type=int, default=20)
    parser.add_argument("--skip-sax", action="store_true")
    parser.add_argument("--jit", action="store_true", help="sax in jax.jit too: takes 5 minutes")
    args = parser.parse_args()
    try:
        time_states(args.rows, args.states, not args.skip_sax, args.jit)
    except SolverUnavailable as exc:
        print(f"  {exc}")
    time_schedule()


if __name__ == "__main__":
    main()
