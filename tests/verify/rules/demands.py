"""Demands: slots, what they carry, planes, packets, groups, and the proofs of their bounds."""

from dataclasses import replace
from typing import Any

import numpy as np

from optmatch.problems import ConfigurationProof, CountProof
from tests.verify.rules import Row, claim, forge, om, schedule


def demand(matrix: Any, **options: Any) -> Any:
    """Return a demand on an ideal switch, in seconds, with a delay of 1 s."""
    return om.Demand.from_matrix(matrix, **{"delay_s": 1.0} | options)


def proved(problem: Any, proof: Any, **said: Any) -> Any:
    """Return a bound and its proof, without an answer; the bound is the one that is counted."""
    return claim(problem, certificate=proof, **{"lower_bound": problem.lower_bound()} | said)


def prices(duals: Any, units: int) -> ConfigurationProof:
    """Return prices of demands."""
    return ConfigurationProof(duals=duals, units=units)


def one_by_one(fabric: Any, first: tuple[int, int], other: tuple[int, int]) -> Any:
    """Return a bound of two pairs that are priced as if they were never held together: 11 s."""
    demand = np.zeros((fabric.n_ports, fabric.n_ports))
    demand[first], demand[other] = 3, 4
    problem = om.Demand(fabric, demand, delay_s=2.0)
    duals = np.zeros(demand.shape, dtype=np.int64)
    duals[first], duals[other] = 20, 18
    return proved(problem, prices(duals, 12), lower_bound=6.0)


def planes(problem: Any, *slots: tuple[Any, ...]) -> Any:
    """Return a schedule for each plane."""
    return om.PlaneSchedules(schedules=tuple(problem.schedule(*each) for each in slots))


def count(port: int, against: int) -> CountProof:
    """Return a count of what one port sends, and why another's entries take one more."""
    return CountProof(axis="source", port=port, against_axis="source", against_port=against)


