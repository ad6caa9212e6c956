"""Answers in files, changed so that they claim more than is known of them."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import optmatch as om
from optmatch.io import loads
from tests.helpers.fuzzing import change_json
from tests.helpers.oracles import follow

DATA = Path(__file__).resolve().parents[1] / "data"


class Truth(NamedTuple):
    """What is known of the problem of a file, and of the answer in it."""

    best: Any
    """The least objective by brute force or by hand; None if there is no answer, or unknown."""
    bound: Any
    """No answer is below it."""


TRUTHS = {
    "all-to-all": Truth(50, 50),  # the shortest routes of all pairs
    "collective": Truth(3.5e-5, 3.5e-5),  # ready after log2(8) rounds there and back
    "demand": Truth(9, 9),
    "demand-of-pairs": Truth(15, 15),  # its busiest line
    "demand-on-planes": Truth(5, 5),  # the same, over two planes
    "forwarding": Truth(None, 0.8419091520000004),
    "infeasible-routing": Truth(None, float("inf")),
    "rail-job": Truth(None, 0.8415804720000004),
    "reroute-in-a-rack": Truth((0, 12, 0, 1440, 36), (0, 12, 0, 1440, 36)),
    "reroute-in-a-switch": Truth(None, (0, 1, 0, 432, 9)),
    "routing": Truth(11, 11),
    "slice": Truth(4, 4),
}


@cache
def answer(name: str) -> str:
    """Return the text of an answer."""
    return (DATA / "answers" / f"{name}.schedule.json").read_text()


def forge(name: str, rng: random.Random) -> dict[str, Any]:
    """Change what a file says of status, bound, search, proof and certificate, not its answer."""
    tree: dict[str, Any] = json.loads(answer(name))
    others = [json.loads(answer(other)) for other in TRUTHS]
    for _ in range(rng.randint(1, 3)):
        what = rng.choice(["status", "lower_bound", "bound_by", "proof", "certificate", "none"])
        if what == "status":
            tree["status"] = rng.choice(["optimal", "feasible", "infeasible", "unknown"])
            tree["limit"] = {"optimal": None, "infeasible": None}.get(tree["status"], "exhausted")
            if tree["status"] in ("infeasible", "unknown"):
                tree |= {"schedule": None, "objective": None}
                tree |= {"answer": None} if "answer" in tree else {}
            elif tree["objective"] is not None and tree["status"] == "optimal":
                tree["lower_bound"] = tree["objective"]
        elif what == "lower_bound":
            tree["lower_bound"] = _other_bound(tree, rng)
        elif what == "bound_by":
            tree["stats"] = {**tree["stats"], "bound_by": rng.choice(["search", "cp-sat", "x"])}
        elif what == "proof":
            tree["proof"] = rng.choice(["counting", "certificate", "search", None])
        elif what == "certificate":
            tree["certificate"] = copy.deepcopy(rng.choice(others).get("certificate"))
            if tree["certificate"] is not None and rng.random() < 0.7:
                tree["certificate"] = change_json(tree["certificate"], rng)
    return tree


def _other_bound(tree: dict[str, Any], rng: random.Random) -> Any:
    bound, objective = tree["lower_bound"], tree["objective"]
    if isinstance(bound, list):
        return [max(0, level + rng.choice((0, 0, 0, 1, -1))) for level in bound]
    known = [value for value in (bound, objective) if isinstance(value, int | float)]
    return rng.choice(["inf", "-inf", *known, *[v * 1.01 for v in known], *[v - 1 for v in known]])


def passes(tree: dict[str, Any]) -> om.Solution | None:
    """Return the solution if a file is read, and verified without any reservation."""
    try:
        solution: Any = loads(json.dumps(tree))
    except om.InputError:
        return None
    return solution if om.verify(solution.problem, solution).ok else None


def is_true(name: str, solution: om.Solution) -> bool:
    """Tell whether all claims of a solution with an unchanged answer are known to be true."""
    truth, status = TRUTHS[name], solution.status
    bound: Any = solution.lower_bound
    infeasible = truth == Truth(None, float("inf"))
    if status is om.Status.INFEASIBLE or infeasible:
        return infeasible and status in (om.Status.INFEASIBLE, om.Status.UNKNOWN)
    if status is om.Status.OPTIMAL and not _alike(solution.objective, truth.best):
        return False
    return bool(_alike(bound, truth.bound) or bound == float("-inf") or bound <= truth.bound)


def is_right(name: str, solution: om.Solution) -> bool:
    """Tell whether claims are true, and the answer is the one in the file or as good."""
    given: Any = loads(answer(name))
    if not is_true(name, solution) or solution.problem != given.problem:
        return False
    if solution.schedule is None or given.schedule is None:
        return solution.schedule is None and solution.answer in (None, given.answer)
    found: Any = solution.schedule
    same = replace(given.schedule, cell_states=None) == replace(found, cell_states=None)
    return bool(same) and _arrives(solution.problem.fabric, solution.schedule)


def _arrives(fabric: Any, schedule: Any) -> bool:
    """Follow the light of each circuit, as an oracle does."""
    if fabric.graph is None:
        return True
    for matching, states in zip(schedule.matchings, schedule.cell_states, strict=True):
        for source, destination in enumerate(matching.tolist()):
            start, end = fabric.source_terminals[source], fabric.destination_terminals[destination]
            if destination >= 0 and follow(fabric.graph, states.tolist(), int(start))[1] != end:
                return False
    return True


def _alike(one: Any, two: Any) -> bool:
    if isinstance(one, tuple) or one is None or two is None:
        return bool(one == two)
    return not isinstance(two, tuple) and abs(one - two) <= 1e-9 * abs(two)
