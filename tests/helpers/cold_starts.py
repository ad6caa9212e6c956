"""Solves on a fresh machine: each kind by its default method, with a limit of one second.

    python -m tests.helpers.cold_starts [PART OF A NAME ...]

Each problem is solved by the command line in a process of its own: with kernels that are kept,
with an empty kernel cache, with caches that cannot be written, without a home folder, and without
compiling. Wherever the warm run of a setting has an answer the other has one, and its counted time
is at most 10 % and a tenth of a second longer. Times are of the clock, and the machine may do
other things: where a pair differs, it runs again, up to three times, with a new empty cache.
Prints a table, in Markdown, and ends with 1 where no pair held. It compiles all kernels twice, so
it takes minutes.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from tests.helpers.command import INSTANCES

LIMIT_S = 1.0

MOST_RUNS = 3
"""How often a cold and a warm run are compared until they hold."""

MORE_TIME = 0.1
"""By which part, and by how many seconds, counted time may be longer than in a warm run."""

PROBLEMS = (
    "all-to-all/hex-4x4-8",
    "all-to-all/benes-16",
    "collectives/all-reduce-8",
    "collectives/straggler-96",
    "demand/gravity-16",
    "demand/hex-5x5-8",
    "rails/dense-32",
    "reroute/hex-5x5-12-cell",
    "reroute/rack-64-chip",
    "routing/hex-9x9-32-random-1",
    "routing/benes-32-random-5",
    "sharing/devices-120-fair",
    "slices/rack-2x4x4-few-fibres",
)
"""Instances of every kind, of a size at which all kernels of their default methods are called."""

UNWRITABLE = "/proc/optmatch"
"""A folder that nobody can create, the superuser neither."""

NO_JIT = {"NUMBA_DISABLE_JIT": "1"}


class Setting(NamedTuple):
    """A machine on which a problem is solved."""

    name: str
    environment: dict[str, str | None]
    """Variables of the environment; None removes one."""
    warm_environment: dict[str, str | None]
    """Those of the run that it is compared with."""


class Run(NamedTuple):
    """What one solve has said."""

    code: int
    objective: float | None
    counted_s: float
    uncounted_s: float
    stderr: str


def settings_in(folder: Path) -> tuple[Setting, ...]:
    """Return all settings; their empty caches are in this folder, which is fresh."""
    without_home = {"HOME": None, "XDG_CACHE_HOME": UNWRITABLE, "NUMBA_CACHE_DIR": None}
    return (
        Setting("empty cache", {"NUMBA_CACHE_DIR": str(folder / "empty")}, {}),
        Setting("read-only cache", {"NUMBA_CACHE_DIR": UNWRITABLE}, {}),
        Setting("HOME unset", without_home, {}),
        Setting("no compiler", dict(NO_JIT), dict(NO_JIT)),
    )


def solve_once(problem: str, environment: dict[str, str | None]) -> Run:
    """Solve an instance of the library by its default method, in a process of its own."""
    variables = dict(os.environ)
    for name, value in environment.items():
        variables.pop(name, None)
        if value is not None:
            variables[name] = value
    file = INSTANCES / f"{problem}.json"
    options = ["--seed", "0", "--time-limit", str(LIMIT_S), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "optmatch", "solve", str(file), *options],
        capture_output=True,
        text=True,
        check=False,
        env=variables,
    )
    told: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    return Run(
        code=done.returncode,
        objective=told.get("objective"),
        counted_s=float(told.get("time_s", 0.0)),
        uncounted_s=sum(told.get("uncounted_s", {}).values()),
        stderr=done.stderr,
    )


def find_faults(cold: Run, warm: Run) -> list[str]:
    """Compare a run on a fresh machine with the warm one."""
    faults = []
    if cold.code != warm.code:
        faults.append(f"exit code {cold.code}, warm {warm.code}")
    if (cold.objective is None) != (warm.objective is None):
        faults.append(f"objective {cold.objective}, warm {warm.objective}")
    if cold.counted_s > warm.counted_s * (1 + MORE_TIME) + MORE_TIME:
        faults.append(f"{cold.counted_s:.2f} s counted, warm {warm.counted_s:.2f} s")
    if "Traceback" in cold.stderr:
        faults.append("a traceback")
    return faults


def run_all(parts_of_names: list[str]) -> bool:
    """Solve instances in all settings; tell whether all held.

    Parameters
    ----------
    parts_of_names
        Only instances with one of these in their name are solved; all if there are none.
    """
    print("| instance | setting | answer | counted s | warm s | not counted s | faults |")
    print("|---|---|---|---|---|---|---|", flush=True)
    all_held = True
    for problem in PROBLEMS:
        if parts_of_names and not any(part in problem for part in parts_of_names):
            continue
        warm_runs: dict[str, Run] = {}
        with tempfile.TemporaryDirectory() as folder:
            for setting in settings_in(Path(folder)):
                key = json.dumps(setting.warm_environment)
                if key not in warm_runs:
                    solve_once(problem, setting.warm_environment)  # keeps its kernels
                    warm_runs[key] = solve_once(problem, setting.warm_environment)
                cold, warm = solve_once(problem, setting.environment), warm_runs[key]
                for _ in range(MOST_RUNS - 1):
                    if not find_faults(cold, warm):
                        break
                    shutil.rmtree(Path(folder) / "empty", ignore_errors=True)
                    cold = solve_once(problem, setting.environment)
                    warm = solve_once(problem, setting.warm_environment)
                faults = find_faults(cold, warm)
                if faults:
                    all_held = False
                    print(cold.stderr[-2000:], file=sys.stderr)
                times = f"{cold.counted_s:.2f} | {warm.counted_s:.2f} | {cold.uncounted_s:.1f}"
                answer = f"{cold.objective}, code {cold.code}"
                print(f"| {problem} | {setting.name} | {answer} | {times} | {'; '.join(faults)} |")
                sys.stdout.flush()
    return all_held


if __name__ == "__main__":
    if not run_all(sys.argv[1:]):
        sys.exit(1)
