"""Answers in files, changed so that they claim more than is known of them.

``python -m tests.helpers.forging NUMBER [SEED]`` changes one respect of a right answer so many
times: an entry of a schedule, of another answer, of a certificate, or the objective. It prints the
changes that the verifier accepts, by kind, and those of them that are not known to be right.
"""

import copy
import json
import random
import re
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import optmatch as om
from optmatch.io import loads
from optmatch.problems.rails.execution.plan import RailPlan, RailTimeline
from optmatch.problems.rails.training.step import RECV, SEND
from optmatch.problems.reroutes.transition import Transition
from optmatch.problems.slices.problem import Allocation
from tests.helpers.fuzzing import change_json
from tests.helpers.oracles import follow
from tests.helpers.sharing import score_by_hand, serves

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
    if isinstance(solution.problem, om.PortSharing) and solution.answer is not None:
        return _is_assigned_as_well(solution)
    if isinstance(given.answer, Transition) and isinstance(solution.answer, Transition):
        return _reroutes_alike(given.problem, given.answer, solution.answer)
    if hasattr(given.answer, "schedules") and hasattr(solution.answer, "schedules"):
        return _are_planes_served(given, solution.answer.schedules)
    if solution.schedule is None or given.schedule is None:
        return solution.schedule is None and solution.answer in (None, given.answer)
    found: Any = solution.schedule
    if isinstance(given.problem, om.Demand) and given.problem.fabric.n_cells == 0:
        return _is_served_as_soon(given, found)
    same = replace(given.schedule, cell_states=None) == replace(found, cell_states=None)
    return bool(same) and _arrives(solution.problem.fabric, solution.schedule)


def _lit_alike(fabric: om.RackFabric, given: Allocation, found: Allocation) -> bool:
    """Tell whether only fibres of the same edges are others, and none is in use twice."""
    if replace(found, fibres=given.fibres, circuits=given.circuits) != given:
        return False
    edges = []
    for slices in (given, found):
        edges_of_circuit: dict[tuple[int, ...], list[int]] = {
            tuple(ends): [] for ends in slices.circuits.tolist()
        }
        for circuit, fibre in slices.fibres.tolist():
            ends = tuple(slices.circuits[circuit].tolist())
            edges_of_circuit[ends].append(int(fabric.edge_of_fibre[fibre]))
        edges.append(edges_of_circuit)
    once = len(np.unique(found.fibres[:, 1])) == len(found.fibres)
    return once and edges[0] == edges[1]


def _is_assigned_as_well(solution: om.Solution) -> bool:
    """Tell by hand whether an assignment is allowed, and as good as it claims to be."""
    problem: Any = solution.problem
    answer: Any = solution.answer
    job_of = tuple(answer.job_of.tolist())
    serving = [(resource, job) for resource, job in enumerate(job_of) if job >= 0]
    can_serve = all(serves(problem.resources, problem.jobs, *pair) for pair in serving)
    return can_serve and _alike(score_by_hand(problem, job_of), solution.objective)


def _is_served_as_soon(given: Any, found: om.Schedule) -> bool:
    """Tell whether other matchings of the same slots serve a demand too."""
    durations_s = given.schedule.durations_s
    if given.problem.objective == "weighted-completion-s" and len(durations_s) == found.n_slots:
        # When groups are complete does not depend on how much longer the last slot is.
        durations_s = np.append(durations_s[:-1], max(durations_s[-1], found.durations_s[-1]))
    expected = replace(given.schedule, durations_s=durations_s)
    same_times = replace(found, matchings=expected.matchings) == expected
    served = _served_s(found, given.problem.fabric.n_ports)
    return same_times and bool((served >= given.problem.demand_bytes - 1e-9).all())


def _are_planes_served(given: Any, found: tuple[om.Schedule, ...]) -> bool:
    """Tell whether planes, which are all alike, serve a demand together, in the same slots."""
    n_ports = given.problem.fabric.n_ports
    left = [slots.durations_s.tobytes() for slots in found]
    for slots in given.answer.schedules:
        if slots.durations_s.tobytes() not in left:
            return False
        left.remove(slots.durations_s.tobytes())
    served = sum(_served_s(slots, n_ports) for slots in found)
    return not left and bool((served >= given.problem.demand_bytes - 1e-9).all())


