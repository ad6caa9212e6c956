"""Answers in files, changed so that they claim more than is known of them."""

import copy
import json
import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import optmatch as om
from optmatch.io import loads
from optmatch.problems.rails.execution.plan import RailPlan, RailTimeline
from optmatch.problems.rails.training.step import RECV, SEND
from optmatch.problems.slices.problem import Allocation
from tests.helpers.fuzzing import change_json
from tests.helpers.oracles import follow

DATA = Path(__file__).resolve().parents[1] / "data"


class Truth(NamedTuple):
    """The known facts about the problem of a file, and about the answer in it."""

    best: Any
    """The least objective by brute force or by hand; None if there is no answer, or unknown."""
    bound: Any
    """No answer is below it."""


TRUTHS = {
    "all-to-all": Truth(50, 50),  # the shortest routes of all pairs
    "coflows": Truth(18, 18),  # one group after the other, each in a matching
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
    "sharing-fair": Truth(1 / 3, 1 / 3),  # one resource of the 1.5 that are due
    "sharing-flow": Truth(2, 2),  # four of six: the caps leave one on the first plane
    "sharing-infeasible": Truth(None, float("inf")),
    "sharing-order": Truth((0, 3, 0), (0, 3, 0)),  # two are left for jobs that take three or none
    "sharing-time": Truth(0.5, 0.5),  # the second resource comes after 1 s
    "slice": Truth(4, 4),
    "slice-across-racks": Truth(4, 4),
    "tenancy": Truth(4.5, 4.5),  # three slots of the all-to-all, and the demand needs one
}

CLAIMS = ("status", "lower_bound", "objective", "bound_by", "proof", "certificate")


@cache
def answer(name: str) -> str:
    """Return the text of an answer."""
    return (DATA / "answers" / f"{name}.schedule.json").read_text()


def forge(name: str, rng: random.Random) -> dict[str, Any]:
    """Change the claims of a file: status, bound, search, proof, certificate, not its answer."""
    tree: dict[str, Any] = json.loads(answer(name))
    others = [json.loads(answer(other)) for other in TRUTHS]
    for _ in range(rng.randint(1, 3)):
        what = rng.choice([*CLAIMS, "none"])
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
        elif what == "objective" and tree["objective"] is not None:
            tree["objective"] = _beside(tree["objective"], rng)
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
        return _beside(bound, rng)
    known = [value for value in (bound, objective) if isinstance(value, int | float)]
    return rng.choice(["inf", "-inf", *known, *[v * 1.01 for v in known], *[v - 1 for v in known]])


def _beside(score: Any, rng: random.Random) -> Any:
    """Return a score that is off by one, or by more than rounding does."""
    if isinstance(score, list):
        return [max(0, level + rng.choice((0, 0, 0, 1, -1))) for level in score]
    return rng.choice([score + 1, score - 1, score * (1 + 1e-6)])


def passes(tree: dict[str, Any]) -> om.Solution | None:
    """Return the solution if a file is read, and verified without any reservation."""
    try:
        solution: Any = loads(json.dumps(tree))
    except om.InputError:
        return None
    return solution if om.verify(solution.problem, solution).ok else None


def is_true(name: str, solution: om.Solution) -> bool:
    """Tell whether all claims of a solution with an unchanged answer are known to be true."""
    truth, status, given = TRUTHS[name], solution.status, json.loads(answer(name))["objective"]
    given = tuple(given) if isinstance(given, list) else given
    if solution.objective is not None and not _alike(solution.objective, given):
        return False
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
    if isinstance(given.answer, RailPlan) and isinstance(solution.answer, RailPlan):
        return _serves(given.problem, given.answer, solution.answer)
    if isinstance(given.answer, Allocation) and isinstance(solution.answer, Allocation):
        return _lit_alike(given.problem.fabric, given.answer, solution.answer)
    if solution.schedule is None or given.schedule is None:
        return solution.schedule is None and solution.answer in (None, given.answer)
    found: Any = solution.schedule
    same = replace(given.schedule, cell_states=None) == replace(found, cell_states=None)
    return bool(same) and _arrives(solution.problem.fabric, solution.schedule)


def _lit_alike(fabric: om.RackFabric, given: Allocation, found: Allocation) -> bool:
    """Tell whether only fibres of the same edges are others, and none is in use twice."""
    if replace(found, fibres=given.fibres) != given:
        return False
    one, two = (fabric.edge_of_fibre[each.fibres[:, 1]] for each in (given, found))
    once = len(np.unique(found.fibres[:, 1])) == len(found.fibres)
    return once and np.array_equal(one, two)


def _serves(job: om.RailJob, given: RailPlan, found: RailPlan) -> bool:
    """Tell whether every operation finds the circuits that it has in a plan that is right."""
    if job.network.switching != "per-circuit" or replace(found, rails=given.rails) != given:
        return False
    step = job.step()
    users = [(op, int(step.rank[op])) for op in np.flatnonzero(given.ports).tolist()]
    users += [(op, rank) for op, rank, _ in given.relays.tolist()]
    for old, new in zip(given.rails, found.rails, strict=True):
        if replace(new, matchings=old.matchings, cell_states=old.cell_states) != old:
            return False
        if job.fabric is not None and not _arrives(job.fabric, new):
            return False
        for rail in old.rails:
            ranks = np.unique(step.rank[step.rail == rail]).tolist()
            for op, rank in users:
                if step.rail[op] == rail and not _finds(job, given, (op, ranks.index(rank)), new):
                    return False
    return True


def _finds(job: om.RailJob, given: RailPlan, user: tuple[int, int], new: RailTimeline) -> bool:
    """Tell whether the ports of a GPU have their circuits when an operation begins, and keep them.

    To whom they send and from whom they receive has to be as in the plan that is right.
    """
    (op, gpu), k, delay_s = user, job.network.ports_per_gpu, job.network.delay_s
    (old,) = (line for line in given.rails if line.rails == new.rails)
    starts_s, ends_s = new.starts_s.tolist(), [*new.starts_s[1:].tolist(), np.inf]
    begins_s, over_s = given.start_s[op], given.end_s[op] - 1e-9
    kind = int(job.step().kind[op])
    for port in range(gpu * k, gpu * k + k):
        number = port if job.fabric is None else int(job.fabric.live_ports[port])
        was, now = ([_ends_of(row, number, kind) for row in line.matchings] for line in (old, new))
        for state, (one_s, two_s) in enumerate(zip(starts_s, ends_s, strict=True)):
            changed_s = one_s + delay_s if state and now[state] != now[state - 1] else one_s
            if one_s < over_s and two_s > begins_s and now[state] != was[state]:
                return False
            if one_s < over_s and changed_s > begins_s + 1e-9 and now[state] != now[state - 1]:
                return False
    return True


def _ends_of(row: Any, port: int, kind: int) -> tuple[int, ...]:
    """Return the ports to which a port sends, and from which it receives, for an operation."""
    sends = () if kind == RECV else (int(row[port]),)
    return sends if kind == SEND else (*sends, *np.flatnonzero(row == port).tolist())


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
