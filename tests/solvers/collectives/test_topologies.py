"""Graphs of several ports: what circuits they have, and how fast data spread over them."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import networkx
import numpy as np
import pytest

import optmatch as om
from optmatch.model import Limit, Limits
from optmatch.problems.collectives.plan import COPY
from optmatch.problems.collectives.problem import check_circuits
from optmatch.solvers.collectives import level_routes
from optmatch.solvers.collectives.broadcasts import list_broadcast_offers
from optmatch.solvers.collectives.exchanges import list_exchange_offers
from optmatch.solvers.collectives.level_routes import LevelRoutes, find_level_routes
from optmatch.solvers.collectives.offers import Offer
from optmatch.solvers.collectives.plans import Laid
from optmatch.solvers.collectives.spreading import (
    CircuitSequence,
    list_gather_offers,
    list_sequences,
    spread,
)
from optmatch.solvers.collectives.sums import list_turned_torus_offers
from optmatch.solvers.collectives.topologies import list_topologies
from tests.helpers.collectives import compute
from tests.helpers.modes import examples, nightly_only

ALPHA_S = 2.7e-6


def ask(operation: Any, n: int, size: float, **fields: Any) -> om.Collective:
    """Return a problem with 2.7 us a round."""
    return om.Collective(operation, n, size, alpha_s=ALPHA_S, **fields)


@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_with_ports_for_all_ranks_no_topology_is_listed_twice(n: int, two_way: bool) -> None:
    for ports in range(n - 1, 9):
        problem = ask("all-gather", n, 1e5, ports=ports, two_way=two_way)
        # Ports of a rank are equal, so that their order does not count.
        circuits = [
            np.sort(topology.peer, axis=0).tolist() for topology in list_topologies(problem)
        ]
        assert all(peers not in circuits[:number] for number, peers in enumerate(circuits)), ports


@pytest.mark.parametrize("seed", range(examples(40, plain=8)))
def test_every_topology_fits_the_ports_and_joins_all_ranks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, ports, planes = int(rng.integers(3, 40)), int(rng.integers(1, 6)), int(rng.integers(1, 4))
    two_way = bool(rng.integers(2))
    problem = ask("all-gather", n, 1e5, ports=ports, planes=planes, two_way=two_way)
    for topology in list_topologies(problem):
        assert topology.peer.shape == (problem.lanes, n)
        check_circuits("peer", topology.peer[None], two_way=two_way, ports=ports)
        ends = {(rank, int(to)) for row in topology.peer for rank, to in enumerate(row) if to >= 0}
        for rank, to in ends:
            if topology.shifts:
                assert (to - rank) % n in topology.shifts


def test_a_duplex_ring_of_an_odd_number_joins_ports_of_different_numbers() -> None:
    problem = ask("all-reduce", 5, 1e6, ports=2, two_way=True)
    solution = om.solve(problem, "topologies", seed=0)
    ports = solution.schedule.matchings[0]
    assert (ports[ports] == np.arange(10)).all()
    assert (ports % 2 != np.arange(10) % 2).any()


def test_large_kautz_graphs_are_split_at_once() -> None:
    """512 ranks with 12 circuits, on which a search of SciPy for matchings did not end."""
    problem = om.Collective("broadcast", 512, 1e6, ports=6, planes=2)
    topologies = list(list_topologies(problem))
    kautz = next(topology for topology in topologies if topology.name == "kautz")
    for row in kautz.peer:
        linked = row[row >= 0]
        assert len(set(linked.tolist())) == len(linked) >= 510


@pytest.mark.parametrize(("n", "ports", "planes"), [(9, 3, 2), (63, 3, 2), (21, 5, 2), (21, 5, 1)])
def test_odd_ranks_with_odd_ports_on_each_plane_have_regular_graphs(
    n: int, ports: int, planes: int
) -> None:
    """One port of a rank on each plane stays dark, and all others make cycles."""
    problem = ask("all-reduce", n, 1e6, ports=ports, planes=planes, two_way=True)
    found = [t for t in list_topologies(problem) if t.name == "random-regular"]
    assert found
    for topology in found:
        check_circuits("peer", topology.peer[None], two_way=True, ports=ports)
        assert ((topology.peer >= 0).sum(axis=0) == planes * (ports - 1)).all()


@pytest.mark.parametrize(("n", "ports"), [(7, 2), (17, 4), (24, 3)])
def test_no_choice_of_ports_makes_a_round_shorter(n: int, ports: int) -> None:
    """Each rank takes what it lacks and its neighbours have; a flow finds the least load of each.

    The busiest circuit of all ranks sets the time of a round.
    """
    problem = ask("all-gather", n, 1e5, ports=ports)
    for topology in list_topologies(problem):
        gather = spread(CircuitSequence.of([topology], two_way=problem.two_way))
        if topology.shifts or gather is None:
            continue
        has = np.eye(n, dtype=bool)
        for load in gather.load:
            before = has.copy()
            least = [least_load(topology.peer, before, rank) for rank in range(n)]
            assert load == pytest.approx(max(least))
            for rank, port in np.argwhere(topology.peer.T >= 0):
                has[topology.peer[port, rank]] |= before[rank]
        assert has.all()


def least_load(peer: Any, has: Any, rank: int) -> float:
    """Return the least load of the busiest circuit to a rank that takes all it lacks, by a flow.

    Circuits between the same two ranks share what comes over them.
    """
    sources, widths = np.unique(np.argwhere(peer == rank)[:, 1], return_counts=True)
    wanted = np.flatnonzero(has[sources].any(axis=0) & ~has[rank])
    loads: set[float] = {k / w for w in widths.tolist() for k in range(len(wanted) + 1)}
    for load in sorted(loads):
        graph = networkx.DiGraph()
        graph.add_nodes_from(["from", "to"])
        for block in wanted:
            graph.add_edge("from", ("block", block), capacity=1)
            for source in sources[has[sources, block]]:
                graph.add_edge(("block", block), ("source", source), capacity=1)
        for source, width in zip(sources, widths, strict=True):
            graph.add_edge(("source", source), "to", capacity=int(load * width + 1e-9))
        if networkx.maximum_flow_value(graph, "from", "to") == len(wanted):
            return load
    raise AssertionError("all blocks can come over some circuit")


def list_offers(problem: om.Collective) -> list[Offer[Laid]]:
    """List all that topologies offer for a problem."""
    clock = Limits().start()
    if problem.operation == "broadcast":
        return list(list_broadcast_offers(problem, clock))
    if problem.operation == "all-to-all":
        return list(list_exchange_offers(problem, clock))
    return list(list_gather_offers(problem, clock))


def test_short_simulations_of_a_broadcast_come_before_long_ones() -> None:
    """Before, one of 15,300 sends came first, and with 0.1 s the result was twice that of 0.03."""
    problem = om.Collective("broadcast", 256, 1e8, alpha_s=1e-6, delay_s=1e-4)
    n_sends = [offer.n_sends for offer in list_offers(problem)]
    assert all(later > earlier / 2 for earlier, later in pairwise(n_sends))


def test_graphs_in_which_ranks_differ_come_after_all_others() -> None:
    """Before, an all-reduce of 1,024 ranks with 4 ports took longer with 1 s than with 0.05 s."""
    problem = om.Collective("all-reduce", 64, 1e8, alpha_s=1e-6, delay_s=1e-5, ports=4)
    sequences = list_sequences(problem, Limits().start())
    are_alike = [sequence.shifts is not None for sequence in sequences]
    assert are_alike == sorted(are_alike, reverse=True) and not are_alike[-1]


@pytest.mark.parametrize("seed", range(examples(24, plain=2)))
def test_every_offer_keeps_its_promise_and_moves_the_right_data(seed: int) -> None:
    """The verifier replays each plan, and real numbers are sent as it says."""
    rng = np.random.default_rng(seed)
    operations = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast")
    problem = ask(
        operations[seed % 5],
        int(rng.integers(3, 12)),
        float(10 ** rng.uniform(3, 8)),
        ports=int(rng.integers(2, 5)),
        planes=int(rng.integers(1, 3)),
        two_way=bool(rng.integers(2)),
        delay_s=float(10 ** rng.uniform(-7, -3)),
        hop_s=[None, 1e-6][int(rng.integers(2))],
    )
    offers = list_offers(problem)
    for offer in offers[:: max(1, len(offers) // 12)]:
        plan = offer.build().plan
        report = om.verify(problem, plan)
        assert report.valid, (offer.name, report.complaint)
        assert compute(problem, plan)
        assert plan.time_s >= offer.seconds * (1 - 1e-9)
        # Blocks of an all-to-all may make detours, so that all circuits carry about as much; if
        # they are forwarded inside a round, hops are links.
        # Sends that are added to sums may count twice.
        n_sums = np.count_nonzero(plan.sends[:, 4] != COPY)
        assert len(plan.sends) + n_sums + len(plan.links) >= offer.n_sends
        if problem.operation != "all-to-all":
            assert offer.n_sends in (len(plan.sends), len(plan.sends) + n_sums)
            assert plan.time_s == pytest.approx(offer.seconds)


@pytest.mark.parametrize(
    ("problem", "at_most_s"),
    [
        (ask("all-reduce", 64, 1e9, ports=2, two_way=True, delay_s=1e-2), 19.87e-3),
        (ask("all-reduce", 64, 1e9, ports=6, two_way=True, delay_s=1e-2), 6.60e-3),
        (ask("all-reduce", 17, 1e5, ports=2, two_way=True, delay_s=1e-2), 37.7e-6),
        (ask("all-gather", 64, 1e5, ports=2, delay_s=1e-3), 18.2e-6),
        (ask("all-reduce", 64, 1e5, ports=2, delay_s=1e-3), 36.4e-6),
        (ask("all-to-all", 64, 1e7, ports=2, delay_s=1e-2), 0.739e-3),
        (ask("all-to-all", 64, 1e9, ports=2, delay_s=1e-2), 43.5e-3),
        pytest.param(
            ask("all-to-all", 64, 1e9, ports=4, two_way=True, delay_s=1e-2),
            15.7e-3,
            marks=nightly_only,
        ),
        # Data spread evenly along Kautz and de Bruijn graphs, not against them.
        (ask("all-gather", 129, 1e5, ports=6, delay_s=1e-6), 8.49e-6),
        (ask("reduce-scatter", 127, 1e5, ports=6, delay_s=1e-6), 8.49e-6),
        # Two ports more than other ranks: rings over all ports instead of direct circuits.
        (ask("reduce-scatter", 5, 1e7, ports=6, two_way=True, delay_s=1e-3), 32.1e-6),
        (ask("broadcast", 16, 1e7, ports=2, two_way=True, delay_s=1e-3), 0.206e-3),
        (ask("broadcast", 64, 1e5, ports=2, delay_s=1e-3), 25.91e-6),
        # Trees over several planes: the root has no parent, and a child for each of eight ports.
        (ask("broadcast", 63, 1e3, ports=4, planes=2, two_way=True), 5.45e-6),
        (ask("broadcast", 64, 1e7, delay_s=1e-6), 339.3e-6),
    ],
)
@pytest.mark.slow
def test_several_ports_are_as_fast_as_was_found(problem: om.Collective, at_most_s: float) -> None:
    name = "pipelined" if problem.operation == "broadcast" else "topologies"
    solution = om.solve(problem, name, seed=0)
    assert solution.objective is not None and solution.objective <= at_most_s


def test_pieces_between_many_ranks_load_all_circuits_alike() -> None:
    n = 200
    problem = ask("reduce-scatter", n, 1e9, ports=4, planes=2, two_way=True, delay_s=1.0)
    offers = list(list_gather_offers(problem, Limits(time_s=30.0).start()))
    # The bytes alone take 2.4875 ms; before, pieces took 2.5226 ms.
    fastest = min(offers, key=lambda offer: offer.seconds)
    assert fastest.seconds < 2.5015e-3
    assert fastest.n_sends < n * (n - 1)  # of the chunks of one rank


def test_a_path_over_many_ports_cuts_blocks_for_its_two_directions_alone() -> None:
    problem = ask("all-gather", 12, 1e6, ports=8, two_way=True)
    offers = list_gather_offers(problem, Limits(time_s=30.0).start())
    pieces = {offer.n_sends // (12 * 11) for offer in offers if offer.name == "path"}
    assert pieces == {1, 2, 8}


def test_halves_that_are_cut_differently_are_not_joined() -> None:
    """Of six ports a scatter and a gather may cut blocks into different pieces."""
    problem = om.Collective(
        "all-reduce", 192, 1e7, alpha_s=1e-5, delay_s=1e-4, ports=6, start="dark"
    )
    solution = om.solve(problem, "composed", seed=0)
    assert om.verify(problem, solution).ok


@pytest.mark.parametrize(
    ("n", "ports", "two_way", "most_s"),
    [
        (256, 2, True, 2.2e-3),
        pytest.param(300, 1, False, 5e-3, marks=nightly_only),
        (64, 4, False, 0.8e-3),
        (255, 2, True, 2.5e-3),
    ],
)
def test_long_pipelines_of_a_broadcast_keep_their_circuits(
    n: int, ports: int, two_way: bool, most_s: float
) -> None:
    problem = om.Collective(
        "broadcast", n, 1e8, alpha_s=1.7e-6, delay_s=1e-2, ports=ports, two_way=two_way, root=3
    )
    solution = om.solve(problem, seed=0)
    assert solution.stats["reconfigurations"] == 0
    assert solution.objective <= most_s


@pytest.mark.parametrize(
    ("n", "ports", "two_way", "sides"),
    [(4, 2, False, 2), (4, 2, True, 2), (8, 3, True, 3), (9, 2, False, 2), (16, 5, True, 4)],
)
def test_all_sides_of_a_torus_carry_parts_at_once(
    n: int, ports: int, two_way: bool, sides: int
) -> None:
    problem = om.Collective(
        "all-reduce", n, 8e4, alpha_s=1e-6, delay_s=1.0, ports=ports, two_way=two_way
    )
    n_rounds = sides * (round(n ** (1 / sides)) - 1)
    seconds = n_rounds * (1e-6 + 8e4 / sides / 50e9)
    offers = list_turned_torus_offers(problem)
    (laid,) = [offer.build() for offer in offers if offer.n_sends == n * sides * n_rounds]
    assert om.verify(problem, laid.plan).valid
    assert compute(problem, laid.plan)
    assert laid.plan.time_s == pytest.approx(seconds)
    best = om.solve(problem, seed=0).objective
    assert best <= seconds * (1 + 1e-9)


@pytest.mark.parametrize("two_way", [False, True])
def test_all_to_alls_over_circuits_that_stay_are_near_the_bound(two_way: bool) -> None:
    """Level routes waste a seventh of the circuits' time; shortest ways would waste a quarter."""
    problem = ask("all-to-all", 32, 1e8, ports=3, two_way=two_way, delay_s=1.0)
    solution = om.solve(problem, "topologies", seed=0)
    assert solution.objective <= 1.16 * problem.lower_bound()
    assert compute(problem, solution.answer)