NOTHING = demand([[0, 0], [0, 0]])
PAIR = demand([[0, 3], [2, 0]])
STAYING = demand([[4, 0], [0, 2]], switching="per-circuit")
APART = demand([[9, 0, 0, 0], [0, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]])
"""One port sends for long, another one has many circuits."""
COLUMN = demand([[9, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 1, 1]])
FOREVER = demand([[0, 3], [2, 0]], delay_s=0.0)
SLOW = demand([[0, 3], [2, 0]], delay_s=2.0**52, quantum_s=1.0)
SHORT = demand([[0, 3], [2, 0]], min_slot_s=2.0)
ONE = demand([[6]])
"""Prices of 7 / 6 for each second earn 7 in the 7 s that it takes."""
RAISED = demand([[2]], delay_s=2.0, min_slot_s=8.0)
ONE_TICK = om.Demand.from_matrix([[1, 0], [0, 1]], objective="matchings")
EXACT = om.Demand.from_matrix([[1, 2], [2, 1]], objective="matchings")
BOTH_WAYS = om.Demand(
    om.IdealSwitch(2, bidirectional=True),
    [[0, 6], [10, 0]],
    delay_s=0.0,
    quantum_s=1.0,
    objective="matchings",
)
"""A circuit that carries both directions lasts as long as the larger one."""
KEPT = om.Demand.from_matrix([[3]], objective="matchings", switching="per-circuit", delay_s=1.0)
"""A circuit that stays carries nothing in the delay where matchings are counted."""
WEIGHTS = om.Demand.from_matrix([[1, 2, 6], [3, 3, 3], [5, 4, 0]], objective="matchings")
TWO_GROUPS = om.Demand.from_matrix(
    [[1, 2, 4, 18], [3, 11, 6, 5], [12, 5, 7, 1], [9, 7, 8, 1]], objective="matchings"
)
"""Of the first two rows 1 + 2 = 3 and the rest agree, and nothing else."""
SHARED = om.Demand.from_matrix(
    [[1, 2, 3, 5], [1, 4, 6, 0], [4, 5, 0, 2], [5, 0, 2, 4]], objective="matchings"
)
TWO = demand([[0, 3], [2, 0]], planes=2)
INTO_ONE = demand([[3, 0], [3, 0]], packet_bytes_per_s=0.25)
FROM_ONE = demand([[3, 3], [0, 0]], packet_bytes_per_s=0.25)
THIRD = demand([[2]], packet_bytes_per_s=0.3)
LATE = demand(
    [[0, 3], [2, 0]],
    delay_s=0.0,
    objective="weighted-completion-s",
    groups=np.array([[-1, 0], [1, -1]]),
    weights=(2.0, 1.0),
    deadlines_s=(1.0, 2.0),
)
LASTING = om.Demand.from_matrix(
    [[2.0**45 * 0.1, 0.1]], om.IdealSwitch(2), delay_s=0.0, quantum_s=0.1
)
"""Seconds of 2**45 ticks are no exact multiple in float64."""
LONG = demand([[0, 2.0**40], [0, 0]])
"""So many ticks are whole to a thousandth of one."""
STUCK = om.Demand(om.Faulty(om.HexMesh(1, 1, ports=[0, 1]), stuck_bar=[2]), [[0, 1], [1, 0]])
LIT, PATH = replace(STUCK, planes=2), [[-1, -1, 0, -1, -1, -1]]
EARLY = replace(LATE, demand_bytes=np.array([[0.0, 1.0], [0.0, 0.0]]), deadlines_s=(1.0, 0.0))
"""The second group is empty, and due at once."""
EVEN = replace(LATE, weights=(), deadlines_s=())
AFTER = replace(EVEN, delay_s=1.0)
FREE = replace(LATE, weights=(0.0, 1.0), deadlines_s=(1.0, 1.0))
SMALL_MESH = om.HexMesh(1, 2, ports=[0, 2, 3, 8, 9, 12])
"""It connects 0 and 1 beside 2 and 3, not beside 3 and 5."""
SEVEN_PORTS = om.HexMesh(1, 2, ports=[0, 2, 3, 8, 9, 12, 15])
LARGER_MESH = om.HexMesh(1, 6, ports=6)
ONE_WAY = om.HexMesh(1, 2, tx=[0, 8], rx=[2, 12])
STAR = om.Demand.from_matrix(
    [[0, 3, 0, 0], [0, 0, 0, 0], [3, 0, 0, 0], [3, 0, 0, 0]],
    om.HexMesh(1, 2, ports=[0, 6, 1, 8]),
    delay_s=0.0,
    switching="per-circuit",
)
"""Three circuits at port 0, in whatever direction."""
TWO_WAYS = demand([[0, 4, 0, 0]] + [[0] * 4] * 3, fabric=om.Benes(4), switching="per-circuit")
ABOVE, BELOW = [0, -1, 0, -1, 1, -1], [1, -1, -1, 0, 0, -1]
"""Light from port 0 to port 1 of a Benes network goes either way."""
BESIDE = replace(STAR, packet_bytes_per_s=0.5, switching="all-stop")
"""Packets to port 0 take none of the time of those from there."""
OUT_OF_USE = om.Demand(
    om.Faulty(om.IdealSwitch(3), dead_ports=[2]), [[0, 2, 0], [0] * 3, [0] * 3], quantum_s=1.0
)
"""The last port is dead."""
ROWS_ALONE = om.Demand.from_matrix([[1, 3, 0], [2, 1, 1], [1, 0, 3]], objective="matchings")
"""The entries of its second column are sums of those of the first; of rows they are not."""
PLANE = TWO.schedule([[1, 0]], [3])
CROWDED = forge(PLANE, matchings=np.array([[1, 1]], dtype=np.int32))
IS_PROOF = "the certificate is a proof"


def on_routes(*states: Any) -> Any:
    """Return slots of 2 and 1 s with the same circuit, and the states of its cells."""
    return TWO_WAYS.schedule([[1, -1, -1, -1]] * 2, [2, 1], [*states])


