"""What every solution claims: its answer, its bound, its objective, its proof."""

import math
from typing import Any

import numpy as np

from optmatch.model import FrozenMap, Schedule
from optmatch.problems import Demand, LoadProof, RoutingProof
from optmatch.verify.bounds import check_solution
from optmatch.verify.report import Findings
from tests.verify.rules import UNPROVED, Row, claim, forge, om

PROBLEM = om.Demand.from_matrix([[0, 3], [2, 0]], delay_s=1.0)
ONCE, TWICE = PROBLEM.schedule([[1, 0]], [3]), PROBLEM.schedule([[1, 0]] * 2, [2, 1])
PLANES = om.Demand.from_matrix([[0, 3], [2, 0]], delay_s=1.0, planes=2)
PARTED = om.PlaneSchedules(
    schedules=(PROBLEM.schedule([[1, 0]], [2]), PROBLEM.schedule([[1, 0]], [1]))
)
FAR = forge(PARTED.schedules[1], matchings=np.array([[1, 9]], dtype=np.int32))
DEAD = om.AllToAll(om.HexMesh(2, 2, ports=om.HexMesh(2, 2).dead_pairs()[0]))
DARK = om.AllToAll(om.Faulty(om.HexMesh(1, 1, ports=2), dead_cells=range(6)))
NO_PRICES = RoutingProof.of_prices(np.zeros(DARK.fabric.graph.links.count, dtype=np.int64))
"""Of two ports that cannot meet nothing has to be paid."""
CLASH = om.Routing(om.HexMesh(1, 2, ports=[0, 1, 3, 10]), [1, 0, 3, 2])
GATHER = om.Collective("all-gather", 2, 1.0)
OPTIMAL: Any = {"status": om.Status.OPTIMAL, "limit": None}
INFEASIBLE: Any = {"status": om.Status.INFEASIBLE, "limit": None, "lower_bound": math.inf}
SEARCH: Any = {"stats": {"bound_by": "search"}}


def once(**said: Any) -> Any:
    """Return the best answer, with other claims."""
    return claim(PROBLEM, **{"schedule": ONCE, "objective": 4.0, "lower_bound": 4.0} | said)


def twice(**said: Any) -> Any:
    """Return an answer that takes 5 s, where no bound is above 4 s."""
    return claim(PROBLEM, **{"schedule": TWICE, "objective": 5.0, "lower_bound": 4.0} | said)


def clash(infeasible: bool, **said: Any) -> Any:
    """Return a claim that two circuits cannot be routed, with prices of one unit on one link."""
    prices = np.zeros(CLASH.fabric.graph.links.count, dtype=np.int64)
    prices[7] = 1
    proof = RoutingProof.of_prices(prices, infeasible=infeasible)
    return claim(CLASH, **INFEASIBLE | {"certificate": proof} | said)


def replay_to(objective: float) -> om.Report:
    """Judge an answer that a replay with a gap would let end so soon, where 4 s are counted."""
    findings = Findings()
    findings.figures |= {"lower_bound_recomputed": 4.0, "objective": objective}
    said = once(objective=objective, lower_bound=min(objective, 4.0))
    check_solution(said, findings, replay=bool, form="schedule")
    return findings.report()


class OwnSchedule(Schedule):
    """A class that could say anything of its parts."""


class Disguised(Schedule):
    """A class that calls itself one of the library's."""

    __module__ = Schedule.__module__


class OwnNumber(float):
    """A number that could be equal to any other one."""