def test_data_go_on_after_a_configuration_that_brings_nothing() -> None:
    """A ring and dark ports in turn: nothing comes in every other round, then the ring is back."""
    ring_then_dark = np.array([[[1, 2, 0]], [[-1, -1, -1]]])
    receipts = spread(CircuitSequence("", ring_then_dark, (1, 1), repeats=True))
    assert receipts is not None
    assert receipts.config_of_round.tolist() == [0, 0]


def test_the_time_of_a_gather_is_known_before_its_receipts_are_listed() -> None:
    """Between 1,024 ranks the tables of a gather took longer than its simulation."""
    ring = np.array([[[1, 2, 3, 4, 0]]])
    receipts = spread(CircuitSequence("ring", ring), pieces=2)
    assert receipts is not None
    assert receipts.seconds(ask("all-gather", 5, 1.0), 1.0) > 0 and receipts.n_rows == 40
    assert "table" not in vars(receipts)
    table = receipts.table
    rows = np.stack([table.turn, table.source, table.target, table.chunk], axis=1).tolist()
    assert sorted(rows) == sorted(
        [turn, source, (source + 1) % 5, (source - turn) % 5 * 2 + piece]
        for turn in range(4)
        for source in range(5)
        for piece in range(2)
    )


def test_level_routes_use_both_ways_to_opposite_ranks() -> None:
    """Around a ring of 4 two-way ranks each opposite block has two ways; level loads use both."""
    problem = ask("all-to-all", 4, 4.0, ports=2, two_way=True, rate_bytes_per_s=1.0)
    peer = np.array([[1, 0, 3, 2], [3, 2, 1, 0]])
    distance = np.array([[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0]])
    routes = find_level_routes(
        problem, np.repeat(peer[None], 2, axis=0), distance, Limits().start()
    )
    assert routes is not None
    # 4 x 2 neighbours and 4 opposite blocks of two hops: 16 hops on 8 circuits.
    assert routes.busiest_bytes == 2.0
    at = {source * 4 + target: source for source in range(4) for target in range(4)}
    for senders, receivers, chunks in routes.sends:
        for sender, receiver, chunk in zip(senders, receivers, chunks, strict=True):
            assert at[int(chunk)] == sender
            assert receiver in peer[:, sender]
            at[int(chunk)] = int(receiver)
    assert all(rank == chunk % 4 for chunk, rank in at.items())