def third(**said: Any) -> Any:
    """Return an answer that ends between two ticks: it is known up to rounding."""
    known = {"schedule": THIRD.schedule([[0]], [1]), "objective": 10 / 3 * (1 + 1e-12)}
    return claim(THIRD, **{"lower_bound": THIRD.lower_bound()} | known | said)


def late(**said: Any) -> Any:
    """Return the best answer of two groups, of which the first is late."""
    known = {"schedule": LATE.schedule([[1, 0]], [3]), "lower_bound": LATE.lower_bound()}
    return claim(LATE, **known | said)


FAR = om.Demand(
    om.IdealSwitch(2, loss_db=[[0, 9], [0, 0]], budget_db=1.0),
    np.array([[0.0, 4.0], [1.0, 0.0]]),
    delay_s=1.0,
    packet_bytes_per_s=0.5,
)
"""From port 0 to port 1 light loses too much, so that packets carry the 4 bytes."""
ROWS = [
    Row(
        None,
        FAR,
        schedule([[-1, 0]], [1.0], delay_s=1.0),
        figures={"packet_s": 8.0, "objective": 8.0},
    ),
    Row(None, OUT_OF_USE, schedule([[1, -1, -1], [1, -1, -1]])),
    Row(
        "a dead port takes part in no circuit",
        OUT_OF_USE,
        schedule([[1, -1, -1], [1, 2, -1]]),
        "matchings[1, 1]: a dead port takes part in no circuit: got 2",
        stops=True,
        told=1,
    ),
    Row(
        "a dead port takes part in no circuit",
        OUT_OF_USE,
        schedule([[1, -1, -1], [1, -1, 0]]),
        "matchings[1, 2]: a dead port takes part in no circuit: got 0",
        stops=True,
        told=1,
    ),
    Row(None, NOTHING, NOTHING.schedule([], []), figures={"makespan_s": 0.0, "slots": 0}),
    Row(
        "the lower bound is not below what ports need",
        APART,
        claim(APART, lower_bound=11.0),
        "got 11.0, expected 12.0",
    ),
    Row(None, COLUMN, claim(COLUMN, lower_bound=13.0), figures={"lower_bound_recomputed": 13.0}),
    # slots
    Row(None, PAIR, PAIR.schedule([[1, 0]], [3]), figures={"slots": 1, "makespan_s": 4.0}),
    Row(
        "a slot lasts a whole number of ticks",
        PAIR,
        schedule([[1, 0]], [3.5], delay_s=1.0),
        "durations_s[0]: a slot lasts a whole number of ticks: got 3.5, expected a multiple of 1",
    ),
    Row("a slot lasts a whole number of ticks", PAIR, schedule([[1, 0]], [4 - 2e-9], delay_s=1.0)),
    Row("a slot lasts a whole number of ticks", PAIR, schedule([[1, 0]], [3 + 5e-7], delay_s=1.0)),
    Row(None, PAIR, schedule([[1, 0]], [3 + 5e-10], delay_s=1.0)),
    Row(
        "a slot lasts a whole number of ticks",
        PAIR,
        schedule([[1, 0]] * 2, [3.0, 0.4], delay_s=1.0),
        "durations_s[1]",
        figures={"makespan_s": 5.0},
    ),
    Row(
        "a slot lasts a whole number of ticks",
        PAIR,
        forge(PAIR.schedule([[1, 0]] * 2, [3, 1]), durations_s=np.array([3.0, np.inf])),
        "durations_s[1]",
    ),
    Row(None, LONG, schedule([[1, -1]], [2.0**40 + 0.75 * 2.0**-10], delay_s=1.0)),
    Row(
        "a slot lasts a whole number of ticks",
        LONG,
        schedule([[1, -1]], [2.0**40 + 1.25 * 2.0**-10], delay_s=1.0),
    ),
    Row(
        "no slot is shorter than allowed",
        SHORT,
        SHORT.schedule([[1, 0], [1, 0]], [2, 1]),
        "durations_s[1]: no slot is shorter than allowed: got 1.0, expected >= 2 s",
    ),
    Row(
        "a slot lasts a whole number of ticks",
        PAIR,
        schedule([[1, 0]] * 2, [3.0, 2.0**53], delay_s=1.0),
        "durations_s[1]: a slot lasts a whole number of ticks: got 9007199254740992.0",
    ),
    Row(
        "no slot is shorter than allowed",
        PAIR,
        forge(PAIR.schedule([[1, 0]] * 2, [3, 1]), durations_s=np.array([3.0, 0.0])),
        "durations_s[1]: no slot is shorter than allowed: got 0.0, expected >= 1 s",
    ),
    Row(None, SHORT, SHORT.schedule([[1, 0], [1, 0]], [2, 2])),
    Row(
        "the delay is the problem's",
        PAIR,
        schedule([[1, 0]], [3.0], delay_s=0.5),
        "delay_s: the delay is the problem's: got 0.5, expected 1.0",
    ),
    Row(
        "the switching is the problem's",
        PAIR,
        schedule([[1, 0]], [3.0], delay_s=1.0, switching="per-circuit"),
    ),
    # what is served
    Row(
        "all demand is served",
        PAIR,
        PAIR.schedule([[1, 0]], [2]),
        "from port 0 to port 1: all demand is served: got 2 s "
        "by circuits in slots [0], expected 3 s",
    ),
    Row("all demand is served", PAIR, PAIR.schedule([[1, -1]], [3]), "from port 1 to port 0"),
    Row(None, PAIR, PAIR.schedule([[1, -1], [-1, 0]], [3, 2]), figures={"objective": 7.0}),
    Row(
        None,
        STAYING,
        STAYING.schedule([[0, -1], [0, 1]], [1, 2]),
        figures={"objective": 5.0, "circuit_s": 6.0},
    ),
    Row(  # only the circuit that stays goes on in the delay
        "all demand is served",
        STAYING,
        STAYING.schedule([[0, -1], [0, 1]], [2, 1]),
        "from port 1 to port 1: all demand is served: got 1 s "
        "by circuits in slots [1], expected 2 s",
    ),
    Row(
        "all demand is served",
        STAYING,
        STAYING.schedule([[1, 0], [0, 1]], [1, 3]),
        "from port 0 to port 0: all demand is served: got 3 s "
        "by circuits in slots [1], expected 4 s",
    ),
    Row(
        "all demand is served",
        replace(STAYING, switching="all-stop"),
        replace(STAYING, switching="all-stop").schedule([[0, -1], [0, 1]], [1, 2]),
    ),
    # through the delay a circuit goes on whose route stays, whatever other cells do
    Row(None, TWO_WAYS, on_routes(ABOVE, [0, 1, 0, -1, 1, 0]), figures={"circuit_s": 4.0}),
    Row(
        "all demand is served",
        TWO_WAYS,
        on_routes(ABOVE, BELOW),
        "from port 0 to port 1: all demand is served: got 3 s by circuits in slots [0 1],"
        " expected 4 s",
    ),
    Row(None, EXACT, EXACT.schedule([[0, 1], [1, 0]], [1, 2]), figures={"objective": 2.0}),
    Row(None, KEPT, KEPT.schedule([[0], [0]], [2, 1]), figures={"objective": 2.0}),
    Row(
        "the circuits add up to the demand",
        EXACT,
        EXACT.schedule([[0, 1], [1, 0]], [2, 2]),
        "from port 0 to port 0: the circuits add up to the demand: got 2 s "
        "by circuits in slots [0]",
    ),
    Row(None, BOTH_WAYS, BOTH_WAYS.schedule([[1, 0]], [10]), figures={"objective": 1.0}),
    Row(
        "the circuits add up to the demand",
        BOTH_WAYS,
        BOTH_WAYS.schedule([[1, 0]], [8]),
        "from port 0 to port 1: the circuits add up to the demand: got 8 s "
        "by circuits in slots [0],"
        " expected 10 s",
    ),
    Row(
        "the circuits add up to the demand",
        ONE_TICK,
        ONE_TICK.schedule([[0, 1], [1, -1]], [1, 1]),
        "from port 0 to port 1",
    ),
    Row(None, LASTING, LASTING.schedule([[0, -1], [1, -1]], [LASTING.ticks[0, 0], 1])),
    Row(
        "a stuck cell is stated as it is, or free",
        STUCK,
        STUCK.schedule([[1, 0]], [1], [[-1, -1, 1, -1, -1, -1]]),
        "cell_states[0, 2]: a stuck cell is stated as it is, or free: got 1, expected 0",
    ),
    # planes
    Row(
        None,
        TWO,
        planes(TWO, ([[1, 0]], [2]), ([[1, -1]], [1])),
        figures={"objective": 3.0, "slots": 2},
    ),
    Row(
        "there is a schedule for each plane",
        TWO,
        planes(TWO, ([[1, 0]], [3])),
        "schedules: there is a schedule for each plane: got 1, expected 2",
    ),
    Row(
        "the delay is the problem's",
        TWO,
        om.PlaneSchedules(
            schedules=(TWO.schedule([[1, 0]], [2]), schedule([[1, -1]], [1.0], delay_s=0.5))
        ),
        "plane 1: delay_s: the delay is the problem's: got 0.5, expected 1.0",
    ),
    Row(
        "a port is the destination of one circuit",
        TWO,
        om.PlaneSchedules(schedules=(PLANE, CROWDED)),
        "plane 1: slot 0, destination 1: a port is the destination of one circuit",
        stops=True,
    ),
    Row(
        "a port is the destination of one circuit",
        TWO,
        claim(
            TWO,
            answer=om.PlaneSchedules(schedules=(PLANE, CROWDED)),
            objective=4.0,
            lower_bound=TWO.lower_bound(),
        ),
        stops=True,
    ),
    Row(
        None,
        LIT,
        planes(LIT, ([[1, 0]], [1], PATH), ([[-1, -1]], [1], [[-1] * 6])),
        figures={"cells_used_max": 1},
    ),
    Row(
        "the answer is a schedule for each plane",
        TWO,
        claim(TWO, answer=PAIR.schedule([[1, 0]], [3]), objective=4.0, lower_bound=3.0),
        "answer: the answer is a schedule for each plane: got Schedule, expected PlaneSchedules",
        stops=True,
    ),
    # packets: what ports send and receive there is their own
    Row(
        None,
        INTO_ONE,
        INTO_ONE.schedule([[0, -1], [-1, 0]], [2, 2]),
        figures={"packet_s": 8.0, "objective": 8.0, "demand_s": 6.0, "circuit_s": 4.0},
    ),
    Row(
        None,
        FROM_ONE,
        FROM_ONE.schedule([[0, -1], [1, -1]], [2, 2]),
        figures={"packet_s": 8.0, "objective": 8.0},
    ),
    Row(
        "the objective is as recomputed",
        INTO_ONE,
        claim(
            INTO_ONE,
            schedule=INTO_ONE.schedule([[0, -1], [-1, 0]], [2, 2]),
            objective=4.0,
            lower_bound=INTO_ONE.lower_bound(),
            limit=om.Limit.TIME,
        ),
    ),
    Row(
        None,
        INTO_ONE,
        INTO_ONE.schedule([[0, -1], [-1, 0]], [3, 2]),
        figures={"packet_s": 4.0, "objective": 7.0},
    ),
    Row(None, THIRD, third()),
    Row("the objective is as recomputed", THIRD, third(objective=10 / 3 * (1 + 1e-8))),
    # groups: the first ends at 3 s, 2 s late at the price of 2 a second, the other at 2 s
    Row(
        None,
        LATE,
        LATE.schedule([[1, 0]], [3]),
        figures={"objective": 4.0, "groups_late": 1, "completion_s": 3.0},
    ),
    Row(None, LATE, LATE.schedule([[1, 0]] * 2, [1, 2]), figures={"objective": 4.0}),
    Row(None, EARLY, EARLY.schedule([[1, -1]], [1]), figures={"objective": 0.0, "groups_late": 0}),
    Row(
        "all demand is served",
        LATE,
        LATE.schedule([[1, 0]], [2]),
        "from port 0 to port 1",
        figures={"objective": np.inf},
    ),
    Row(None, AFTER, AFTER.schedule([[1, 0]] * 2, [3, 3]), figures={"objective": 7.0}),
    Row(None, EVEN, EVEN.schedule([[1, 0]], [3]), figures={"objective": 5.0}),
    Row(None, EVEN, EVEN.schedule([[1, 0]] * 2, [3, 3]), figures={"objective": 5.0}),
    Row(
        "all demand is served",
        LATE,
        LATE.schedule([[-1, 0]], [3]),
        "from port 0 to port 1",
        figures={"objective": np.inf},
    ),
    Row(None, LATE, late(objective=4.0 * (1 + 1e-12))),
    Row("the objective is as recomputed", LATE, late(objective=4.0 * (1 + 1e-8))),
    Row("all demand is served", LATE, LATE.schedule([[1, -1]], [3]), "from port 1 to port 0"),
    Row(  # what weighs nothing costs nothing, even if it never ends
        "all demand is served",
        FREE,
        FREE.schedule([[-1, 0]], [3]),
        "from port 0 to port 1",
        figures={"objective": 1.0, "groups_late": 2, "completion_s": np.inf},
    ),
    # lines
    Row(None, PAIR, claim(PAIR, lower_bound=4.0), figures={"lower_bound_checked": 4.0}),
    Row(IS_PROOF, EXACT, proved(EXACT, count(2, 0)), "names port 2 of 2"),
    Row(IS_PROOF, PAIR, proved(PAIR, "trust me"), "a str, which is no proof about a demand"),
    Row(IS_PROOF, LATE, proved(LATE, count(0, 1)), "no proof is about groups"),
    Row(None, STAR, claim(STAR, lower_bound=9.0), figures={"lower_bound_recomputed": 9.0}),
    Row(None, BESIDE, claim(BESIDE, lower_bound=4.0), figures={"lower_bound_recomputed": 4.0}),
    # prices
    Row(None, ONE, proved(ONE, prices([[7]], 6)), figures={"lower_bound_checked": 7.0}),
    Row(
        IS_PROOF,
        ONE,
        proved(ONE, prices([[6]], 5)),
        "a slot of 6 ticks earns more than it takes",
    ),
    Row(  # what is too short for a slot is priced as long as the shortest
        IS_PROOF,
        RAISED,
        proved(RAISED, prices([[6]], 1)),
        "a slot of 4 ticks earns more than it takes",
    ),
    Row(None, RAISED, proved(RAISED, prices([[5]], 1)), figures={"lower_bound_checked": 10.0}),
    Row(
        IS_PROOF,
        replace(ONE, switching="per-circuit"),
        proved(replace(ONE, switching="per-circuit"), prices([[7]], 6)),
        "prices bound the completion time of slots that begin together",
    ),
    Row(IS_PROOF, EXACT, proved(EXACT, prices([[0, 0], [0, 0]], 1)), "begin together"),
    Row(
        IS_PROOF,
        replace(ONE, planes=2),
        proved(replace(ONE, planes=2), prices([[7]], 6)),
        "prices bound what one plane carries alone",
    ),
    Row(
        IS_PROOF,
        replace(ONE, packet_bytes_per_s=0.5),
        proved(replace(ONE, packet_bytes_per_s=0.5), prices([[7]], 6)),
        "prices bound what one plane carries alone",
    ),
    Row(IS_PROOF, PAIR, proved(PAIR, prices([[1]], 1)), "prices of shape (1, 1) for 2 ports"),
    Row(
        IS_PROOF,
        PAIR,
        proved(PAIR, prices([[0, 2**60], [0, 0]], 1)),
        "prices times ticks overflow",
    ),
    Row(IS_PROOF, PAIR, proved(PAIR, prices([[0, 1], [0, 0]], 2**60)), "overflow"),
    *(
        Row(*row)
        for mesh, first, other, rule, told in (
            (SMALL_MESH, (0, 1), (3, 5), None, ""),
            (SMALL_MESH, (3, 5), (0, 1), None, ""),
            (SMALL_MESH, (0, 1), (2, 3), IS_PROOF, "a slot of 1 ticks earns more"),
            (SEVEN_PORTS, (0, 1), (3, 5), IS_PROOF, "a slot of 1 ticks earns more"),
            (LARGER_MESH, (0, 5), (1, 4), IS_PROOF, "a slot of 1 ticks earns more"),
            (ONE_WAY, (0, 1), (1, 0), IS_PROOF, "a slot of 1 ticks earns more"),
        )
        for claimed in [one_by_one(mesh, first, other)]
        for row in [(rule, claimed.problem, claimed, told)]
    ),
    # counts
    Row(
        None,
        WEIGHTS,
        proved(WEIGHTS, count(0, 1), lower_bound=4.0),
        figures={"lower_bound_recomputed": 3.0, "lower_bound_checked": 4.0},
    ),
    Row(  # both have a 1, and 2 + 3 + 5 = 4 + 6
        None,
        SHARED,
        proved(SHARED, count(0, 1), lower_bound=5.0),
        figures={"lower_bound_checked": 5.0},
    ),
    Row(None, ROWS_ALONE, proved(ROWS_ALONE, count(0, 1)), figures={"lower_bound_checked": 3.0}),
    Row(
        "the lower bound is supported",
        WEIGHTS,
        proved(WEIGHTS, count(0, 0), lower_bound=4.0),
    ),
    Row(None, WEIGHTS, proved(WEIGHTS, count(0, 0)), figures={"lower_bound_checked": 3.0}),
    Row(None, FOREVER, FOREVER.schedule([[-1, -1], [1, 0]], [2.0**53 - 10, 10])),
    Row(
        "slots can be added up",
        SLOW,
        SLOW.schedule([[1, 0]] * 1024, [3.0] + [1.0] * 1023),  # delays of 2**62 ticks
        stops=True,
    ),
    Row(  # 2**62 ticks with the last slot, one less without its last tick
        "slots can be added up",
        FOREVER,
        FOREVER.schedule([[-1, -1]] * 512 + [[1, 0]], [2.0**53 - 1] * 512 + [512]),
        "durations_s: slots can be added up: got",
        stops=True,
    ),
    Row(None, FOREVER, FOREVER.schedule([[-1, -1]] * 512 + [[1, 0]], [2.0**53 - 1] * 512 + [511])),
    Row(
        "slots can be added up",
        FOREVER,
        FOREVER.schedule([[-1, -1]] * 2048 + [[-1, -1], [1, 0]], [2.0**53 - 1] * 2048 + [2048, 3]),
        "durations_s: slots can be added up: got",
        stops=True,
    ),
    Row(  # 2**61 ticks on one of two planes
        "slots can be added up",
        replace(FOREVER, planes=2),
        om.PlaneSchedules(
            schedules=(
                FOREVER.schedule([[-1, -1]] * 256 + [[1, 0]], [2.0**53 - 1] * 256 + [256]),
                FOREVER.schedule([[1, 0]], [3]),
            )
        ),
        "plane 0: durations_s: slots can be added up",
        stops=True,
    ),
    Row(
        None,
        TWO_GROUPS,
        proved(TWO_GROUPS, count(0, 1), lower_bound=6.0),
        figures={"lower_bound_recomputed": 4.0, "lower_bound_checked": 6.0},
    ),
    Row(IS_PROOF, PAIR, proved(PAIR, count(0, 1)), "a count bounds the number of matchings"),
]