class OwnDemand(Demand):
    """A problem that says that it is any other one."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = Demand.__hash__


OWN_DEMAND: Any = OwnDemand.from_matrix([[0, 4], [2, 0]], delay_s=1.0)
MASKED = np.ma.MaskedArray(np.array([[1, 0]], dtype=np.int32))
"""Right matchings, of a class that could hide some of them."""


ROWS = [
    Row(
        "an answer is of its class, not of one that is derived from it",
        PROBLEM,
        OwnSchedule(matchings=[[1, 0]], durations_s=[3.0], delay_s=1.0),
        "got OwnSchedule, expected Schedule",
    ),
    Row(
        "an answer is of its class, not of one that is derived from it",
        PROBLEM,
        once(schedule=OwnSchedule(matchings=[[1, 0]], durations_s=[3.0], delay_s=1.0)),
        "schedule: an answer is of its class",
    ),
    Row(
        "an answer is of its class, not of one that is derived from it",
        PROBLEM,
        once(schedule=Disguised(matchings=[[1, 0]], durations_s=[3.0], delay_s=1.0)),
        "schedule: an answer is of its class",
    ),
    Row(
        "an answer is of its class, not of one that is derived from it",
        PROBLEM,
        once(lower_bound=OwnNumber(4.0)),
        "lower_bound: an answer is of its class",
    ),
    Row(
        "an answer is of its class, not of one that is derived from it",
        PROBLEM,
        once(stats=FrozenMap({"slots": OwnNumber(1.0)})),
        "stats['slots']: an answer is of its class",
    ),
    Row(
        "an answer is of its class, not of one that is derived from it",
        PROBLEM,
        forge(ONCE, matchings=MASKED),
        "derived from it: got MaskedArray, expected ndarray",
    ),
    Row(
        "the solution is one of this problem",
        PROBLEM,
        forge(once(), problem=OWN_DEMAND),
        "problem: the solution is one of this problem: got False, expected True",
    ),
    Row(None, PROBLEM, once(**OPTIMAL), figures={"objective": 4.0, "lower_bound_checked": 4.0}),
    Row(None, PROBLEM, twice()),
    Row("the lower bound is not below what ports need", PROBLEM, claim(PROBLEM)),
    Row(None, PROBLEM, claim(PROBLEM, limit=om.Limit.TIME)),
    Row(None, PROBLEM, claim(PROBLEM, lower_bound=4.0)),
    Row(None, DEAD, claim(DEAD, **INFEASIBLE)),
    Row(None, DARK, claim(DARK, certificate=NO_PRICES, **INFEASIBLE)),
    Row(None, CLASH, clash(True)),
    Row(
        "the solution is one of this problem",
        PROBLEM,
        forge(once(), problem=om.Demand.from_matrix([[0, 3], [2, 0]], delay_s=1.0, planes=2)),
        "problem: the solution is one of this problem: got False, expected True",
    ),
    Row(
        "the schedule is the whole answer",
        PROBLEM,
        once(answer="more"),
        "answer: the schedule is the whole answer: got more, expected None",
    ),
    Row(
        "the answer is the whole answer",
        PLANES,
        claim(PLANES, answer=PARTED, schedule=ONCE, objective=3.0, lower_bound=3.0),
        "schedule: the answer is the whole answer: got",
    ),
    Row(
        "who has an answer says so",
        PROBLEM,
        once(status=om.Status.UNKNOWN),
        "status: who has an answer says so: got unknown, expected optimal or feasible",
    ),
    Row(
        "this bound needs no proof",
        GATHER,
        claim(GATHER, certificate=LoadProof(bound=1, cuts=()), lower_bound=0.0),
        "certificate: this bound needs no proof: got",
    ),
    Row(
        "an answer can be replayed to its end",
        CLASH,
        claim(CLASH, certificate=forge(clash(True).certificate, terminal=np.zeros(0, int))),
        "certificate.terminal: an answer can be replayed to its end: got terminal has 0 entries",
    ),
    Row(
        "an answer can be replayed to its end",
        PLANES,
        claim(PLANES, answer=forge(PARTED, schedules=(PARTED.schedules[0], FAR)), objective=3.0),
        "answer.schedules[1].matchings[0, 1]: an answer can be replayed to its end: got matchings",
    ),
    Row(
        "of an infeasible problem the bound is infinite",
        DEAD,
        claim(DEAD, **INFEASIBLE | {"lower_bound": 8.0}),
        "lower_bound: of an infeasible problem the bound is infinite: got 8.0, expected inf",
    ),
    Row("the lower bound is supported", CLASH, clash(True, certificate=None)),
    Row("the lower bound is supported", CLASH, clash(False)),
    Row(UNPROVED, CLASH, clash(False, **SEARCH), "status infeasible: from a search without a"),
    Row(
        UNPROVED,
        PROBLEM,
        twice(lower_bound=5.0, **OPTIMAL, **SEARCH),
        "lower bound 5: from a search without a certificate; 4 was checked",
    ),
    Row("the lower bound is supported", PROBLEM, twice(lower_bound=5.0)),
    Row("the lower bound is supported", PROBLEM, twice(lower_bound=5.0, stats={"bound_by": "me"})),
    Row("the lower bound is supported", CLASH, claim(CLASH, lower_bound=math.nan, **SEARCH)),
    Row(
        "the lower bound is not below what ports need",
        PROBLEM,
        twice(lower_bound=3.0),
        "lower_bound: the lower bound is not below what ports need: got 3.0, expected 4.0",
    ),
    Row("the lower bound is not below what ports need", PROBLEM, twice(lower_bound=-math.inf)),
    Row(None, PROBLEM, twice(lower_bound=-math.inf, limit=om.Limit.TIME)),
    Row(None, PROBLEM, twice(lower_bound=-math.inf, limit=om.Limit.INTERRUPTED)),
    Row(
        "the lower bound is not below what ports need",
        PROBLEM,
        twice(lower_bound=3.0, limit=om.Limit.TIME),
    ),
    Row("the objective is as recomputed", PROBLEM, twice(objective=4.0)),
    Row("the objective is as recomputed", PROBLEM, twice(objective=6.0)),
    Row("the objective is as recomputed", PROBLEM, twice(objective=5.0 * (1 + 1e-12))),
    Row("the objective is as recomputed", PROBLEM, twice(objective="5")),
    Row("the objective is as recomputed", PROBLEM, twice(objective=None)),
    Row("who has an answer says so", PROBLEM, claim(PROBLEM, objective=4.0, lower_bound=4.0)),
    Row(
        "the lower bound is not above the objective",
        PROBLEM,
        once(lower_bound=5.0, **SEARCH),
        "lower_bound: the lower bound is not above the objective: got 5.0, expected 4.0",
    ),
    Row(None, replay_to, 4.0 * (1 - 1e-13)),
    Row(
        "no answer is below what is proved",
        replay_to,
        3.9,
        "objective: no answer is below what is proved: got 3.9, expected 4.0",
    ),
    Row(
        "optimal means that the bound is reached",
        PROBLEM,
        twice(**OPTIMAL),
        "lower_bound: optimal means that the bound is reached: got 4.0, expected 5.0",
    ),
    Row(
        "statistics are as recomputed",
        PROBLEM,
        once(stats={"restarts": 7, "slots": 2}),
        "stats['slots']: statistics are as recomputed: got 2, expected 1",
    ),
    Row("statistics are as recomputed", PROBLEM, once(stats={"makespan_s": "4"})),
    Row(None, PROBLEM, once(stats={"makespan_s": 4.0 + 1e-12, "slots": 1.0, "restarts": 7})),
    Row("statistics are as recomputed", PROBLEM, once(stats={"slots": 1.0 + 1e-12})),
    Row(None, PROBLEM, once(proof="counting")),
    Row(None, PROBLEM, once(proof="certificate")),
    Row(None, PROBLEM, twice(lower_bound=4.0, proof="search")),
    Row(
        "the proof is of the kind that is stated",
        CLASH,
        clash(True, proof="counting"),
        "proof: the proof is of the kind that is stated: got counting, expected certificate",
    ),
]
