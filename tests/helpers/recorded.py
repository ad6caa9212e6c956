"""Records of what methods answer and what the verifier says, to compare two states of the code.

``python -m tests.helpers.recorded record FILE [--like OLD]`` solves all files of `instances/`
and 200 drawn problems of all kinds and methods with seed 0 under a limit of iterations, and writes
a gzipped JSON file. ``--like OLD`` takes the problems of a former record instead of drawing anew,
and lets the verifier judge the answers of that record too. ``python -m tests.helpers.recorded
compare OLD NEW`` lists the differences and exits with 1 if there are any.

Each problem is solved twice. One whose two outcomes differ, because its method watches the clock
or starts threads, is noisy: its outcome is not compared. The verifier judges each recorded answer
and thirty forged variants of it, so that its reports are compared even where the solve is noisy.
"""

import argparse
import gzip
import hashlib
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st

import optmatch as om
from optmatch import testing
from optmatch.io import dumps, loads
from optmatch.kinds import all_methods
from optmatch.model import Problem
from tests.helpers.sharing import draw_sharing

INSTANCES = Path(__file__).resolve().parents[2] / "instances"
LIMITS = om.Limits(iterations=8, time_s=2.0)
"""The time is for searches that do not count iterations; it keeps a record below ten minutes."""
N_FORGED = 30
"""Forged variants of each answer."""
MAX_FORGED_CHARACTERS = 200_000
"""Longer answers are judged as they are, and not forged: reading them takes too long."""

Entry = dict[str, Any]
"""``problem``, ``method``, ``outcomes`` of two solves, ``answer`` as text, ``reports``."""


def draw_problems() -> dict[str, Problem]:
    """Draw 200 small problems of all kinds, always the same ones for the same strategies."""
    drawn: dict[str, Problem] = {}
    for kind, (number, strategy) in _strategies().items():
        for index, problem in enumerate(_draw(strategy, number)):
            drawn[f"drawn/{kind}-{index:02}"] = problem
    return drawn


def _strategies() -> dict[str, tuple[int, st.SearchStrategy[Any]]]:
    """Return for each kind the number of problems, and the strategy that draws them."""
    switches = testing.feed_forward_fabrics()
    seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)
    return {
        "routing": (30, testing.routing_problems()),
        "feed-forward": (20, testing.routing_problems(switches=switches)),
        "all-to-all": (15, testing.all_to_all_problems()),
        "demand": (35, testing.demand_problems()),
        "collective": (25, testing.collective_problems()),
        "rail-job": (12, testing.rail_problems()),
        "reroute": (25, testing.reroute_problems()),
        "slice-allocation": (13, testing.slice_problems()),
        "port-sharing": (15, st.builds(draw_sharing, seeds, st.sampled_from(SHARING))),
    }


SHARING = ("max-flow", "max-min", "min-jct", "lexicographic")


