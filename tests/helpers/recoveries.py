"""Random failures and repairs of a running state, each answer verified: for tests and `make soak`.

    python -m tests.helpers.recoveries [STEPS] [--cpu]

Prints the times of `fail` and `apply`, and exits with 1 if a bar is missed. With ``--cpu`` times
and deadlines are of the processor, for a busy machine.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import optmatch as om
from optmatch.model import InfeasibleError, LimitReached
from optmatch.solvers.reroutes.states import fill_rack, hold_matching

DEADLINE_S = 0.02
_MOST_DOWN = 4  # parts that are broken at a time


@dataclass
class Recoveries:
    """The kind of a run, and its figures."""

    fail_s: list[float] = field(default_factory=list)
    apply_s: list[float] = field(default_factory=list)
    undecided: int = 0
    impossible: int = 0
    given_back: int = 0
    wrong: list[str] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)
    """After each quarter."""


def rack() -> om.Reroute:
    """Fill a rack but for four spares."""
    return fill_rack(om.RackFabric())


def mesh() -> om.Reroute:
    """Connect 28 of 32 ports of a mesh."""
    matching = np.arange(32) ^ 1
    matching[28:] = -1
    return hold_matching(om.HexMesh(9, 9, ports=32), matching.tolist())


def recover(
    state: om.Reroute,
    steps: int,
    *,
    seed: int = 0,
    deadline_s: float | None = DEADLINE_S,
    now: Callable[[], float] = time.perf_counter,
) -> Recoveries:
    """Let parts fail and be repaired at random, and give circuits back where that is possible."""
    rng, run = np.random.default_rng(seed), Recoveries()
    controller = om.Rerouter(state)
    fabric, down = state.fabric, list[tuple[str, int]]()
    kinds = {"chip": state.units.n_chips, "fibre": state.units.n_fibres, "port": fabric.n_ports}
    kinds |= {"cell": fabric.n_cells}
    names = [kind for kind, count in kinds.items() if count]
    for step in range(steps):
        if 4 * (step + 1) % steps < 4:
            pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
            run.memory_mib.append(pages * 4 / 1024)
        if len(down) == _MOST_DOWN or (down and rng.random() < 0.4):
            kind, part = down.pop(int(rng.integers(len(down))))
            controller.repair(**{kind: part})
            _give_back(controller, run)
            continue
        kind = names[int(rng.integers(len(names)))]
        part = int(rng.integers(kinds[kind]))
        stuck = (None, "bar", "cross")[int(rng.integers(3))] if kind == "cell" else None
        if (kind, part) in down:
            continue
        down.append((kind, part))
        failure: dict[str, Any] = {kind: part, "stuck": stuck, "deadline_s": deadline_s}
        started = now()
        try:
            proposal = controller.fail(**failure)
        except InfeasibleError:
            run.impossible += 1
            continue
        except LimitReached:
            run.undecided += 1
            continue
        finally:
            run.fail_s.append(now() - started)
        _take(controller, proposal, run, now)
    return run


def _take(
    controller: om.Rerouter, proposal: Any, run: Recoveries, now: Callable[[], float]
) -> None:
    """Verify a proposal, and apply it."""
    before, failed = controller.state, proposal.failure._asdict()
    failed = {name: (*getattr(before, name), *parts) for name, parts in failed.items()}
    report = om.verify(replace(before, **failed), proposal.transition)
    if not report.ok:
        run.wrong.append(report.complaint)
    started = now()
    after = controller.apply(proposal)
    run.apply_s.append(now() - started)
    if after.hit.any():
        run.wrong.append("a circuit without light")


def _give_back(controller: om.Rerouter, run: Recoveries) -> None:
    for unit in controller.stand_ins:
        if unit not in controller.state.spares:
            continue
        try:
            controller.apply(controller.give_back(unit))
        except (om.InputError, InfeasibleError, LimitReached):
            continue
        run.given_back += 1


def main() -> None:
    """Run, print and judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("steps", type=int, nargs="?", default=10_000)
    parser.add_argument("--cpu", action="store_true")
    given = parser.parse_args()
    now = time.process_time if given.cpu else time.perf_counter
    missed = False
    for name, state in (("rack", rack()), ("hex 9 x 9", mesh())):
        recover(state, 300, deadline_s=None)  # compiles
        gc.collect()
        gc.freeze()  # as `docs/racks.md` says: what is loaded by now is not looked through again
        with patch("optmatch.model.limits.Stopwatch.counted_s", lambda _: now()):
            run = recover(state, given.steps, seed=1, now=now)
        fail, apply = (1e3 * np.array(times) for times in (run.fail_s, run.apply_s))
        print(
            f"{name}: {len(fail)} failures, {run.impossible} impossible, {run.given_back} given"
            f" back, {len(run.wrong)} wrong {run.wrong[:3]}\n"
            f"  fail: median {np.median(fail):.2f} ms, 99.9 % {np.percentile(fail, 99.9):.2f} ms"
            f" (bar 25), most {fail.max():.2f} ms; undecided {run.undecided / len(fail):.2%}"
            f" (bar 1 %)\n"
            f"  apply: median {np.median(apply):.2f} ms, 99.9 % {np.percentile(apply, 99.9):.2f}"
            f" ms (bar 10), most {apply.max():.2f} ms\n"
            f"  memory after each quarter: {', '.join(f'{m:.0f}' for m in run.memory_mib)} MiB",
            flush=True,
        )
        slow = np.percentile(fail, 99.9) > 25 or np.percentile(apply, 99.9) > 10
        grown = run.memory_mib[-1] > 1.05 * run.memory_mib[0]
        missed |= bool(slow or grown or run.wrong or run.undecided > len(fail) / 100)
    sys.exit(int(missed))


if __name__ == "__main__":
    main()
