"""Slices: servers, circuits, routes, fibres, switches between racks, and bounds; shared ports."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

import optmatch as om
from optmatch.problems import CutProof, LoadProof
from optmatch.problems.slices.shape import Steering
from optmatch.verify.slices.replay import check_steering
from tests.verify.rules import Row, claim, schedule


def rack(*chips: int, **fields: Any) -> om.RackFabric:
    """Return a rack of servers of one chip each, where nothing else is said."""
    given: Any = {"chips": chips, "server": (1, 1, 1), "fibres": 1}
    return om.RackFabric(**given | fields)


def allocation(**fields: Any) -> om.Allocation:
    """Return two chips along z, on servers 0 and 1, which are neighbours over edges 0 and 2."""
    right: dict[str, Any] = {
        "shape": (1, 1, 2),
        "servers": [0, 1],
        "routes": ((0, 1), (1, 0)),
        "circuits": [[5, 10], [10, 5]],
        "fibres": [[0, 0], [1, 2]],
    }
    return om.Allocation(**right | fields)


def busy(fibre: int) -> om.Allocation:
    """Return another slice, which has servers 2 and 3, and a fibre of ours."""
    return allocation(servers=[2, 3], fibres=[[0, fibre]])


RING = rack(1, 1, 4)
PAIR = om.SliceAllocation(RING, (1, 1, 2))
NEAREST = om.SliceAllocation(RING, (1, 1, 2), routes=1)
RIGHT = allocation()
RESERVED = om.SliceAllocation(RING, (1, 1, 2), reserved=(1,))
RACKS = om.SliceAllocation(rack(1, 1, 2, racks=2), (1, 1, 2))
TWO_EACH = rack(1, 1, 4, fibres=2)
ROUND = om.SliceAllocation(TWO_EACH, (1, 1, 4))
TWICE_ON_0 = allocation(
    shape=(1, 1, 4),
    servers=[0, 1, 0, 3],
    routes=((0, 1), (0, 3), (1, 0), (1, 0), (0, 1), (0, 3), (3, 0), (3, 0)),
    circuits=[[5, 10], [4, 23], [11, 4], [10, 5], [5, 22], [4, 11], [23, 4], [22, 5]],
    fibres=[[0, 0], [1, 2], [2, 4], [3, 5], [4, 3], [5, 1], [6, 12], [7, 13]],
)
"""Slots 0 and 2 exchange nothing, and could have one server but for the rule."""
WIDE = om.SliceAllocation(rack(2, 1, 2, server=(2, 1, 1), fibres=4), (2, 1, 2))
EIGHT = allocation(
    shape=(2, 1, 2),
    circuits=[[1, 6], [6, 1], [5, 16], [16, 5], [11, 22], [22, 11], [13, 18], [18, 13]],
    fibres=[[2, 0], [3, 8], [4, 1], [5, 9]],
)
"""Circuits 2 and 4 leave server 0, circuits 3 and 5 come back."""
NARROW = om.SliceAllocation(rack(2, 2, 1, server=(2, 1, 1), wrap=False), (2, 2, 1))
"""A server sends two circuits to the other, over two fibres."""
SHARED = Steering(
    rings=((0, 1), (1, 2)),
    demands=np.array([1.0, 3.0]),
    ports=8,
    link_units=None,
    shares=np.array([[0.25, 0], [0.25, 0.75], [0, 0.75]]),
    level=1.0,
    units=np.array([1, 3]),
    chip_prices=np.array([0.0, 1.0, 0.0]),
    link_prices=np.zeros(2),
)
"""Chip 1 of 8 ports gives one quarter to ring 0, and three to ring 1."""
LIMITED = replace(
    SHARED, link_units=1.5, shares=SHARED.shares / 2, level=0.5, units=np.array([1, 1]),
    chip_prices=np.zeros(3), link_prices=np.array([0.0, 1.0]),
)  # fmt: skip
EQUAL: Any = {"shares": np.array([[0.5, 0], [0.5, 0.5], [0, 0.5]]), "level": 2.0}
DOUBLED: Any = {"demands": np.array([2.0, 6.0]), "level": 0.5}
CAPPED: Any = {
    "demands": np.array([2.0, 6.0]), "link_units": 1.5, "level": 0.25, "units": np.array([1, 1]),
    "chip_prices": np.zeros(3), "link_prices": np.array([0.0, 1.0]),
}  # fmt: skip
"""The link of ring 1 alone says how much there is of a demand."""
ALONE = replace(
    SHARED, rings=(), demands=np.zeros(0), shares=np.zeros((1, 0)), level=0.0,
    units=np.zeros(0, dtype=int), chip_prices=np.zeros(1), link_prices=np.zeros(0),
)  # fmt: skip
SEVENTHS = replace(
    SHARED, ports=6, shares=np.array([[1, 0], [1, 3], [0, 3]]) / 7, level=3 / 7,
    units=np.array([1, 2]), chip_prices=np.array([-0.5, 1.0, 0.0]),
)  # fmt: skip
"""By prices below 0 no more would be possible, where quarters are."""


def shared(**fields: Any) -> Any:
    """Return ports that are shared in another way."""
    given: Any = {k: v if np.isscalar(v) else np.array(v) for k, v in fields.items()}
    return replace(SHARED, **given)


def best(**said: Any) -> Any:
    """Return a solution with the right answer, and other claims."""
    return claim(PAIR, **{"answer": RIGHT, "objective": 1.0, "lower_bound": 1.0} | said)


def proved(problem: om.SliceAllocation, bound: int, *cuts: tuple[int, ...], **said: Any) -> Any:
    """Return a bound with a proof, and no answer."""
    proof = LoadProof(bound=bound, cuts=cuts)
    return claim(problem, certificate=proof, **{"lower_bound": problem.lower_bound()} | said)


def stopped(rule: str, problem: Any, answer: Any) -> Row:
    """Return a row of a solution whose load cannot be counted."""
    bound = problem.lower_bound()
    solution = claim(problem, answer=answer, objective=1.0, lower_bound=bound)
    return Row(rule, problem, solution, stops=True)


FLAT = om.SliceAllocation(om.RackFabric((2, 4, 4), (1, 2, 4), fibres=8), (1, 3, 4))
"""Two servers: one has two rows of four chips, and the other one row, or each two of three."""
FIGURES = {"servers": 2, "circuits": 2, "fibres": 2, "longest_route_hops": 1, "worst_load": 1}
ASKED_FOR = "the slice is the one asked for, on the fewest servers"
NONE = om.Status.INFEASIBLE

ROWS = [
    Row(None, PAIR, RIGHT, figures=FIGURES | {"objective": 1.0}),
    Row(None, om.SliceAllocation(RING, (1, 1, 1)), allocation(shape=(1, 1, 1), servers=[2],
        routes=(), circuits=[], fibres=[]), figures={"worst_load": 0, "longest_route_hops": 0}),
    Row(
        "the answer is an allocation",
        PAIR,
        schedule([[1, 0]]),
        "answer: the answer is an allocation: got Schedule, expected Allocation",
    ),
    Row(
        ASKED_FOR,
        PAIR,
        allocation(shape=(1, 1, 3)),
        "got (1, 1, 3), expected (1, 1, 2)",
    ),
    Row(ASKED_FOR, PAIR, allocation(shape=(1, 2, 1))),
    Row(ASKED_FOR, om.SliceAllocation(RING, (1, 1, 9)), RIGHT, "expected none: it is too large"),
    # servers
    Row("each slot has a server", PAIR, allocation(servers=[0, 1, 2]), "servers: each slot"),
    Row("the server is free", RESERVED, RIGHT, "servers[1]: the server is free: got 1"),
    Row("a server has one slot", ROUND, TWICE_ON_0, "servers[2]: a server has one slot: got 0"),
    Row("all servers are in one rack", RACKS, allocation(servers=[0, 2]), "got 2, expected 1"),
    # circuits
    Row(
        "each circuit is there once",
        om.SliceAllocation(TWO_EACH, (1, 1, 2)),
        allocation(circuits=[[5, 10], [10, 5], [5, 10]], fibres=[[0, 0], [1, 4], [2, 1]]),
        "circuits: each circuit is there once: got 3, expected 2",
    ),
    Row(
        "no circuit is missing",
        PAIR,
        allocation(circuits=[[5, 10]], fibres=[[0, 0]]),
        "from port 10 to port 5: no circuit is missing: got none, expected one",
    ),
    Row(None, WIDE, EIGHT, figures={"circuits": 8, "fibres": 4, "worst_load": 2}),
    # routes
    Row(
        "each pair of slots has a route",
        PAIR,
        allocation(routes=((0, 1),)),
        "routes: each pair of slots has a route: got 1, expected 2",
    ),
    Row(
        "a route joins its slots",
        PAIR,
        allocation(routes=((0, 1), (0, 1))),
        "routes[1]: a route joins its slots: got (0, 1), expected from 1 to 0",
    ),
    Row("a route joins its slots", PAIR, allocation(routes=((0, 1), (1, 2))), "got (1, 2)"),
    Row("a route joins its slots", PAIR, allocation(routes=((0, 1), (2, 0))), "got (2, 0)"),
    Row("a route joins its slots", PAIR, allocation(routes=((0, 1), (1,))), "got (1,)"),
    Row("a route joins its slots", PAIR, allocation(routes=((0, 1), ())), "got ()"),
    Row(
        "a route passes fibres",
        PAIR,
        allocation(servers=[0, 2], routes=((0, 2), (2, 0)), circuits=[[5, 16], [16, 5]]),
        "routes[0]: a route passes fibres: got 0 to 2, expected neighbours",
    ),
    Row(None, PAIR, allocation(routes=((0, 3, 2, 1), (1, 0)),
        fibres=[[0, 1], [0, 7], [0, 4], [1, 2]]), figures={"longest_route_hops": 3}),
    Row(
        "a route is one of those offered",
        NEAREST,
        allocation(routes=((0, 3, 2, 1), (1, 0)), fibres=[[0, 1], [0, 7], [0, 4], [1, 2]]),
        "routes[0]: a route is one of those offered: got (0, 3, 2, 1), expected one of 1",
    ),
    # fibres
    Row(
        "circuit and fibre exist",
        PAIR,
        allocation(fibres=[[0, 0], [1, 2], [2, 4]]),
        "fibres[2]: circuit and fibre exist: got (2, 4)",
    ),
    Row("circuit and fibre exist", PAIR, allocation(fibres=[[0, 0], [1, 2], [1, 8]])),
    Row("circuit and fibre exist", PAIR, allocation(fibres=[[2, 4], [0, 0], [1, 2]])),
    Row(
        "a fibre carries one circuit",
        om.SliceAllocation(TWO_EACH, (1, 1, 2), placed=(busy(0),)),
        allocation(fibres=[[0, 0], [1, 4]]),
        "fibres[0]: a fibre carries one circuit: got 0, expected one that is free",
    ),
    Row(
        None,
        om.SliceAllocation(TWO_EACH, (1, 1, 2), placed=(busy(0),)),
        allocation(fibres=[[0, 1], [1, 4]]),
        figures={"worst_load": 2},
    ),
    Row(
        "a fibre carries one circuit",
        WIDE,
        replace(EIGHT, fibres=np.array([[2, 0], [3, 8], [4, 0], [5, 9]])),
        "fibres[2]: a fibre carries one circuit: got 0, expected another fibre",
    ),
    Row(
        "a circuit has a fibre on each edge of its route",
        PAIR,
        allocation(fibres=[[0, 0]]),
        "circuit 1: a circuit has a fibre on each edge of its route: got [], expected [2]",
    ),
    Row(
        "a circuit has a fibre on each edge of its route",
        PAIR,
        allocation(fibres=[[0, 0], [1, 2], [1, 3]]),
        "circuit 1: a circuit has a fibre on each edge of its route: got [2, 3], expected [2]",
    ),
    # what cannot be counted
    stopped("the answer is an allocation", PAIR, schedule([[1, 0]])),
    stopped(ASKED_FOR, PAIR, allocation(shape=(1, 1, 3))),
    stopped("each slot has a server", PAIR, allocation(servers=[0, 1, 2])),
    stopped("each slot has a server", PAIR, allocation(servers=[0])),
    stopped("the server exists", PAIR, allocation(servers=[0, 4])),
    stopped("all servers are in one rack", RACKS, allocation(servers=[0, 2])),
    stopped("no circuit is superfluous", PAIR, allocation(circuits=[[5, 10], [10, 5], [3, 8]])),
    stopped("no circuit is missing", PAIR, allocation(circuits=[[5, 10]], fibres=[[0, 0]])),
    stopped("each pair of slots has a route", PAIR, allocation(routes=((0, 1),))),
    stopped("a route joins its slots", PAIR, allocation(routes=((0, 1), (0, 1)))),
    # bounds
    Row(None, PAIR, best(status=om.Status.OPTIMAL, limit=None)),
    Row(None, FLAT, claim(FLAT, lower_bound=6.0), figures={"lower_bound_recomputed": 6.0}),
    Row(
        "the lower bound is not below one pair's circuits",
        PAIR,
        best(lower_bound=0.0),
        "lower_bound: the lower bound is not below one pair's circuits: got 0.0, expected 1.0",
    ),
    Row(
        "the certificate is a proof",
        PAIR,
        best(certificate=CutProof(servers=np.array([0], dtype=np.int32))),
        "a CutProof says nothing of loads",
    ),
    Row("the certificate is a proof", PAIR, proved(PAIR, 2, (0, 4)), "a cut names 4, which is no"),
    Row("the certificate is a proof", RACKS, proved(RACKS, 2, (0, 2)), "servers of one rack"),
    Row(None, NARROW, proved(NARROW, 2, (0,)), figures={"lower_bound_checked": math.inf}),
    Row(None, NARROW, proved(NARROW, 2, (0,), status=NONE, limit=None, lower_bound=math.inf)),
    Row(None, NARROW, proved(NARROW, 2), figures={"lower_bound_checked": math.inf}),
    # shared ports
    Row(None, check_steering, SHARED, figures={"level": 1.0, "upper_bound": 1.0}),
    *(
        Row("rings have chips with ports, and demands above 0", check_steering,
            replace(SHARED, **wrong))
        for wrong in ({"demands": np.array([0.0, 3.0])}, {"ports": 0}, {"link_units": 0.0},
                      {"demands": np.ones(1)}, {"rings": ((0, 1), (1,))},
                      {"rings": ((0, 1), (1, 2, 1))})
    ),
    *(
        Row("shares and units are those of the rings", check_steering, replace(SHARED, **wrong))
        for wrong in ({"units": np.array([1])}, {"shares": SHARED.shares[:2]},
                      {"shares": SHARED.shares[:, :1]})
    ),
    Row(None, check_steering, LIMITED, figures={"level": 0.5, "upper_bound": 0.5}),
    Row(None, check_steering, replace(SHARED, demands=np.ones(2), units=np.array([2, 2]),
        **EQUAL)),
    Row(
        "a ring has all whole ports it can use",
        check_steering,
        shared(units=[0, 4]),
        "units: a ring has all whole ports it can use: got [0, 4], expected [1, 1]",
    ),
    Row("a ring has all whole ports it can use", check_steering,
        shared(units=[2, 2], link_units=3.0), "got [2, 2], expected [1, 3]"),
    *(
        Row("a ring has all whole ports it can use", check_steering,
            replace(SHARED, demands=np.ones(2), units=np.array(units), **EQUAL),
            f"got {units}, expected [2, 2]" if units[1] == 1 else "expected [1, 1]")
        for units in ([3, 1], [4, 0])
    ),
    Row(None, check_steering, replace(SHARED, **DOUBLED), figures={"upper_bound": 0.5}),
    Row(None, check_steering, replace(SHARED, **CAPPED), figures={"upper_bound": 0.25}),
    Row(None, check_steering, ALONE, figures={"level": 0.0, "upper_bound": 0.0}),
    Row(
        "the level is as recomputed",
        check_steering,
        shared(level=1.1),
        "level: the level is as recomputed: got 1.1, expected 1.0",
    ),
    Row(
        "prices show that no level is larger",
        check_steering,
        shared(chip_prices=[0, 0, 1.0]),
        "chip_prices: prices show that no level is larger: got 1.3333333333333333, expected 1.0",
    ),
    Row("prices show that no level is larger", check_steering, shared(chip_prices=[0.0] * 3)),
    Row(
        "prices show that no level is larger",
        check_steering,
        shared(link_prices=[1.0, 0]),
        "got none",
    ),
    Row(
        "prices show that no level is larger",
        check_steering,
        shared(chip_prices=[-1.0, 0, 0]),
        "got none",
    ),
    Row("prices show that no level is larger", check_steering, SEVENTHS),
    Row("prices show that no level is larger", check_steering, shared(chip_prices=[1.0] * 2)),
    Row("prices show that no level is larger", check_steering, shared(link_prices=[0.0])),
    Row(
        "a chip shares what it has",
        check_steering,
        shared(shares=[[0.25, 0], [0.5, 0.75], [0, 0.75]]),
        "shares[1]: a chip shares what it has: got 1.25, expected <= 1",
    ),
    Row(
        "members alone have shares",
        check_steering,
        shared(shares=[[0.25, 0.5], [0.25, 0.75], [0, 0.75]]),
        "shares[0, 1]: members alone have shares: got 0.5, expected 0",
    ),
    Row(
        "members alone have shares",
        check_steering,
        shared(shares=[[0.25, -0.5], [0.25, 0.75], [0, 0.75]]),
    ),
    Row(
        "a chip has so many ports",
        check_steering,
        shared(units=[2, 3]),
        "chip 1: a chip has so many ports: got 10, expected 8",
    ),
    Row(
        "a ring has all whole ports it can use",
        check_steering,
        shared(units=[1, 2]),
        "units[0]: a ring has all whole ports it can use: got 1, expected <= 4",
    ),
    Row(
        "a ring has all whole ports it can use",
        check_steering,
        shared(units=[-1, 4]),
    ),
    Row(
        "a ring has all whole ports it can use",
        check_steering,
        replace(LIMITED, units=np.array([1, 2])),
        "units[1]: a ring has all whole ports it can use: got 2, expected <= 1",
    ),
]  # fmt: skip
