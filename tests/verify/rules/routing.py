"""Matchings, their light, all pairs; the claims and certificates of routings."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellCircuit, CellGraph, CellPart, Fabric, Netlist
from optmatch.model import CellDevice
from optmatch.problems import RoutingProof
from optmatch.problems.routing import PRICE_UNITS
from tests.verify.rules import UNPROVED, Row, claim, forge, om, schedule


class Isolator(CellGraph):
    """Cells that let no light back: what enters at an end b is reflected."""

    __slots__ = ()

    @property
    def exits(self) -> NDArray[np.int32]:
        """Where light leaves."""
        table = super().exits.copy()
        table[2:] = [[2, 2], [3, 3]]
        return table


@dataclass(frozen=True, slots=True, eq=False)
class OneWay(Fabric):
    """Ports that send from some free terminals, and receive at some."""

    sources: tuple[int, ...]
    destinations: tuple[int, ...]
    graph: CellGraph
    type: ClassVar[str] = "one-way"
    bidirectional: ClassVar[bool] = False

    @property
    def n_ports(self) -> int:
        """As many as there are terminals of each kind."""
        return len(self.sources)

    @property
    def source_terminals(self) -> NDArray[np.int32]:
        """As given."""
        return np.array(self.sources, dtype=np.int32)

    @property
    def destination_terminals(self) -> NDArray[np.int32]:
        """As given."""
        return np.array(self.destinations, dtype=np.int32)


IDEAL = om.AllToAll(om.IdealSwitch(2))
TURN = om.AllToAll(om.IdealSwitch(3))
GIVEN = om.Routing(om.IdealSwitch(3), [1, 2, 0])
RING = om.HexMesh(1, 1, ports=[0, 1])
"""Two ports at two terminals of cell 2, which joins them in bar."""
BAR, CROSS = [[-1, -1, 0, -1, -1, -1]], [[-1, -1, 1, -1, -1, -1]]
PAIR = om.AllToAll(RING)
JOINED = schedule([[1, 0]], cell_states=BAR)
ONE_CELL: Any = {"mate": [-1] * 4, "ends": [[[0, 0], [1, 0]]], "perimeter": [0, 1, 3, 2]}
HEAD_ON = om.Routing(OneWay((0, 2), (0, 2), CellGraph(**ONE_CELL)), [1, 0])
"""Each of two ports sends to the other through the same cell, both from where they receive."""
TWO_CELLS: Any = {
    "mate": [-1] * 8,
    "ends": [[[0, 0], [1, 0]], [[0, 1], [1, 1]]],
    "perimeter": [0, 1, 3, 2, 4, 5, 7, 6],
}
BESIDE = om.Routing(OneWay((0, 4, 6), (2, 4, 6), CellGraph(**TWO_CELLS)), [0, 2, 1])
"""The same in cell 1; through cell 0 goes a circuit of its own."""
AGAINST = om.Routing(OneWay((2,), (0,), Isolator(**ONE_CELL)), [0])
ISOLATED = om.Routing(OneWay((0,), (2,), Isolator(**ONE_CELL)), [0])
ROUND = CellGraph(
    mate=np.array([2, -1, 0, -1], dtype=np.int32),
    ends=np.array([[[0.0, 0.0], [1.0, 0.0]]]),
    perimeter=np.array([1, 3], dtype=np.int32),
)
"""A cell of which terminal 0 leads back to it, so that light comes round."""
JOINED_CELLS: Any = {
    "mate": [6, 7, -1, -1, -1, -1, 0, 1],
    "ends": [[[0, 0], [1, 0]]] * 2,
    "perimeter": [2, 3, 5, 4],
}
BACKWARDS = om.Routing(OneWay((4,), (2,), CellGraph(**JOINED_CELLS)), [0])
"""Light goes on at terminal 0 of cell 0, which is joined to cell 1."""
STUCK = om.Routing(om.Faulty(RING, stuck_bar=[2]), [1, 0])


def interferometer(bar_rad: float, cross_rad: float, *, before_unknown: bool = False) -> Netlist:
    """Return one interferometer with these phases of bar and cross; right are pi and 0.

    At its terminal b1 may be a cell whose parts are not known.
    """
    half = 0.5**0.5
    ideal = [[[half, 0.0], [0.0, half]], [[0.0, half], [half, 0.0]]]
    couplers = [
        CellPart(name=name, component="c", kind="coupler", pins=PINS, matrix=ideal)
        for name in ("c1", "c2")
    ]
    heater = CellPart(name="h", component="h", kind="shifter", pins=("o1", "", "o2", ""))
    circuit = CellCircuit(
        parts=[*couplers, heater],
        joins=[("c1,b1", "h,o1"), ("h,o2", "c2,a1"), ("c1,b2", "c2,a2")],
        terminals=("c1,a1", "c1,a2", "c2,b1", "c2,b2"),
        arms=(["h"], []),
        difference_rad=(bar_rad, cross_rad),
    )
    ports = [("w1", "m,a1"), ("w2", "m,a2"), ("e1", "m,b1"), ("e2", "m,b2")]
    cells: Any = {"instances": ["m"], "connections": {}, "circuits": [circuit]}
    if before_unknown:
        ports[2] = ("e1", "n,b1")
        cells = {
            "instances": ["m", "n"],
            "connections": {"m,b1": "n,a1"},
            "circuits": [circuit, None],
            "open_pins": ["n,a2", "n,b2"],
        }
    return Netlist(ports=ports, tx=["w1", "w2"], rx=["e1", "e2"], **cells)


PINS = ("a1", "a2", "b1", "b2")
SWAPPED = om.Routing(interferometer(0.0, np.pi), [0, 1])
OUTER = om.Routing(om.HexMesh(1, 1), [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10])
"""With all cells in bar light goes along the outside, and round inside for ever."""
MESH = om.HexMesh(1, 2, ports=[0, 6, 1, 8])
"""Ports whose matching 0-1, 2-3 needs 11 cells, while the circuits alone need 7."""
THREE = om.AllToAll(om.Faulty(MESH, dead_ports=[3]))
"""Pairs of 4, 2 and 4 cells."""
DEAR = om.Routing(MESH, [1, 0, 3, 2])
ROUTED = schedule([[1, 0, 3, 2]], cell_states=[[1, 1, 1, 0, 0, 0, 1, -1, -1, 0, 0]])
LOSS = om.Routing(MESH, [1, 0, 3, 2], objective="loss-db", bar_loss_db=0.25, cross_loss_db=0.5)
SKEWED = om.Routing(MESH, [1, 0, 3, 2], objective="loss-db", bar_loss_db=10.0, cross_loss_db=0.001)
WORST = om.Routing(MESH, [1, 0, 3, 2], objective="worst-cells")
CLASH = om.Routing(om.HexMesh(1, 2, ports=[0, 1, 3, 10]), [1, 0, 3, 2])
"""Both circuits need link 7."""
DARK = om.Routing(CLASH.fabric, [1, 0, 3, 2], objective="worst-cells")
SMART = {n: CellDevice.of("smartlight", n) for n in (2, 11)}
LOUD = om.Routing(CLASH.fabric, [1, 0, 3, 2], objective="worst-loss-db", cells=SMART[11])
ALL_LOUD = om.AllToAll(MESH, objective="worst-loss-db", cells=SMART[11])
BOTH_PASS = om.Routing(
    OneWay((4, 5), (2, 3), CellGraph(**JOINED_CELLS)),
    [0, 1],
    objective="worst-snr-db",
    cells=SMART[2],
)
"""Two circuits pass both cells, the second of which begins with terminal 0."""
LEAKS = float(SMART[2].leak.min(axis=1).sum())
IS_PROOF = "the certificate is a proof"
PAIRS = "every pair meets exactly once, and no port meets itself"


def priced(fabric: Any, prices: dict[int, int], infeasible: bool = False) -> RoutingProof:
    """Return a proof of one leaf with a price on some links."""
    row = np.zeros(fabric.graph.links.count, dtype=np.int64)
    for link, price in prices.items():
        row[link] = price
    return RoutingProof.of_prices(row, infeasible=infeasible)


def split(circuit: int, terminal: int) -> RoutingProof:
    """Return a proof of two cases without prices."""
    return RoutingProof(
        circuit=[circuit, -1, -1],  # type: ignore[arg-type]
        terminal=[terminal, -1, -1],  # type: ignore[arg-type]
        one_way=[0, 0, 0],  # type: ignore[arg-type]
        children=[[1, 2], [-1, -1], [-1, -1]],  # type: ignore[arg-type]
        prices=np.zeros((3, MESH.graph.links.count), dtype=np.int64),
        infeasible=[0, 0, 0],  # type: ignore[arg-type]
    )


def dear(**said: Any) -> Any:
    """Return the best routing, with the bound of the shortest routes."""
    return claim(DEAR, **{"schedule": ROUTED, "objective": 11.0, "lower_bound": 7.0} | said)


def clash(proof: Any, **said: Any) -> Any:
    """Claim that two circuits that need one link cannot be routed."""
    infeasible = {"status": om.Status.INFEASIBLE, "limit": None, "lower_bound": math.inf}
    return claim(CLASH, certificate=proof, **infeasible | said)


def dark(proof: Any) -> Any:
    """Claim the same, where the worst route counts."""
    return forge(clash(proof), problem=DARK)


def loss(**said: Any) -> Any:
    """Return the same routing, and what it loses."""
    return claim(LOSS, **{"schedule": ROUTED, "objective": 4.0, "lower_bound": 1.75} | said)


def all_to_all(slots: int, **said: Any) -> Any:
    """Return a schedule of two ports, and idle slots after that."""
    rows, states = [[1, 0]] + [[-1, -1]] * (slots - 1), BAR + [[-1] * 6] * (slots - 1)
    answer = schedule(rows, cell_states=states)
    return claim(PAIR, **{"schedule": answer, "objective": 1.0, "lower_bound": 1.0} | said)


def empty(fabric: Any) -> Any:
    """Return a demand of nothing, so that only what is wrong in itself is wrong."""
    return om.Demand(fabric, np.zeros((fabric.n_ports,) * 2))


SLOW = CellDevice.of("smartlight", 6, {0: {"settling_s": 3.0}, 1: {"settling_s": 9.0}})
WAITING = om.AllToAll(om.Faulty(RING, stuck_bar=[1]), delay_s="cells", cells=SLOW)


def waiting(*delays_s: float, **changes: Any) -> Any:
    """Return the two ports, and dark slots that set the cells 0, 1, which is stuck, and 3."""
    rows, dark = (
        [[1, 0]] + [[-1, -1]] * 3,
        [[0, 0, 0, -1, -1, -1], [-1] * 6, [1, 0, -1, 0, -1, -1]],
    )
    made = schedule(rows, cell_states=BAR + dark, delays_s=delays_s, delay_s=max(delays_s))
    return forge(made, **changes)


ONE_SIDED = om.Demand(RING, [[0, 1], [0, 0]])
DARK_STUCK = empty(STUCK.fabric)
MIRROR = empty(om.Faulty(RING, dead_cells=[2]))
"""Light that meets a dead cell comes back."""
OUT_OF_USE = empty(om.Faulty(om.Crossbar(2), dead_ports=[1]))
OUT = om.AllToAll(OUT_OF_USE.fabric)
"""No two ports are left."""
OPTIMAL: Any = {"status": om.Status.OPTIMAL, "limit": None}

LOSSY = om.IdealSwitch(3, loss_db=[[1, 1, 3], [3, 1, 1], [1, 2, 1]], budget_db=[3.0, 2.0, 3.0])
"""The circuit from port 1 to port 0 loses more than port 1 allows."""

NO_WAY_BACK = om.Routing(
    om.IdealSwitch(2, loss_db=[[0, 9], [1, 0]], budget_db=2.0, bidirectional=True), [1, 0]
)

ROWS = [
    # link budgets
    Row(None, NO_WAY_BACK, claim(NO_WAY_BACK), figures={"lower_bound_recomputed": math.inf}),
    Row(
        None,
        om.Routing(LOSSY, [1, -1, 0]),
        schedule([[1, -1, 0]]),
        figures={"worst_circuit_loss_db": 1.0},
    ),
    Row(
        "a circuit keeps to its link budget",
        empty(LOSSY),
        schedule([[2, 0, 1]]),
        "slot 0, circuit from port 1 to port 0: a circuit keeps to its link budget: got 3 dB,"
        " expected at most 2 dB",
        figures={"worst_circuit_loss_db": 3.0},
        told=1,
    ),
    # shapes and matchings
    Row(None, IDEAL, schedule([[1, 0]]), figures={"slots": 1, "toggles": 0}),
    Row(
        "a slot has an entry for each port",
        IDEAL,
        schedule([[1, 0, -1]]),
        "matchings.shape[1]: a slot has an entry for each port: got 3, expected 2",
        stops=True,
    ),
    Row(
        "a slot has a state for each cell, and none without cells",
        IDEAL,
        schedule([[1, 0]], cell_states=[[0]]),
        "cell_states.shape[1]: a slot has a state for each cell, and none without cells: got 1",
        stops=True,
    ),
    Row(
        "a slot has a state for each cell, and none without cells",
        PAIR,
        schedule([[1, 0]]),
        "none without cells: got None, expected 6",
        stops=True,
    ),
    Row(
        "a slot has a state for each cell, and none without cells",
        PAIR,
        schedule([[1, 0]], cell_states=[[0] * 5]),
        "got 5, expected 6",
        stops=True,
    ),
    Row(
        "a dead port takes part in no circuit",
        OUT_OF_USE,
        schedule([[-1, 0]], cell_states=[[0, 0, 0, 0]]),
        "matchings[0, 1]: a dead port takes part in no circuit: got 0, expected another",
        stops=True,
    ),
    Row(
        "a dead port takes part in no circuit",
        OUT_OF_USE,
        schedule([[1, -1]], cell_states=[[0, 0, 0, 0]]),
        "matchings[0, 0]: a dead port takes part in no circuit: got 1",
        stops=True,
    ),
    Row(None, OUT_OF_USE, schedule([[-1, -1]], cell_states=[[0, 0, 0, 0]])),
    Row(
        "a port is the destination of one circuit",
        empty(om.IdealSwitch(3)),
        forge(schedule([[1, -1, -1]]), matchings=np.array([[1, 1, -1]])),
        "slot 0, destination 1: a port is the destination of one circuit: got 2, expected 1",
        stops=True,
    ),
    Row(
        "circuits of bidirectional ports are mutual",
        ONE_SIDED,
        schedule([[1, -1]], cell_states=BAR),
        "slot 0, partner of port 0: circuits of bidirectional ports are mutual: got -1",
        stops=True,
    ),
    Row(
        "a bidirectional port does not meet itself",
        MIRROR,
        schedule([[-1, 1]], cell_states=BAR),
        "matchings[0, 1]: a bidirectional port does not meet itself: got 1, expected another port",
        stops=True,
    ),
    # light
    Row(
        None,
        PAIR,
        JOINED,
        figures={"circuits": 1, "total_cells": 1, "mean_route_cells": 1.0, "cells_used_max": 1},
    ),
    Row(
        "light reaches its partner",
        AGAINST,
        schedule([[0]], cell_states=[[0]]),
        "slot 0, circuit from port 0 to port 0: light reaches its partner: got cell 0 b1, expected"
        " cell 0 a1",
    ),
    Row(
        "a link carries one circuit",
        HEAD_ON,
        schedule([[1, 0]], cell_states=[[0]]),
        "a link carries one circuit: got circuits [(0, 1), (1, 0)], expected one circuit",
    ),
    Row(
        "a link carries one circuit",
        BESIDE,
        schedule([[0, 2, 1]], cell_states=[[0, 0]]),
        "slot 0, link 4 at cell 1 a1: a link carries one circuit: got circuits [(1, 2), (2, 1)]",
    ),
    Row(
        "light comes back from the partner",
        ISOLATED,
        schedule([[0]], cell_states=[[0]]),
        "light comes back from the partner: got cell 0 b1, expected cell 0 a1",
    ),
    Row(
        "a stuck cell is stated as it is, or free",
        STUCK,
        schedule([[1, 0]], cell_states=CROSS),
        "cell_states[0, 2]: a stuck cell is stated as it is, or free: got 1, expected 0",
    ),
    Row(
        None, om.Routing(interferometer(np.pi, 0.0), [0, 1]), schedule([[0, 1]], cell_states=[[0]])
    ),
    Row(
        "a cell has the state that it is in, by its parts",
        SWAPPED,
        schedule([[0, 1]], cell_states=[[0]]),
        "slot 0, cell m: a cell has the state that it is in, by its parts:"
        " got power [[0.0, 1.0], [1.0, 0.0]] from (a1, a2) to (b1, b2), expected bar",
    ),
    Row(
        "a cell has the state that it is in, by its parts",
        om.Routing(interferometer(0.0, np.pi, before_unknown=True), [0, 1]),
        schedule([[0, 1]], cell_states=[[0, 0]]),
        "slot 0, cell m",
    ),
    Row(None, STUCK, schedule([[1, 0]], cell_states=BAR), figures={"objective": 1.0}),
    Row(None, DARK_STUCK, schedule([[-1, -1]], cell_states=[[-1] * 6])),
    Row(
        None,
        BACKWARDS,
        claim(
            BACKWARDS,
            schedule=schedule([[0]], cell_states=[[0, 0]]),
            objective=2.0,
            lower_bound=2.0,
            certificate=priced(BACKWARDS.fabric, {}),
        ),
        figures={"total_cells": 2, "lower_bound_recomputed": 2.0, "lower_bound_checked": 2.0},
    ),
    Row(None, MIRROR, schedule([[-1, -1]], cell_states=CROSS)),
    Row(
        None,
        OUTER,
        schedule([OUTER.matching], cell_states=[[0] * 6]),
        figures={"cells_used_max": 6, "circuits": 6, "total_cells": 6},
    ),
    # slots of all pairs
    Row(
        "a slot lasts slot_s",
        IDEAL,
        schedule([[1, 0]], [2.0]),
        "durations_s[0]: a slot lasts slot_s: got 2.0, expected 1.0",
    ),
    Row("the delay is the problem's", IDEAL, schedule([[1, 0]], delay_s=0.5), "delay_s: "),
    Row(
        None,
        WAITING,
        waiting(0.014, 3.0, 0.0, 3.0),
        figures={"total_settling_s": 6.014, "makespan_s": 10.014},
    ),
    Row(
        "a slot waits for the slowest cell that it sets anew",
        WAITING,
        waiting(0.014, 3.0, 0.0, 0.014),
        "that it sets anew: got 0.014, expected 3.0",
    ),
    Row(
        "the delay is the problem's",
        WAITING,
        waiting(0.014, 3.0, 0.0, 3.0, delay_s=2.0),
        "delay_s: the delay is the problem's: got 2.0, expected 3.0",
    ),
    *(
        Row(
            "each slot has a delay where cells say it, and only there",
            problem,
            answer,
            f"only there: got {says}",
            stops=True,
        )
        for problem, answer, says in (
            (WAITING, JOINED, "False, expected True"),
            (PAIR, forge(JOINED, delays_s=np.zeros(1)), "True, expected False"),
            (GIVEN, forge(schedule([[1, 2, 0]]), delays_s=np.zeros(1)), "True, expected False"),
        )
    ),
    Row(
        "all circuits change together",
        IDEAL,
        schedule([[1, 0]], switching="per-circuit"),
        "switching: all circuits change together: got per-circuit, expected all-stop",
    ),
    Row(
        PAIRS,
        TURN,
        schedule([[1, 2, 0]]),
        f"slots from port 0 to port 2: {PAIRS}: got 0, expected 1",
    ),
    Row(
        PAIRS,
        IDEAL,
        schedule([[1, 0], [1, -1]]),
        f"slots from port 0 to port 1: {PAIRS}: got 2, expected 1",
    ),
    Row(
        PAIRS,
        IDEAL,
        schedule([[1, 0], [-1, 1]]),
        f"slots from port 1 to port 1: {PAIRS}: got 1, expected 0",
    ),
    Row(
        PAIRS,
        PAIR,
        schedule([[-1, -1]], cell_states=BAR),
        f"slots from port 0 to port 1: {PAIRS}: got 0, expected 1",
    ),
    Row(
        None,
        om.AllToAll(om.IdealSwitch(2), slot_s=2.0, delay_s=0.5),
        schedule([[1, 0]], [2.0], delay_s=0.5),
        figures={"makespan_s": 2.5},
    ),
    # one matching
    Row("there is one slot", GIVEN, schedule([[1, 2, 0]] * 2), "got 2, expected 1"),
    Row(
        "the slot holds the given matching",
        GIVEN,
        schedule([[1, 2, -1]]),
        "matchings[0, 2]: the slot holds the given matching: got -1, expected 0",
    ),
    Row(
        "a matching that is asked for alone lasts 1 s",
        GIVEN,
        schedule([[1, 2, 0]], [2.0]),
        "durations_s[0]: a matching that is asked for alone lasts 1 s: got 2.0, expected 1.0",
    ),
    Row("the delay is the problem's", GIVEN, schedule([[1, 2, 0]], delay_s=0.5)),
    # what is claimed
    Row(
        "the answer is a schedule",
        GIVEN,
        claim(GIVEN, status=om.Status.FEASIBLE, lower_bound=0.0),
        "schedule: the answer is a schedule: got None, expected a schedule",
        stops=True,
    ),
    Row(
        "a slot has an entry for each port",
        GIVEN,
        claim(GIVEN, schedule=schedule([[1, 0]]), objective=0.0, lower_bound=0.0),
        stops=True,
    ),
    Row(None, DEAR, dear(), figures={"objective": 11.0, "worst_route_cells": 7}),
    Row(
        "the lower bound is not below the shortest routes",
        DEAR,
        dear(lower_bound=6.0),
        "lower_bound: the lower bound is not below the shortest routes: got 6.0, expected 7.0",
    ),
    Row(None, DEAR, claim(DEAR, lower_bound=6.0)),
    Row(None, PAIR, all_to_all(1, **OPTIMAL)),
    Row(None, PAIR, all_to_all(1, **OPTIMAL, stats={"bound_by": "cp-sat"})),
    Row(None, PAIR, all_to_all(2)),
    Row(
        "optimal means the fewest slots",
        PAIR,
        all_to_all(2, **OPTIMAL),
        "matchings: optimal means the fewest slots: got 2, expected 1",
    ),
    Row(
        UNPROVED,
        PAIR,
        all_to_all(2, **OPTIMAL, stats={"bound_by": "cp-sat"}),
        "status optimal: that fewer than 2 slots do not do is from a search without a certificate",
    ),
    Row(
        None,
        THREE,
        claim(THREE, lower_bound=10.0),
        figures={"lower_bound_recomputed": 10.0, "slots_lower_bound": 3},
    ),
    # prices, and cases
    Row(
        None,
        DEAR,
        dear(lower_bound=11.0, certificate=priced(MESH, {4: 3 * PRICE_UNITS}), **OPTIMAL),
        figures={"lower_bound_recomputed": 7.0, "lower_bound_checked": 11.0},
    ),
    Row(
        "the lower bound is supported",
        DEAR,
        dear(lower_bound=11.0, certificate=priced(MESH, {4: 2 * PRICE_UNITS}), **OPTIMAL),
        "lower_bound: the lower bound is supported: got 11.0, expected ",
    ),
    Row(None, CLASH, clash(priced(CLASH.fabric, {7: 1}, infeasible=True))),
    Row("the lower bound is supported", CLASH, clash(priced(CLASH.fabric, {7: PRICE_UNITS}))),
    Row(  # eleven cells, five of them in cross; prices are in units of a dB
        None,
        LOSS,
        loss(lower_bound=4.0, certificate=priced(MESH, {4: 15_000})),
        figures={"objective": 4.0, "total_loss_db": 4.0, "lower_bound_recomputed": 1.75},
    ),
    Row(
        "the lower bound is supported",
        LOSS,
        loss(lower_bound=4.0, certificate=priced(MESH, {4: 7_500})),
        "lower_bound: the lower bound is supported: got 4.0, expected 3.75",
    ),
    Row(  # what is left below the next bar is more than all cells lose in cross
        None,
        SKEWED,
        forge(loss(certificate=priced(MESH, {4: 1_000}), objective=60.005), problem=SKEWED),
        figures={"lower_bound_checked": 30.0},
    ),
    Row(None, LOSS, loss(objective=4.0 * (1 + 1e-12))),  # losses are sums of floats
    Row(  # of the worst route prices say nothing, unless that there is none
        None,
        WORST,
        claim(
            WORST,
            schedule=ROUTED,
            objective=7.0,
            lower_bound=4.0,
            certificate=priced(MESH, {4: 3 * PRICE_UNITS}),
        ),
        figures={"lower_bound_checked": 4.0},
    ),
    Row(None, DARK, forge(clash(priced(CLASH.fabric, {7: 1}, infeasible=True)), problem=DARK)),
    Row(
        "the lower bound is supported",
        DARK,
        forge(clash(priced(CLASH.fabric, {7: 1})), problem=DARK),
    ),
    Row(None, LOUD, forge(clash(priced(CLASH.fabric, {7: 1}, infeasible=True)), problem=LOUD)),
    Row(
        "the lower bound is supported",
        LOUD,
        forge(clash(priced(CLASH.fabric, {7: 1})), problem=LOUD),
    ),
    Row(None, ALL_LOUD, claim(ALL_LOUD, lower_bound=0.0, certificate=priced(MESH, {}))),
    Row(None, om.AllToAll(om.Faulty(om.IdealSwitch(3), dead_ports=[2])), schedule([[1, 0, -1]])),
    Row(None, OUT, claim(OUT, lower_bound=0.0), figures={"lower_bound_recomputed": 0.0}),
    Row(
        None,
        BOTH_PASS,
        claim(BOTH_PASS, lower_bound=LEAKS),
        figures={"lower_bound_recomputed": LEAKS},
    ),
    Row(
        IS_PROOF,
        DEAR,
        dear(certificate=priced(MESH, {4: 1}, infeasible=True)),
        "leaf 0 claims that there is no routing, but its circuits pay 0 more than all links",
    ),
    Row(
        IS_PROOF,
        DEAR,
        dear(certificate="believe me"),
        "a str, where only a RoutingProof on cells can be checked",
    ),
    Row(
        IS_PROOF,
        GIVEN,
        claim(GIVEN, lower_bound=0.0, certificate=priced(MESH, {})),
        "a RoutingProof, where only a RoutingProof on cells can be checked",
    ),
    Row(
        IS_PROOF,
        DEAR,
        dear(certificate=priced(CLASH.fabric, {}).of_prices(np.zeros(29, dtype=np.int64))),
        "prices for 29 links, the fabric has 30",
    ),
    Row(
        IS_PROOF,
        DEAR,
        dear(certificate=forge(split(1, 43), prices=-np.ones((3, 30), dtype=np.int64))),
        "a price of -1, below 0",
    ),
    Row(None, DEAR, dear(certificate=split(1, 43))),
    Row(IS_PROOF, DEAR, dear(certificate=split(2, 0)), "splits on circuit 2 of 2"),
    Row(
        IS_PROOF, DEAR, dear(certificate=split(0, 44)), "splits at a terminal that is not 0 .. 43"
    ),
    Row(
        IS_PROOF, DEAR, dear(certificate=split(0, -1)), "splits at a terminal that is not 0 .. 43"
    ),
    Row(
        IS_PROOF,
        om.AllToAll(MESH),
        claim(om.AllToAll(MESH), certificate=split(0, 0)),
        "3 cases, where all slots together have one",
    ),
    Row(
        IS_PROOF,
        om.AllToAll(MESH),
        claim(om.AllToAll(MESH), certificate=priced(MESH, {}, infeasible=True)),
        "claims that 3 slots do not do, but the circuits pay 0 more than all links are worth",
    ),
]