def _served_s(slots: om.Schedule, n_ports: int) -> Any:
    """Return how long each pair of ports is connected."""
    served = np.zeros((n_ports, n_ports))
    for matching, duration_s in zip(slots.matchings, slots.durations_s, strict=True):
        used = np.flatnonzero(matching >= 0)
        served[used, matching[used]] += duration_s
    return served


def _reroutes_alike(problem: om.Reroute, given: Transition, found: Transition) -> bool:
    """Tell whether only fibres of the same edges are others, or ports of the same chips.

    The fibres work and are not in use; each port ends one circuit.
    """
    if given == found:
        return True
    # Steps of one kind may follow each other in any order.
    steps = [sorted(each.steps.tolist()) for each in (given, found)]
    kinds = [each.steps[:, 0].tolist() for each in (given, found)]
    if steps[0] != steps[1] or kinds[0] != kinds[1]:
        return False
    fabric = problem.fabric
    if not isinstance(fabric, om.RackFabric):
        same = replace(found, routes=given.routes, steps=given.steps) == given
        return same and found.routes == given.routes
    chips = [each.circuits // fabric.ports_per_chip for each in (given, found)]
    circuits = problem.circuits.copy()
    circuits[found.changed] = found.circuits
    if (chips[0] != chips[1]).any() or any(len(set(ends)) < len(ends) for ends in circuits.T):
        return False
    same = replace(found, routes=given.routes, steps=given.steps, circuits=given.circuits) == given
    if not same:
        return False
    for one, two in zip(given.routes, found.routes, strict=True):
        if [fabric.edge_of_fibre[f] for f in one] != [fabric.edge_of_fibre[f] for f in two]:
            return False
    changed = set(found.changed.tolist())
    kept = [route for circuit, route in enumerate(problem.routes) if circuit not in changed]
    fibres = [fibre for route in (*kept, *found.routes) for fibre in route]
    return len(set(fibres)) == len(fibres) and not set(fibres) & set(problem.failed_fibres)


def _serves(job: om.RailJob, given: RailPlan, found: RailPlan) -> bool:
    """Tell whether every operation finds the circuits that it has in a plan that is right."""
    if job.network.switching != "per-circuit" or replace(found, rails=given.rails) != given:
        return False
    step = job.step()
    users = [(op, int(step.rank[op])) for op in np.flatnonzero(given.ports).tolist()]
    users += [(op, rank) for op, rank, _ in given.relays.tolist()]
    for old, new in zip(given.rails, found.rails, strict=True):
        free = ("matchings", "cell_states", "starts_s", "asked_s")
        if replace(new, **{field: getattr(old, field) for field in free}) != old:
            return False
        if (new.asked_s > new.starts_s + 1e-9).any() or new.asked_s[0] != 0 != new.starts_s[0]:
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
    begins_s, over_s = given.start_s[op] + 1e-9, given.end_s[op] - 1e-9
    kind = int(job.step().kind[op])
    old_state = int(np.searchsorted(old.starts_s, begins_s, side="right")) - 1
    for port in range(gpu * k, gpu * k + k):
        number = port if job.fabric is None else int(job.fabric.live_ports[port])
        wanted = _ends_of(old.matchings[old_state], number, kind)
        now = [_ends_of(row, number, kind) for row in new.matchings]
        starts_s = new.starts_s.tolist()
        for state, (one_s, two_s) in enumerate(
            zip(starts_s, [*starts_s[1:], np.inf], strict=True)
        ):
            changes = state > 0 and now[state] != now[state - 1]
            up_s = one_s + delay_s if changes else one_s
            if one_s < over_s and two_s > begins_s and now[state] != wanted:
                return False
            if changes and one_s < over_s and up_s > begins_s:
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


ROUNDING = 1e-9
"""Numbers that differ by no more, as a part of them, are the same to the verifier."""

ANSWERS = ("schedule", "answer", "certificate", "objective")


class Change(NamedTuple):
    """One change of a file."""

    place: str
    """Where it is, with a star for each index of a list."""
    action: str
    is_rounding: bool = False
    """Whether a number was changed by no more than `ROUNDING`."""


def change_answer(tree: dict[str, Any], rng: random.Random) -> Change:
    """Change one respect of the answer in a tree, in place."""
    places = [
        place
        for key in ANSWERS
        if tree.get(key) is not None
        for place in [(tree, key, key), *_places_below(tree[key], key)]
    ]
    holder, key, name = rng.choice(places)
    value = holder[key]
    name = re.sub(r"\[\d+\]", "[*]", name)
    if isinstance(value, bool):
        holder[key] = not value
        return Change(name, "other truth")
    if isinstance(value, int):
        return Change(name, _change_whole(holder, key, rng))
    if isinstance(value, float):
        factor = rng.choice((1e-12, 1e-10, 3e-9, 1e-8, 1e-6, 1e-3, 1.0)) * rng.choice((-1, 1))
        holder[key] = value * (1 + factor)
        return Change(name, f"times 1 + {factor:g}", abs(factor) <= ROUNDING)
    if isinstance(value, list) and value:
        return Change(name, _change_list(value, rng))
    if isinstance(value, dict) and value:
        del value[rng.choice(list(value))]
        return Change(name, "without a key")
    holder[key] = rng.choice((None, 0, [], "x"))
    return Change(name, "another value")


def _change_whole(holder: Any, key: Any, rng: random.Random) -> str:
    """Put another whole number in a place: one beside it, or that of a sibling."""
    siblings = holder if isinstance(holder, list) else list(holder.values())
    others = [v for v in siblings if type(v) is int and v != holder[key]]
    if others and rng.random() < 0.5:
        holder[key] = rng.choice(others)
        return "the number of another entry"
    holder[key] += rng.choice((-1, 1))
    return "one more or less"


def _change_list(value: list[Any], rng: random.Random) -> str:
    """Remove or repeat an entry, or swap two that differ."""
    one = rng.randrange(len(value))
    action = rng.randrange(4)
    others = [k for k, entry in enumerate(value) if entry != value[one]]
    if others and action < 2:
        two = rng.choice(others)
        value[one], value[two] = value[two], value[one]
        return "two entries swapped"
    if action == 2:
        value.insert(one, copy.deepcopy(value[one]))
        return "an entry twice"
    del value[one]
    return "without an entry"


def _places_below(tree: Any, name: str) -> list[tuple[Any, Any, str]]:
    """List the holder, the key and the name of all places below a part of a tree."""
    entries: Any = ()
    if isinstance(tree, dict):
        entries = [(key, f"{name}.{key}") for key in tree]
    elif isinstance(tree, list):
        entries = [(k, f"{name}[{k}]") for k in range(len(tree))]
    found = []
    for key, text in entries:
        found += [(tree, key, text), *_places_below(tree[key], text)]
    return found


def main(number: int, seed: int) -> int:
    """Forge so many answers, and print what the verifier accepts."""
    outcomes = Counter[str]()
    accepted = Counter[tuple[str, Change]]()
    wrong = Counter[tuple[str, Change]]()
    turn = 0
    while outcomes.total() < number:
        turn += 1
        rng = random.Random(f"{seed} {turn}")
        name = rng.choice(list(TRUTHS))
        tree = json.loads(answer(name))
        change = change_answer(tree, rng)
        try:
            solution: Any = loads(json.dumps(tree))
        except om.InputError:
            outcomes["refused by the reader"] += 1
            continue
        if not om.verify(solution.problem, solution).ok:
            outcomes["refused by the verifier"] += 1
            continue
        accepted[name, change] += 1
        if change.is_rounding:
            outcomes["accepted, within rounding"] += 1
        elif is_right(name, solution):
            outcomes["accepted, right"] += 1
        else:
            outcomes["accepted, not known to be right"] += 1
            wrong[name, change] += 1
            if wrong[name, change] == 1:
                print(f"turn {turn}: {name}, {change.place}: {change.action}", flush=True)
    for (name, change), count in sorted(accepted.items()):
        mark = "WRONG? " if (name, change) in wrong else ""
        print(f"{mark}{count} {name}, {change.place}: {change.action}")
    print(f"{number} forged answers, seed {seed}: {dict(outcomes)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