def _draw(strategy: st.SearchStrategy[Any], number: int) -> list[Problem]:
    """Draw from a strategy with seed 0; hypothesis may have fewer different ones to give."""
    drawn: list[Problem] = []

    @seed(0)
    @settings(
        max_examples=number,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(problem: Problem) -> None:
        drawn.append(problem)

    collect()
    return drawn[:number]


def load_instances() -> dict[str, Problem]:
    """Load all problem files of `instances/`."""
    names = sorted(
        path.relative_to(INSTANCES).with_suffix("").as_posix()
        for path in INSTANCES.glob("*/*.json")
    )
    problems: Any = {name: om.load(INSTANCES / f"{name}.json") for name in names}
    return dict(problems)


def choose_methods(problems: dict[str, Problem]) -> dict[str, str]:
    """Choose the default method of each instance; drawn problems take turns over all methods."""
    chosen = {}
    turns: dict[str, int] = {}
    for name, problem in problems.items():
        fitting = [method.name for method in all_methods() if method.takes(problem)]
        turn = 0
        if name.startswith("drawn/"):
            turn = turns.setdefault(problem.kind, 0)
            turns[problem.kind] += 1
        chosen[name] = fitting[turn % len(fitting)]
    return chosen


def solve_once(problem: Problem, method: str) -> tuple[Entry, str | None]:
    """Solve with seed 0; return the outcome, and the whole solution as text."""
    try:
        solution = om.solve(problem, method, seed=0, limits=LIMITS)
    except Exception as exc:
        return {"error": f"{type(exc).__name__}: {exc}"}, None
    text = dumps(solution)
    tree = json.loads(text)
    outcome = {name: tree.get(name) for name in ("objective", "status", "lower_bound", "proof")}
    outcome["answer"] = digest([tree.get("schedule"), tree.get("answer")])
    return outcome, text


def judge(text: str, name: str) -> list[str]:
    """Return what the verifier says to an answer, and to forged variants of it.

    Each report is given in short if it is a refusal of the reader, and by its digest otherwise.
    """
    tree = json.loads(text)
    reports = [_judge_tree(tree)]
    if len(text) > MAX_FORGED_CHARACTERS:
        return reports
    for index in range(N_FORGED):
        rng = random.Random(f"{name} {index}")
        reports.append(_judge_tree(forge_answer(json.loads(text), rng)))
    return reports


FORGED_FIELDS = ("schedule", "answer", "certificate", "objective", "lower_bound", "stats")


def forge_answer(tree: Any, rng: random.Random) -> Any:
    """Change one to three numbers of an answer or of the claims about it, in place.

    Most changes are small, so that the reader accepts them and the verifier has to judge them.
    """
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        field = rng.choice([name for name in FORGED_FIELDS if tree.get(name) not in (None, {})])
        leaves = list(_list_numbers(tree, field))
        if not leaves or rng.random() < 0.03:
            tree["status"] = rng.choice(("optimal", "feasible", "infeasible", "unknown"))
            continue
        holder, key = rng.choice(leaves)
        other_holder, other_key = rng.choice(leaves)
        number = holder[key]
        if isinstance(number, int):
            holder[key] = rng.choice((number + 1, number - 1, other_holder[other_key]))
        else:
            holder[key] = rng.choice(
                (number * (1 + 1e-6), number * (1 - 1e-6), number * 2, number + 1)
            )
    return tree


def _list_numbers(holder: Any, key: Any) -> Iterator[tuple[Any, Any]]:
    """List the places of all numbers at and below ``holder[key]``, each as (holder, key)."""
    value = holder[key]
    if isinstance(value, dict):
        for name in value:
            yield from _list_numbers(value, name)
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from _list_numbers(value, index)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield holder, key


def _judge_tree(tree: Any) -> str:
    try:
        solution: Any = loads(json.dumps(tree))
        report = om.verify(solution.problem, solution)
    except Exception as exc:  # a raw exception is a defect, which the other record shows too
        return f"{type(exc).__name__}: {str(exc)[:200]}"
    told = report.to_json()
    rules = sorted({violation["rule"] for violation in told["violations"]})
    summary = "; ".join(rules) or f"ok={report.ok} valid={report.valid}"
    return f"{summary} #{digest(told)}"


def digest(tree: Any) -> str:
    """Return a short digest of a JSON tree, in which floats are rounded to twelve digits."""

    def rounded(entry: Any) -> Any:
        if isinstance(entry, float):
            return f"{entry:.12g}"
        if isinstance(entry, dict):
            return {key: rounded(value) for key, value in entry.items()}
        return [rounded(value) for value in entry] if isinstance(entry, list) else entry

    written = json.dumps(rounded(tree), sort_keys=True, default=str)
    return hashlib.sha256(written.encode()).hexdigest()[:16]


def record(path: Path, like: Path | None) -> None:
    """Solve and judge all problems, and write the record."""
    if like is None:
        problems = load_instances() | draw_problems()
        methods = choose_methods(problems)
        former: dict[str, Entry] = {}
    else:
        former = read(like)
        problems = {name: _problem_of(entry) for name, entry in former.items()}
        methods = {name: entry["method"] for name, entry in former.items()}

    entries: dict[str, Entry] = {}
    for name, problem in problems.items():
        outcome, text = solve_once(problem, methods[name])
        again, _ = solve_once(problem, methods[name])
        judged = former[name]["solution"] if name in former else text
        entries[name] = {
            "problem": dumps(problem),
            "method": methods[name],
            "outcomes": [outcome, again],
            "solution": judged,
            "reports": judge(judged, name) if judged is not None else [],
        }
        _show(f"{len(entries)} of {len(problems)}, {time.process_time():.0f} s of CPU: {name}")
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        json.dump(entries, stream)
    noisy = sum(is_noisy(entry) for entry in entries.values())
    print(f"{path}: {len(entries)} problems, {noisy} noisy, {time.process_time():.0f} s of CPU")


def _show(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)


def _problem_of(entry: Entry) -> Problem:
    problem: Any = loads(entry["problem"])
    return problem  # type: ignore[no-any-return]


def read(path: Path) -> dict[str, Entry]:
    """Read a record."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return dict(json.load(stream))


def is_noisy(entry: Entry) -> bool:
    """Tell whether the two solves of a problem came out differently."""
    return bool(entry["outcomes"][0] != entry["outcomes"][1])


def compare(old: Path, new: Path) -> int:
    """Print the differences between two records; return their number."""
    former, latter = read(old), read(new)
    differences = 0
    for line in _differences(former, latter):
        print(line)
        differences += 1
    shared = former.keys() & latter.keys()
    noisy = sum(is_noisy(former[name]) or is_noisy(latter[name]) for name in shared)
    print(f"{len(shared)} problems in both records, {noisy} noisy, {differences} differences")
    return differences


def _differences(former: dict[str, Entry], latter: dict[str, Entry]) -> Iterator[str]:
    for name in former:
        if name not in latter:
            yield f"{name}: not in the new record"
            continue
        before, after = former[name], latter[name]
        if before["problem"] != after["problem"]:
            yield f"{name}: another problem; record with --like"
            continue
        where = f"{name} by {before['method']}"
        if not is_noisy(before) and not is_noisy(after):
            for field, value in before["outcomes"][0].items():
                changed = after["outcomes"][0].get(field)
                if changed != value:
                    yield f"{where}: {field} was {value}, is {changed}"
        if before["solution"] == after["solution"]:
            pairs = zip(before["reports"], after["reports"], strict=True)
            for index, (report, changed) in enumerate(pairs):
                if report != changed:
                    yield f"{where}: report {index} was {report!r}, is {changed!r}"


COMMANDS: dict[str, Callable[..., Any]] = {"record": record, "compare": compare}


def main() -> int:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(description="Record answers and reports, or compare records.")
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("path", type=Path)
    recording.add_argument("--like", type=Path)
    comparing = commands.add_parser("compare")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    arguments = vars(parser.parse_args())
    result = COMMANDS[arguments.pop("command")](**arguments)
    return int(bool(result))


if __name__ == "__main__":
    sys.exit(main())