def test_a_sweep_of_level_routes_is_cut_off_when_time_is_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight ranks have 56 blocks, and the clock is looked at after each 20: thrice in a sweep."""
    monkeypatch.setattr(level_routes, "BLOCKS_BETWEEN_LOOKS_AT_CLOCK", 20)
    problem = ask("all-to-all", 8, 8.0, ports=2, two_way=True, rate_bytes_per_s=1.0)
    rank = np.arange(8)
    peer = np.array([(rank + 1) % 8, (rank - 1) % 8])
    onward = (rank[:, None] - rank) % 8
    distance = np.minimum(onward, 8 - onward)

    def route_until(n_looks_at_clock: int) -> LevelRoutes | None:
        """Route with a clock that runs out after so many looks at it."""
        answers: list[Limit | None] = [None] * n_looks_at_clock
        answers.reverse()
        clock: Any = SimpleNamespace(
            exceeded=lambda iterations: answers.pop() if answers else Limit.TIME
        )
        return find_level_routes(problem, np.repeat(peer[None], 5, axis=0), distance, clock)

    # The first look is before the first sweep, and two more are within it.
    assert [route_until(n_looks) is None for n_looks in range(5)] == [True] * 3 + [False] * 2
    # A second sweep that is cut off changes nothing.
    one_sweep = route_until(3)
    cut_off = route_until(5)
    assert one_sweep is not None
    assert cut_off is not None
    assert one_sweep.busiest_bytes == cut_off.busiest_bytes
    for sends, sends_cut_off in zip(one_sweep.sends, cut_off.sends, strict=True):
        assert np.array_equal(sends, sends_cut_off)


@pytest.mark.parametrize(
    "operation", ["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "broadcast"]
)
@pytest.mark.parametrize("hop_s", [None, 1e-6])
def test_circuits_of_the_start_are_kept_where_a_change_takes_long(
    operation: Any, hop_s: float | None
) -> None:
    """A ring through all ranks in any order is as good as the ring 0, 1, 2, ..."""
    order = np.random.default_rng(5).permutation(9)
    ring = np.empty(9, dtype=np.int64)
    ring[order] = np.roll(order, -1)
    times = []
    for start in (ring, np.roll(np.arange(9), -1)):
        problem = om.Collective(
            operation, 9, 9e6, alpha_s=1e-6, hop_s=hop_s, delay_s=1.0, start=start[None]
        )
        solution = om.solve(problem, seed=0)
        assert om.verify(problem, solution).ok
        times.append(solution.objective)
    assert times[0] == pytest.approx(times[1], rel=1e-3) and times[0] < 1.0


@pytest.mark.parametrize("operation", ["all-reduce", "all-to-all", "all-gather"])
@pytest.mark.parametrize("hop_s", [None, 1e-6])
def test_circuits_of_the_start_are_kept_for_late_ranks(
    operation: Any, hop_s: float | None
) -> None:
    ring = np.roll(np.arange(6), -1)[None]
    costs: Any = {"alpha_s": 1.7e-6, "hop_s": hop_s, "start": ring, "late_s": {2: 1e-5}}
    for delay_s in (1e-6, 1e-4, 1.0):
        problem = om.Collective(operation, 6, 1e6, delay_s=delay_s, **costs)
        solution = om.solve(problem, seed=0)
        assert om.verify(problem, solution).ok
        assert solution.objective is not None and solution.objective < 1.0


def test_rings_of_one_shift_are_tried_over_odd_ports_of_two_planes() -> None:
    """Cycles of three ranks do not fit on two planes; three duplex rings carry large blocks."""
    problem = om.Collective(
        "all-gather", 12, 1e8, rate_bytes_per_s=5e10, delay_s=1e-4, ports=3, planes=2, two_way=True
    )
    solution = om.solve(problem, "topologies", seed=0)
    assert solution.objective == pytest.approx(problem.lower_bound(), rel=1e-9)
