"""Failures: spares that take over, new routes, steps in which nobody else goes dark, proofs."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

import optmatch as om
from optmatch.fabrics.netlists.circuits import CellCircuit, CellPart
from optmatch.problems import BlockProof, CutProof, LoadProof, RoutingProof, Transition
from tests.verify.rules import Row, claim, schedule

DROP, SET, RAISE = 0, 1, 2
RING = om.RackFabric((1, 1, 4), (1, 1, 1), fibres=1)
"""Fibres 0 .. 7: 0 to 1, 0 to 3, 1 to 0, 1 to 2, 2 to 1, 2 to 3, 3 to 0, 3 to 2."""
TWO_EACH = om.RackFabric((1, 1, 4), (1, 1, 1), fibres=2)
"""Twice the fibres: 0 and 1 from 0 to 1, and so on."""
CELLS = om.RackFabric((1, 1, 2), (1, 1, 1), fibres=1, ports_per_chip=2, interposer=om.Benes(4))
"""Ports 0 and 1 of chip 0, 2 and 3 of chip 1; fibres 0 and 1 from chip 0 to chip 1."""
SWITCH = om.SpankeBenes(3)
"""Three cells; what crosses cell 0 or cell 1 goes to port 2."""


_HALF = 0.5**0.5
_COUPLER = [[[_HALF, 0.0], [0.0, _HALF]], [[0.0, _HALF], [_HALF, 0.0]]]
ALWAYS_CROSS = om.Netlist(
    ["n", "m"],
    {"n,b1": "m,a2"},
    [
        ("w1", "m,a1"),
        ("w2", "n,a1"),
        ("e1", "m,b1"),
        ("e2", "m,b2"),
        ("w3", "n,a2"),
        ("e3", "n,b2"),
    ],
    circuits=[
        None,
        CellCircuit(
            parts=[
                CellPart(
                    name=name,
                    component="c",
                    kind="coupler",
                    pins=("a1", "a2", "b1", "b2"),
                    matrix=_COUPLER,
                )
                for name in ("c1", "c2")
            ]
            + [CellPart(name="h", component="h", kind="shifter", pins=("o1", "", "o2", ""))],
            joins=[("c1,b1", "h,o1"), ("h,o2", "c2,a1"), ("c1,b2", "c2,a2")],
            terminals=("c1,a1", "c1,a2", "c2,b1", "c2,b2"),
            arms=(["h"], []),
            difference_rad=(0.0, 0.0),
        ),
    ],
)
"""Cell m, number 1, crosses with the phase of bar as well; ports 0, 2 and 3 are its own."""


def hold(fabric: Any, circuits: Any, states: Any, **fields: Any) -> om.Reroute:
    """Return circuits that cells hold, and a failure."""
    return om.Reroute(fabric, circuits, cell_states=states, **fields)


FIRST_OUT_OF_REACH = hold(
    om.HexMesh(1, 1, ports=[0, 1, 2, 3]),
    [[0, 1]],
    [-1, -1, 0, -1, -1, -1],
    spares=(2, 3),
    failed_ports=(1,),
)
"""Light from port 0 comes to the second spare, not to the first."""


def ask(circuits: Any, routes: Any, rack: Any = RING, **fields: Any) -> om.Reroute:
    """Return a rack whose chip 1 has failed, with chip 2 as its spare."""
    given: Any = {"spares": (2,), "failed_chips": (1,)} | fields
    return om.Reroute(rack, circuits, routes=routes, **given)


def answer(**fields: Any) -> Transition:
    """Return the right answer: two circuits of chip 1 go to chip 2, by way of server 3."""
    right: dict[str, Any] = {
        "moves": [[1, 2]],
        "changed": [0, 1],
        "circuits": [[0, 12], [12, 0]],
        "routes": ((1, 7), (5, 6)),
        "steps": [[RAISE, 0, -1], [RAISE, 1, -1]],
    }
    return Transition(**right | fields)


POD = om.RackFabric((1, 1, 2), (1, 1, 1), fibres=1, racks=3, joined=True, through=False)
"""Three racks of two chips: 0 and 1, 2 and 3, 4 and 5."""
CUBES = om.Reroute(POD, [[0, 6]], routes=((0,),), spares=(2, 3, 4, 5), failed_chips=(0,))
"""A circuit from chip 0, which has failed, to chip 1."""
CUBE_FIBRES = POD.n_fibres // 3


def over(*nodes: int, pod: om.RackFabric = POD) -> tuple[int, ...]:
    """Return the last fibre of each edge from node to node."""
    edges = [pod.edges.tolist().index([a, b]) for a, b in pairwise(nodes)]
    return tuple(int(np.flatnonzero(pod.edge_of_fibre == edge)[-1]) for edge in edges)


LINES = om.RackFabric((1, 1, 4), (1, 1, 1), fibres=2, racks=2, joined=True)
"""Two racks of four chips in a row; light passes chips, and switches 8 to 11 at the faces."""
PASSED = om.Reroute(LINES, [[0, 6]], routes=((0,),), failed_fibres=(0,))
"""A circuit from chip 0 to chip 1, over the first of two fibres, which has failed."""
BETWEEN = om.Reroute(
    POD,
    [[0, 18], [6, 12]],
    routes=(over(0, 10, 3), over(1, 10, 2)),
    spares=(4, 5),
    failed_chips=(0,),
)
"""Circuits from both chips of a rack, which goes as a whole, to those of another."""
FACES, BACK = over(2, 10, 5), over(5, 7, 3)
"""From chip 2 to chip 5 over the switch of axis z, on to chip 3 over one of axis x."""


def moved(**fields: Any) -> Transition:
    """Return the right answer: rack 1 takes over from rack 0."""
    right: dict[str, Any] = {
        "moves": [[0, 2], [1, 3]],
        "changed": [0],
        "circuits": [[12, 18]],
        "routes": ((CUBE_FIBRES,),),
        "steps": [[RAISE, 0, -1]],
    }
    return Transition(**right | fields)


def switched(**fields: Any) -> Transition:
    """Return the right answer of a switch: port 2 takes over from port 1."""
    right: dict[str, Any] = {
        "moves": [[1, 2]],
        "changed": [0],
        "circuits": [[0, 2]],
        "routes": ((0, 4),),
        "steps": [[SET, 0, 1], [SET, 1, 1], [RAISE, 0, -1]],
    }
    return Transition(**right | fields)


def only(*steps: Any) -> Transition:
    """Return steps that change no circuit."""
    return switched(moves=[], changed=[], circuits=[], routes=(), steps=steps)


def rerouted(*steps: Any, route: Any) -> Transition:
    """Return the one circuit of the rack with cells on another route."""
    return switched(moves=[], routes=(route,), steps=steps)


def cells(**fields: Any) -> om.Reroute:
    """Return a circuit from chip 0 to chip 1, over fibre 0."""
    states = [0, -1, 1, -1, -1, 0, -1, 0, 1, -1, 0, -1]
    return hold(CELLS, [[0, 2]], states, **fields)


TANGLED = om.Reroute(
    om.HexMesh(3, 3, ports=4),
    [[0, 3]],
    cell_states=[int(state) for state in "10011100110110011110001001010100100110"],
)
"""A circuit whose light passes some cells twice: it would arrive with cell 18 in bar or cross."""


def shown(problem: om.Reroute, proof: Any) -> Row:
    """Return a row of a proof that nothing helps."""
    status: Any = {"status": om.Status.INFEASIBLE, "limit": None, "lower_bound": math.inf}
    figures = {"lower_bound_checked": math.inf}
    return Row(None, problem, claim(problem, certificate=proof, **status), figures=figures)


def unproved(problem: om.Reroute, proof: Any, says: str) -> Row:
    """Return a row of what is no proof."""
    return Row("the certificate is a proof", problem, claim(problem, certificate=proof), says)


def stopped(rule: str, problem: om.Reroute, transition: Any, says: str = "") -> Row:
    """Return a row after whose rule nothing else can be checked."""
    return Row(rule, problem, transition, says, stops=True)


def said(length: int, **fields: Any) -> Any:
    """Return a solution with an answer that is not right, and what it would cost."""
    return claim(LOST, answer=answer(**fields), objective=(0, 2, 0, 720, length))


def cut(*servers: int) -> CutProof:
    """Return servers that too few fibres leave."""
    return CutProof(servers=servers)  # type: ignore[arg-type]


def block(chips: Any, links: Any, *, leaving: bool = True) -> BlockProof:
    """Return links around chips that too many circuits would need."""
    return BlockProof(chips=chips, links=links, leaving=leaving)


LOST = ask([[0, 6], [6, 0]], [[0], [2]])
OTHER = ask([[0, 6], [6, 0], [18, 2]], [[0], [2], [6]])
"""The third circuit, from chip 3 to chip 0, has the fibre that the second would take."""
BESIDE = ask([[0, 6], [6, 0], [18, 2]], [[0], [4], [12]], TWO_EACH)
WIDE = answer(routes=((2, 14), (10, 13)))
BOTH = ask([[0, 6], [1, 18]], [[0], [2]], TWO_EACH, failed_chips=(1, 3))
PORT = hold(SWITCH, [[0, 1]], [0, -1, 1], spares=(2,), failed_ports=(1,))
HELD = hold(SWITCH, [[0, 0]], [0, -1, 0], dead_cells=(1,))
STUCK = replace(HELD, dead_cells=(), stuck_bar=(1,))
LOSSY = om.Reroute(
    om.IdealSwitch(4, loss_db=[[0, 1, 1, 1], [1, 0, 1, 1], [3, 1, 0, 1], [1, 1, 1, 0]],
                   bidirectional=True),
    [[0, 1]],
    spares=(2,),
    failed_ports=(1,),
)  # fmt: skip
"""Light from port 2 to port 0 loses 3 dB, and 1 dB the other way."""
IDEAL = om.Reroute(om.IdealSwitch(4), [[0, 1]], spares=(2,), failed_ports=(1,))
NO_SPARE = replace(LOST, failed_ports=tuple(range(12, 18)))
ALL_BUT_6 = tuple(range(7, 12))
OLD, NEW = (0, 8, 20, 28, 33, 40), (0, 8, 20, 29, 33, 40)
CUT_OFF = replace(LOST, failed_fibres=(0, 1))
DEAD = replace(PORT, dead_cells=(0,))
ONE_WAY = hold(om.Benes(4), [[2, 1]], [-1, 0, 1, -1, 1, -1], dead_cells=(1,))
"""Light from port 2 enters a dead cell; from port 1 to port 2 there would be a way."""
BOTH_WAYS = om.RackFabric(
    (1, 1, 2),
    (1, 1, 1),
    fibres=1,
    ports_per_chip=2,
    wrap=False,
    interposer=om.SquareMesh(2, 2, tx=[0, 4, 8], rx=[2, 6, 10]),
)
"""Fibre 0 leads from chip 0 to chip 1, fibre 1 back; cells lead light out of inputs, too."""
_BACKWARDS = np.full(BOTH_WAYS.n_cells, -1)
_BACKWARDS[[1, 4, 6, 10, 12, 13, 14, 15, 16, 17]] = [0, 1, 1, 1, 1, 1, 0, 0, 0, 1]
BACKWARDS = hold(BOTH_WAYS, [[1, 3]], _BACKWARDS, failed_fibres=(1,))
"""A circuit from chip 0 to chip 1 that passes fibre 1 against its direction."""
ONE_PORT = hold(
    om.RackFabric((1, 1, 2), (1, 1, 1), fibres=1, ports_per_chip=1, wrap=False,
                  interposer=om.Benes(2)),
    [[0, 0], [1, 1]],
    [0, 1],
    dead_cells=(0,),
)  # fmt: skip
"""Each chip has one port, and one cell: that of the first chip is dead."""
MANY = hold(
    om.SpankeBenes(32),
    [[k, k] for k in range(8)],
    np.zeros(om.SpankeBenes(32).n_cells),
    spares=tuple(range(8, 32)),
    failed_ports=tuple(range(8)),
)
"""Far too many handovers to list them."""
PARTS = om.RackFabric((1, 1, 2), (1, 1, 1), fibres=1, ports_per_chip=2, wrap=False,
    interposer=replace(ALWAYS_CROSS, tx=("w1", "w2", "w3"), rx=("e1", "e2", "e3")))  # fmt: skip
"""Cell 1 of both servers crosses with the phase of bar as well."""
NOTHING = Transition(moves=[], changed=[], circuits=[], routes=(), steps=[])


def free(links: int) -> RoutingProof:
    """Return prices of nothing: what needs no price has no way at all."""
    return RoutingProof.of_prices(np.zeros(links, dtype=np.int64), infeasible=True)


ROWS = [
    Row(
        "a cell has the state that it is in, by its parts",
        hold(ALWAYS_CROSS, [[0, 3]], [-1, 1], spares=(2,), failed_ports=(3,)),
        Transition(
            moves=[[3, 2]],
            changed=[0],
            circuits=[[0, 2]],
            routes=((4,),),
            steps=[[SET, 1, 0], [RAISE, 0, -1]],
        ),
        "steps[1], cell m: a cell has the state that it is in, by its parts: got power",
        stops=True,
    ),
    Row(
        "a cell has the state that it is in, by its parts",
        hold(PARTS, [[0, 1]], [-1, 1, -1, -1], failed_ports=(1,)),
        Transition(
            moves=[],
            changed=[0],
            circuits=[[0, 0]],
            routes=((4,),),
            steps=[[SET, 1, 0], [RAISE, 0, -1]],
        ),
        "steps[1], cell",
        stops=True,
    ),
    Row(None, LOST, answer(), figures={"objective": (0, 2, 0, 720, 4), "dark_steps": 0}),
    Row(None, LOSSY, switched(routes=((),), steps=[[RAISE, 0, -1]]),
        figures={"objective": (0, 1, 0, 300, 0)}),
    Row(None, FIRST_OUT_OF_REACH, claim(FIRST_OUT_OF_REACH, lower_bound=(0, 1, 0, 96, 2)),
        figures={"lower_bound_checked": (0, 1, 0, 96, 2)}),
    Row(None, PORT, switched(), figures={"objective": (0, 1, 2, 96, 2), "cells_set": 2}),
    Row("at the end every circuit is up", BACKWARDS, NOTHING, stops=True),
    Row(None, replace(BACKWARDS, failed_fibres=(0,)), NOTHING),
    Row(
        "the answer is a transition",
        LOST,
        schedule([[1, 0]]),
        "answer: the answer is a transition: got Schedule, expected Transition",
    ),
    Row(
        "the answer is a transition",
        LOST,
        claim(LOST, answer=schedule([[1, 0]]), objective=(0, 2, 0, 720, 4)),
        stops=True,
    ),
    # who is hit, and what that costs at least
    Row(
        None,
        ask([[0, 6]], [[0]], failed_chips=(), failed_ports=(6,)),
        answer(
            moves=[], changed=[0], circuits=[[0, 7]], routes=((0,),), steps=[[RAISE, 0, -1]]
        ),
        figures={"lower_bound_recomputed": (0, 1, 0, 360, 1)},
    ),
    Row(
        None,
        ask([[6, 0], [7, 18]], [[4], [6, 10]], TWO_EACH, failed_chips=(), failed_ports=ALL_BUT_6),
        answer(circuits=[[12, 0], [13, 18]], routes=((10, 12), (11,))),
        figures={"lower_bound_recomputed": (0, 2, 0, 720, 3)},
    ),
    Row(
        None,
        NO_SPARE,
        claim(NO_SPARE),
        figures={"lower_bound_recomputed": math.inf},
    ),
    # racks that are replaced as a whole
    Row(None, CUBES, moved(), figures={"objective": (0, 1, 0, 360, 1)}),
    Row(None, CUBES, moved(), figures={"lower_bound_recomputed": (0, 1, 0, 360, 1)}),
    Row(None, replace(CUBES, failed_chips=(), failed_ports=(6,)), moved()),
    Row(None, replace(CUBES, failed_chips=(), failed_fibres=(0,)), moved()),
    Row(None, replace(CUBES, failed_chips=(0, 5)), moved()),
    Row(
        None,
        BETWEEN,
        moved(
            moves=[[0, 4], [1, 5]],
            changed=[0, 1],
            circuits=[[24, 18], [30, 12]],
            routes=(over(4, 10, 3), over(5, 10, 2)),
            steps=[[RAISE, 0, -1], [RAISE, 1, -1]],
        ),
        figures={"lower_bound_recomputed": (0, 2, 0, 720, 4)},
    ),
    Row(  # over a switch whose number is that of the servers
        None,
        om.Reroute(POD, [[0, 12]], routes=(over(0, 6, 2),), spares=(4, 5), failed_chips=(0,)),
        moved(moves=[[0, 4], [1, 5]], circuits=[[24, 12]], routes=(over(4, 6, 2),)),
    ),
    stopped(
        "a circuit keeps its route while it is up",
        TANGLED,
        only([SET, 18, 0]),
        "steps[0]: a circuit keeps its route while it is up: got circuit 0: another one",
    ),
    stopped("a live spare takes over", replace(CUBES, failed_ports=(23,)), moved()),
    stopped("a live spare takes over", replace(CUBES, failed_ports=(13,)), moved()),
    stopped("a live spare takes over", replace(CUBES, failed_fibres=(CUBE_FIBRES + 1,)), moved()),
    stopped("a live spare takes over", replace(CUBES, spares=(3, 4, 5)), moved()),
    stopped(
        "racks move as a whole, chip by chip",
        CUBES,
        moved(moves=[[0, 2], [1, 5]], circuits=[[12, 30]], routes=(FACES,)),
        "moves[1, 1]: racks move as a whole, chip by chip: got 5, expected 3",
    ),
    stopped("no light passes a chip", CUBES, moved(routes=((*FACES, *BACK),))),
    *(
        Row(rule, PASSED, Transition(moves=[], changed=[0], circuits=[[0, 6]],
            routes=(over(*nodes, pod=LINES),), steps=[[RAISE, 0, -1]]), stops=rule is not None)
        for rule, nodes in (("light does not turn back", (0, 8, 0, 1)),
                            ("light does not turn back", (0, 1, 2, 1)),
                            (None, (0, 8, 4, 5, 9, 1)), (None, (0, 1)))
    ),
    # what is lost
    Row(None, replace(LOST, failed_chips=(1, 3)), answer()),
    # what is spoken of
    stopped("fibres exist", LOST, said(4, routes=((1, 8), (5, 6)))),
    stopped("a route ends at its server", LOST, said(3, routes=((1, 7), (5,)))),
    stopped(
        "at the end every circuit is up", LOST, said(4, steps=[*answer().steps, [DROP, 1, -1]])
    ),
    stopped(
        "changed circuits exist, and ascend",
        LOST,
        answer(changed=[1, 0], circuits=[[12, 0], [0, 12]], routes=((5, 6), (1, 7))),
    ),
    stopped("changed circuits exist, and ascend", LOST, answer(changed=[0, 2])),
    stopped(
        "changed circuits exist, and ascend",
        ask([[0, 6]], [[0]]),
        answer(
            changed=[0, 0],
            circuits=[[0, 12], [0, 12]],
            routes=((1, 7), (1, 7)),
            steps=[[RAISE, 0, -1]],
        ),
    ),
    stopped("fibres exist", LOST, answer(routes=((1, 8), (5, 6))), "routes[0]: fibres exist"),
    # who takes over
    stopped(
        "what is lost is taken over, and nothing else",
        replace(LOST, spares=(2, 3)),
        answer(moves=[[1, 2], [3, 3]]),
        "moves: what is lost is taken over, and nothing else: got [1, 3], expected [1]",
    ),
    stopped(
        "a live spare takes over",
        LOST,
        answer(moves=[[1, 3]], circuits=[[0, 18], [18, 0]], routes=((1,), (6,))),
        "moves[0, 1] = 3: a live spare takes over: got False",
    ),
    stopped(
        "each takes over one",
        BOTH,
        answer(moves=[[1, 2], [3, 2]], circuits=[[0, 12], [1, 13]], routes=((2, 14), (0, 6))),
        "moves: each takes over one: got 1, expected 2",
    ),
    stopped(
        "an end stays at its unit, or goes to the spare",
        LOST,
        answer(circuits=[[0, 12], [12, 18]], routes=((1, 7), (5,))),
        "circuit 1, end 1: an end stays at its unit, or goes to the spare: got 3, expected 0",
    ),
    stopped(
        "a port in use is alive",
        replace(LOST, failed_ports=(12,)),
        answer(),
        "circuit 0, end 1: a port in use is alive: got True",
    ),
    Row(None, replace(LOST, failed_ports=(12,)), answer(circuits=[[0, 13], [13, 0]])),
    stopped(
        "an end stays at its unit, or goes to the spare",
        LOST,
        answer(circuits=[[0, 12], [12, 24]]),
        "circuit 1, end 1: an end stays at its unit, or goes to the spare: got 4, expected 0",
    ),
    # fibres
    stopped(
        "a fibre starts where the light is",
        LOST,
        answer(routes=((7,), (5, 6))),
        "route of circuit 0: a fibre starts where the light is: got 3, expected 0",
    ),
    stopped(
        "a fibre in use is alive",
        replace(LOST, failed_fibres=(1,)),
        answer(),
        "route of circuit 0: a fibre in use is alive: got True",
    ),
    stopped(
        "a route ends at its server",
        LOST,
        answer(routes=((1,), (5, 6))),
        "route of circuit 0: a route ends at its server: got 3, expected 2",
    ),
    # steps
    Row(None, BESIDE, WIDE, figures={"objective": (0, 2, 0, 720, 4)}),
    stopped(
        "only circuits that change are touched",
        BESIDE,
        replace(WIDE, steps=np.array([*WIDE.steps, [DROP, 2, -1], [RAISE, 2, -1]])),
        "steps[2]: only circuits that change are touched: got False",
    ),
    stopped("only circuits that change are touched", LOST,
            answer(steps=[*answer().steps, [DROP, 2, -1]])),
    stopped(
        "a circuit is dropped if it is up, and raised if not",
        LOST,
        answer(steps=[*answer().steps, [RAISE, 1, -1]]),
        "steps[2]: a circuit is dropped if it is up, and raised if not: got True, expected False",
    ),
    stopped(
        "a circuit is dropped if it is up, and raised if not",
        LOST,
        answer(steps=[[DROP, 0, -1], *answer().steps]),
    ),
    Row(None, LOST, answer(steps=[[RAISE, 0, -1], [DROP, 0, -1], *answer().steps])),
    stopped(
        "no part is passed twice",
        BESIDE,
        replace(WIDE, routes=((2, 14, 8, 4, 2, 14), (10, 13))),
        "steps[0]: no part is passed twice: got circuit 0, expected each once",
    ),
    stopped(
        "a port, a fibre, a waveguide has one circuit at a time",
        OTHER,
        answer(),
        "got fibre 6: circuits 2 and 1, expected one",
    ),
    stopped(
        "a port, a fibre, a waveguide has one circuit at a time",
        BESIDE,
        replace(WIDE, circuits=np.array([[0, 12], [12, 2]])),
        "port in 2: circuits 2 and 1",
    ),
    stopped(
        "at the end every circuit is up",
        LOST,
        answer(changed=[0], circuits=[[0, 12]], routes=((1, 7),), steps=[[RAISE, 0, -1]]),
        "steps: at the end every circuit is up: got [1], expected []",
    ),
    stopped(
        "at the end every circuit is up",
        LOST,
        answer(steps=[*answer().steps, [DROP, 1, -1]]),
    ),
    stopped(
        "every changed circuit is raised anew",
        BESIDE,
        answer(
            changed=[0, 1, 2],
            circuits=[[0, 12], [12, 0], [18, 2]],
            routes=(*WIDE.routes, (12,)),
        ),
        "steps: every changed circuit is raised anew: got [2], expected []",
    ),
    # cells
    stopped(
        "a circuit keeps its route while it is up",
        HELD,
        only([SET, 0, 1], [SET, 0, 0]),
        "steps[0]: a circuit keeps its route while it is up: got circuit 0",
    ),
    stopped(
        "a circuit that is raised has its light",
        PORT,
        switched(routes=((0,),), steps=[[SET, 0, 1], [RAISE, 0, -1], [SET, 1, 1]]),
        "got lost in free cell 1, expected cell 1 b2",
    ),
    stopped(
        "a circuit keeps its route while it is up",
        HELD,
        only([SET, 2, 1], [SET, 2, 0]),
        "steps[0]: a circuit keeps its route while it is up: got circuit 0",
    ),
    Row(None, HELD, only([SET, 0, 0], [SET, 2, 0]), figures={"cells_set": 2}),
    stopped(
        "only cells that work are set",
        HELD,
        only([SET, 1, 0]),
        "steps[0]: only cells that work are set: got False, expected True",
    ),
    stopped("only cells that work are set", STUCK, only([SET, 1, 0])),
    stopped("only cells that work are set", HELD, only([SET, 3, 0])),
    stopped("only cells that work are set", HELD, only([SET, -3, 0])),
    stopped("only cells that work are set", LOST, answer(steps=[[SET, 0, 0], *answer().steps])),
    stopped(
        "a circuit that is raised has its light",
        hold(om.Benes(4), [[2, 1]], [-1, 0, 1, 0, 1, 0], spares=(0,), failed_ports=(2,)),
        switched(moves=[[2, 0]], circuits=[[0, 1]], routes=((),), steps=[[RAISE, 0, -1]]),
        "got lost in free cell 0, expected cell ",
    ),
    Row(
        "light takes its route",
        PORT,
        switched(routes=((0, 8),)),
        "circuit 0: light takes its route: got (0, 4), expected (0, 8)",
    ),
    Row(
        None,
        cells(failed_fibres=(0,)),
        rerouted([SET, 5, 1], [SET, 7, 1], [RAISE, 0, -1], route=NEW),
        figures={"objective": (0, 1, 2, 648, 7), "lower_bound_recomputed": (0, 1, 0, 456, 3)},
    ),
    Row(  # the same route, once more
        None,
        cells(failed_fibres=(1,)),
        rerouted([DROP, 0, -1], [RAISE, 0, -1], route=OLD),
        figures={"objective": (1, 1, 0, 648, 7), "dark_steps": 1},
    ),
    stopped(
        "no light goes through a failed fibre",
        cells(failed_fibres=(0,)),
        rerouted([RAISE, 0, -1], route=OLD),
        "steps[0]: no light goes through a failed fibre: got circuit from port 0: fibre 0",
    ),
    # proofs
    unproved(LOST, LoadProof(bound=1, cuts=()), "a LoadProof, not a proof about failures"),
    shown(CUT_OFF, cut(0)),
    shown(ask([[0, 12]], [[1, 7]], spares=(), failed_chips=(), failed_fibres=(1, 3)), cut(0, 1)),
    unproved(LOST, cut(4), "server 4: servers are 0 .. 3"),
    unproved(replace(LOST, failed_fibres=(0,)), cut(0), "1 circuits must leave"),
    unproved(replace(BACKWARDS, failed_fibres=(0,)), cut(0), "1 circuits must leave"),
    shown(cells(dead_cells=(0,)), block([0], [])),
    unproved(LOST, block([0], []), "a block of chips, where there are no cells"),
    unproved(PORT, block([0], []), "around the links"),
    shown(ONE_PORT, block([0], [])),
    unproved(cells(dead_cells=(0,)), block([2], []), "chip 2: is none, or is lost"),
    unproved(cells(failed_chips=(0,)), block([0], []), "chip 0: is none, or is lost"),
    unproved(cells(), block([0], []), "around the links"),
    unproved(cells(dead_cells=(0,)), block([0], [0]), "1 circuits of the chips, 1 links"),
    unproved(LOST, (None,), "proofs of routings, where ports are not what spares replace"),
    unproved(IDEAL, (None,), "proofs of routings, where ports are not what spares replace"),
    unproved(
        cells(dead_cells=(0,)),
        (None,),
        "proofs of routings, where ports are not what spares replace",
    ),
    unproved(DEAD, (), "0 proofs for 1 handovers"),
    unproved(MANY, (), f"0 proofs for {math.perm(24, 8)} handovers"),
    unproved(DEAD, (None,), "the proof for the handover (2,) does not hold"),
    unproved(PORT, (free(9),), "circuits pay 0 more than all links are worth"),
    shown(DEAD, (free(11),)),
    shown(ONE_WAY, (free(18),)),
]  # fmt: skip
