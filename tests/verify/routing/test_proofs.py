"""Proofs of bounds: they never exceed the true value, and show the expected one."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.fabrics import CellGraph
from optmatch.io.files import Prices
from optmatch.problems import RoutingProof
from optmatch.problems.routing import PRICE_UNITS
from optmatch.verify.report import Findings, ProofError
from optmatch.verify.routing import bounds
from optmatch.verify.routing.bounds import (
    FREE_CELLS,
    WHOLE_CELLS,
    Case,
    CellCosts,
    Circuit,
    ProofChecker,
    bound_objective,
    shortest_walk,
)
from optmatch.verify.routing.replay import check_proof, list_circuits
from tests.helpers import oracles
from tests.helpers.modes import examples
from tests.verify.rules import claim


def backwards(graph: CellGraph) -> CellGraph:
    """Count terminals from the last to the first, so that terminal 0 can be a joined one."""
    last = len(graph.mate) - 1
    mate = np.where(graph.mate < 0, -1, last - graph.mate)[::-1]
    return CellGraph(mate=mate, ends=graph.ends[::-1, ::-1], perimeter=last - graph.perimeter)


GRAPHS = {
    "hex": om.HexMesh(1, 1).graph,
    "square": backwards(om.SquareMesh(1, 2).graph),
    "triangular": om.TriangularMesh(1, 1).graph,
}
ROW = om.HexMesh(1, 2).graph
DEAR = [Circuit(*ROW.perimeter[[0, 6]].tolist()), Circuit(*ROW.perimeter[[1, 8]].tolist())]
"""Two circuits of 7 cells alone that need 11 together."""
CLASHING = [Circuit(*ROW.perimeter[[0, 1]].tolist()), Circuit(*ROW.perimeter[[3, 10]].tolist())]
"""Two circuits that both need link 7."""


def priced(graph: CellGraph, prices: dict[int, int], infeasible: bool = False) -> RoutingProof:
    """Make a proof of one leaf with a price on some links."""
    row = np.zeros(graph.links.count, dtype=np.int64)
    for link, price in prices.items():
        row[link] = price
    return RoutingProof.of_prices(row, infeasible=infeasible)


def tree(graph: CellGraph, nodes: list[tuple[Any, ...]], **leaves: Any) -> RoutingProof:
    """Make a proof from (circuit, terminal, one_way, child, child) for nodes and () for leaves."""
    filled = [node or (-1, -1, 0, -1, -1) for node in nodes]
    zero = np.zeros((len(nodes), graph.links.count))
    return RoutingProof(
        circuit=[node[0] for node in filled],  # type: ignore[arg-type]
        terminal=[node[1] for node in filled],  # type: ignore[arg-type]
        one_way=[node[2] for node in filled],  # type: ignore[arg-type]
        children=[node[3:] for node in filled],  # type: ignore[arg-type]
        prices=leaves.get("prices", zero),
        infeasible=leaves.get("infeasible", [0] * len(nodes)),
    )


def random_proof(rng: np.random.Generator, graph: CellGraph, n_circuits: int) -> RoutingProof:
    """Make a tree of a few cases with random splits and prices."""
    nodes: list[tuple[Any, ...]] = [()]
    for _ in range(rng.integers(0, 4)):
        leaf = int(rng.choice([k for k, node in enumerate(nodes) if not node]))
        split = rng.integers(0, n_circuits), rng.integers(0, len(graph.mate)), rng.integers(0, 2)
        nodes[leaf] = (*map(int, split), len(nodes), len(nodes) + 1)
        nodes += [(), ()]
    shape = len(nodes), graph.links.count
    prices = rng.integers(0, 4 * PRICE_UNITS, shape) * (rng.random(shape) < 0.2)
    prices[[bool(node) for node in nodes]] = 0
    flags = [int(not node and rng.random() < 0.1) for node in nodes]
    return tree(graph, nodes, prices=prices, infeasible=flags)


def random_circuits(rng: np.random.Generator, graph: CellGraph) -> list[Circuit]:
    """Draw circuits between different free terminals: mostly some that go together."""
    count, starts = rng.integers(1, 4), rng.permutation(graph.perimeter).tolist()
    if rng.random() < 0.2:
        return [Circuit(*starts[k : k + 2]) for k in range(0, 2 * count, 2)]
    states = oracles.random_states(rng, 1, graph)[0].tolist()
    found: list[Circuit] = []
    for start in starts:
        end = oracles.follow(graph, states, start)[1]
        if end is not None and len(found) < count and Circuit(end, start) not in found:
            found.append(Circuit(start, end))
    return found


@pytest.mark.parametrize("name", GRAPHS)
@settings(max_examples=examples(75, plain=75))
@given(seed=st.integers(0, 2**32))
def test_no_proof_shows_more_than_the_truth(name: str, seed: int) -> None:
    rng, graph = np.random.default_rng(seed), GRAPHS[name]
    circuits = random_circuits(rng, graph)
    proof = random_proof(rng, graph, len(circuits))
    loss = (float(rng.random()), float(rng.random()))
    if rng.random() < 0.5:  # losses with a large common step
        loss = tuple((rng.integers(0, 4, 2) / 4).tolist())
    checker = ProofChecker(graph)
    cells, _ = oracles.best_states(graph, circuits)
    loss_db, _ = oracles.best_states(graph, circuits, loss)
    try:
        assert checker.bound_cells(proof, circuits) <= cells
        assert checker.bound_loss(proof, circuits, *loss) <= loss_db + 1e-9
        assert not checker.show_infeasible(proof, circuits) or math.isinf(cells)
    except ProofError as exc:
        assert proof.infeasible.any(), exc  # only such a leaf can fail here


@pytest.mark.parametrize("name", GRAPHS)
@settings(max_examples=100)
@given(seed=st.integers(0, 2**32))
def test_a_single_leaf_is_the_sum_over_its_circuits(name: str, seed: int) -> None:
    rng, graph = np.random.default_rng(seed), GRAPHS[name]
    circuits = random_circuits(rng, graph)
    prices = (rng.integers(0, 3 * PRICE_UNITS, graph.links.count)).tolist()
    costs = PRICE_UNITS, PRICE_UNITS
    walks = [oracles.cheapest_walk(graph, *circuit, prices, costs) for circuit in circuits]
    value = sum(walks) - sum(prices)
    checker = ProofChecker(graph)
    bound = checker.bound_cells(priced(graph, dict(enumerate(prices))), circuits)
    if math.isinf(value):
        assert bound == math.inf
        return
    least = math.ceil(value / PRICE_UNITS)
    parity = checker.total_parity(circuits)
    assert bound == (least if parity is None else least + (least - parity) % 2)


@pytest.mark.parametrize("name", GRAPHS)
@settings(max_examples=100)
@given(seed=st.integers(0, 2**32))
def test_the_cheapest_walk_obeys_the_case(name: str, seed: int) -> None:
    rng, graph = np.random.default_rng(seed), GRAPHS[name]
    circuit = random_circuits(rng, graph)[0]
    prices = rng.integers(0, 50, graph.links.count).tolist()
    costs = int(rng.integers(0, 30)), int(rng.integers(0, 30))
    no_exit = frozenset(rng.integers(0, len(graph.mate), 2).tolist())
    no_link = frozenset(rng.integers(0, graph.links.count, 2).tolist())
    found = ProofChecker(graph).cheapest_walk(circuit, Case(no_exit, no_link), prices, costs)
    assert found == oracles.cheapest_walk(graph, *circuit, prices, costs, no_exit, no_link)


def test_losses_are_bounded_in_whole_steps() -> None:
    checker = ProofChecker(ROW)
    proof = priced(ROW, {4: 3 * PRICE_UNITS})
    assert checker.bound_loss(proof, DEAR, 1.0, 1.0) == pytest.approx(11.0)  # by parity
    assert checker.bound_loss(priced(ROW, {}), DEAR, 0.46, 0.46) == pytest.approx(7 * 0.46)
    fine = 0.460_07
    bound = checker.bound_loss(priced(ROW, {}), DEAR, fine, fine)
    assert 7 * 0.46 < bound <= 7 * fine + 1e-12
    plain = checker.bound_loss(priced(ROW, {}), DEAR, 1.0, 1.5)
    assert plain % 0.5 == 0
    assert checker.bound_loss(priced(ROW, {4: 1}), DEAR, 1.0, 1.5) == plain + 0.5
    assert checker.bound_loss(proof, DEAR, 0.0, 0.0) == 0.0
    far = [checker.bound_loss(priced(ROW, {7: p}), CLASHING, 1.0, 1.5) for p in (0, 403_010)]
    assert far[1] - far[0] == 403_010 / PRICE_UNITS > 1.5 * 22  # no routes lose so much
    cell = om.Benes(2).graph
    through = [
        Circuit(*cell.perimeter[[0, 2]].tolist()),
        Circuit(*cell.perimeter[[1, 3]].tolist()),
    ]
    assert ProofChecker(cell).bound_loss(priced(cell, {}), through, 1 / 3, 1 / 3) == 2 / 3
    benes = om.Benes(4)
    ends = zip(benes.source_terminals.tolist(), benes.destination_terminals.tolist(), strict=True)
    every = [Circuit(*pair) for pair in ends]  # all cells are passed twice
    unused = priced(benes.graph, {int(benes.graph.links.of_terminal[2]): PRICE_UNITS * 23 // 10})
    assert ProofChecker(benes.graph).bound_loss(unused, every, 1.0, 1.0) == 10.0  # 9.7 and more
    for tiny in (5e-324, 1e-300, 1e-12):
        assert 0.0 <= checker.bound_loss(proof, DEAR, tiny, 1000.0) <= 11_000.0
        assert 0.0 <= checker.bound_loss(proof, DEAR, tiny, tiny) <= 11 * tiny


@pytest.mark.parametrize("name", GRAPHS)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_a_loss_rises_to_the_next_that_routes_can_have(name: str, seed: int) -> None:
    rng, graph = np.random.default_rng(seed), GRAPHS[name]
    circuits, checker = random_circuits(rng, graph), ProofChecker(graph)
    prices = rng.integers(0, 3 * PRICE_UNITS, graph.links.count).tolist()
    bar, cross = (int(loss) for loss in rng.integers(1, 12, 2))  # in quarters of a dB
    costs = bar * PRICE_UNITS // 4, cross * PRICE_UNITS // 4
    units = sum(oracles.cheapest_walk(graph, *pair, prices, costs) for pair in circuits)
    units -= sum(prices)
    bound = checker.bound_loss(
        priced(graph, dict(enumerate(prices))), circuits, bar / 4, cross / 4
    )
    most, parity = graph.n_cells * 2, checker.total_parity(circuits)
    if units <= 0 or units > max(costs) * most:
        assert bound == units / PRICE_UNITS
        return
    sums = (
        a * bar + b * cross
        for a, b in np.ndindex(most + 2, most + 2)
        if parity is None or (a + b) % 2 == parity
    )
    assert bound == min(total for total in sums if total * PRICE_UNITS >= 4 * units) / 4


def test_slots_share_the_price_of_a_link() -> None:
    checker, claim = ProofChecker(ROW), priced(ROW, {7: 1}, infeasible=True)
    assert checker.bound_slots(claim, CLASHING, 1) == (math.inf, 2)
    with pytest.raises(ProofError, match=r"pay 0 more .* not > 0"):
        checker.bound_slots(claim, CLASHING, 2)
    dear = priced(ROW, {7: PRICE_UNITS})
    assert checker.bound_slots(dear, CLASHING, 1).cells == checker.bound_cells(dear, CLASHING)
    assert checker.bound_slots(dear, CLASHING, 100).cells < 0


@pytest.mark.parametrize("cell_costs", [FREE_CELLS, WHOLE_CELLS])
def test_walks_add_up_alike_in_floats_and_in_whole_numbers(cell_costs: CellCosts) -> None:
    """Prices beyond what floats hold exactly take the other way; who has no walk pays nothing."""
    rng = np.random.default_rng(0)
    faulty = om.Faulty(om.HexMesh(3, 4, ports=8), stuck_bar=[0], stuck_cross=[7], dead_cells=[9])
    for fabric in (om.HexMesh(3, 3, ports=6), faulty):
        assert fabric.graph is not None
        checker = ProofChecker(fabric.graph)
        ends = fabric.source_terminals.tolist()
        circuits = [Circuit(a, b) for a in ends for b in ends if a < b]
        circuits += [Circuit(ends[0], 4 * 9)]  # by a terminal of the cell that may be dead
        for high in (1, 5, 10**6):
            prices = rng.integers(high, size=checker.n_links).tolist()
            quick = checker._sum_of_circuits_in_float(circuits, prices, cell_costs)
            walks = [checker.cheapest_walk(each, Case(), prices, cell_costs) for each in circuits]
            assert quick == sum(walk for walk in walks if walk < math.inf)
            assert (walks[-1] == math.inf) == (fabric is faulty)
            scale = 2**50
            dear = [price * scale for price in prices]
            costs = CellCosts(cell_costs.bar * scale, cell_costs.cross * scale)
            assert checker._sum_of_circuits(circuits, dear, costs) == quick * scale


def test_sums_that_floats_would_round_are_left_to_whole_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "_MIN_STEPS_IN_SCIPY", 0)
    checker = ProofChecker(ROW)
    for dear in (2**60, 1):
        prices = [dear * link + 1 for link in range(checker.n_links)]
        walks = [checker.cheapest_walk(each, Case(), prices, FREE_CELLS) for each in DEAR]
        assert checker._sum_of_circuits(DEAR, prices, FREE_CELLS) == sum(walks)
    # Cells that cost as much as links count as well.
    dear = 2**52 // len(checker.mate)
    costs = CellCosts(0, dear)
    prices = [dear] * checker.n_links
    walks = [checker.cheapest_walk(each, Case(), prices, costs) for each in DEAR]
    monkeypatch.setattr(checker, "_sum_of_circuits_in_float", None)
    assert checker._sum_of_circuits(DEAR, prices, costs) == sum(walks)


def test_parity_is_fixed_on_bipartite_grids_only() -> None:
    rng = np.random.default_rng(0)
    for name, fixed in (("hex", True), ("square", True), ("triangular", False)):
        checker = ProofChecker(GRAPHS[name])
        found = [checker.total_parity(random_circuits(rng, GRAPHS[name])) for _ in range(20)]
        reached = {parity for parity in found if parity is not None}
        assert (reached == {0, 1}) is fixed
    assert ProofChecker(ROW).total_parity(DEAR) == 1
    assert ProofChecker(ROW).total_parity([]) == 0
    # The first terminal of all is joined, too: from cell 1 light goes on to cell 0.
    ends = np.arange(8.0).reshape(2, 2, 2)
    mate = np.array([6, -1, -1, -1, -1, -1, 0, -1], dtype=np.int32)
    chain = CellGraph(mate=mate, ends=ends, perimeter=np.flatnonzero(mate < 0).astype(np.int32))
    assert ProofChecker(chain).total_parity([Circuit(start=4, end=2)]) == 0


def test_cases_show_it_without_prices() -> None:
    checker = ProofChecker(ROW)
    terminal = int(np.flatnonzero(ROW.links.of_terminal == 7)[0])
    proof = tree(ROW, [(0, terminal, 0, 1, 2), (), ()], infeasible=[0, 1, 1])
    assert checker.show_infeasible(proof, CLASHING)
    swapped = tree(ROW, [(1, terminal, 0, 1, 2), (), ()], infeasible=[0, 1, 1])
    assert checker.show_infeasible(swapped, CLASHING)
    again = [(k, int(ROW.perimeter[4]), 0, 3 + 2 * k, 4 + 2 * k) for k in (0, 1)]
    needless = tree(
        ROW, [(0, terminal, 0, 1, 2), *again, (), (), (), ()], infeasible=[0] * 3 + [1] * 4
    )
    assert checker.show_infeasible(needless, CLASHING)  # no case is forgotten


def test_the_bound_is_that_of_the_weakest_leaf() -> None:
    checker = ProofChecker(ROW)
    prices = np.zeros((3, ROW.links.count))
    prices[2, 4] = 3 * PRICE_UNITS
    far = int(ROW.perimeter[15])  # neither circuit comes here
    proof = tree(ROW, [(0, far, 0, 1, 2), (), ()], prices=prices)
    assert checker.bound_cells(proof, DEAR) == 7
    prices[1] = prices[2]
    proof = tree(ROW, [(0, far, 0, 1, 2), (), ()], prices=prices)
    assert checker.bound_cells(proof, DEAR) == 11


def test_the_stub_of_a_port_can_be_closed() -> None:
    checker = ProofChecker(ROW)
    for terminal in DEAR[0]:
        proof = tree(ROW, [(0, terminal, 0, 1, 2), (), ()], infeasible=[0, 1, 0])
        assert checker.bound_cells(proof, DEAR) == 7
        other = tree(ROW, [(1, terminal, 0, 1, 2), (), ()], infeasible=[0, 0, 1])
        assert checker.bound_cells(other, DEAR) == 7


def test_one_way_cases_close_single_directions() -> None:
    mesh = om.HexMesh(2, 2)
    graph, checker = mesh.graph, ProofChecker(mesh.graph)
    dead = mesh.dead_pairs()
    assert len(dead) == 4
    for pair in dead:
        circuit = Circuit(*graph.perimeter[list(pair)].tolist())
        assert math.isfinite(checker.bound_cells(priced(graph, {}), [circuit]))
        nodes: list[tuple[Any, ...]] = [()]
        open_cases = [(0, Case())]
        while open_cases:
            node, case = open_cases.pop()
            clash = clash_of(graph, circuit, case)
            if clash is None:
                continue  # there is no walk at all
            nodes[node] = (0, clash, 1, len(nodes), len(nodes) + 1)
            for shut in (clash, int(graph.mate[clash])):
                open_cases.append((len(nodes), Case(case.exits | {shut})))
                nodes.append(())
        other = int(np.flatnonzero(graph.mate >= 0)[0])
        for _ in range(2):  # a needless case after the others forgets none of them
            proof = tree(graph, nodes, infeasible=[int(not node) for node in nodes])
            assert checker.show_infeasible(proof, [circuit])
            for leaf in [k for k, node in enumerate(nodes) if not node]:
                nodes[leaf] = (0, other, 1, len(nodes), len(nodes) + 1)
                nodes += [(), ()]


def test_the_first_branch_of_a_one_way_case_closes_its_own_terminal() -> None:
    """All light of the pair leaves by a terminal; where its mate is closed light still passes."""
    mesh = om.HexMesh(2, 2)
    graph, checker = mesh.graph, ProofChecker(mesh.graph)
    circuit = Circuit(*graph.perimeter[list(mesh.dead_pairs()[0])].tolist())
    passed = next(
        u
        for u in np.flatnonzero(graph.mate >= 0).tolist()
        if shortest_walk(graph, *circuit, frozenset({u})) is None
        and shortest_walk(graph, *circuit, frozenset({int(graph.mate[u])})) is not None
    )
    clash = clash_of(graph, circuit, Case())
    for terminal in (passed, int(graph.mate[passed])):
        nodes = [(0, terminal, 1, 1, 2), (), (0, clash, 1, 3, 4), (), ()]
        proof = tree(graph, nodes, infeasible=[0, 1, 0, 1, 1])
        if terminal == passed:
            assert checker.show_infeasible(proof, [circuit])
        else:
            with pytest.raises(ProofError, match="leaf 1 claims that there is no routing"):
                checker.show_infeasible(proof, [circuit])


def clash_of(graph: CellGraph, circuit: Circuit, case: Case) -> int | None:
    """Return a terminal that the shortest walk leaves by, and its mate too; or None."""
    way = shortest_walk(graph, *circuit, case.exits)
    return None if way is None else next(u for u in way if int(graph.mate[u]) in way)


@pytest.mark.parametrize("starts", [[1, 2], [0, 1], [0, 2, 1, 2]])
def test_prices_of_nodes_are_all_of_them(starts: list[int]) -> None:
    make: Any = Prices
    with pytest.raises(om.InputError, match="starts ascend from 0 to the number of prices, 2"):
        make(links=2, starts=starts, link=[0, 1], price=[1, 1])
    with pytest.raises(om.InputError, match="starts ascend from 0 to the number of prices, 0"):
        make(links=2, starts=[], link=[], price=[])


def test_slots_together_are_bounded_where_they_are_the_fewest() -> None:
    """That so many do not do is said, and is no bound for a schedule of more slots."""
    problem = om.AllToAll(om.HexMesh(1, 2, ports=[0, 1, 3, 10]))
    findings = Findings()
    findings.figures |= {"slots_lower_bound": 3, "slots": 3}
    assert check_proof(problem, findings, priced(ROW, {})) == bound_objective(problem) == 36
    assert not findings.notes
    assert check_proof(problem, findings, priced(ROW, {7: 1}, infeasible=True)) == 0
    assert findings.notes == ["the certificate proves that 3 slots do not do"]
    assert findings.figures["slots_lower_bound"] == 6  # all pairs pass this link
    findings.figures["slots_lower_bound"] = 3
    for slots, shown in ((3, 36), (4, 0)):
        findings.figures["slots"] = slots
        assert check_proof(problem, findings, priced(ROW, {})) == shown
    del findings.figures["slots"]  # no schedule is there
    assert check_proof(problem, findings, priced(ROW, {})) == 0


def test_more_slots_than_are_counted_are_proved_by_the_certificate() -> None:
    problem = om.AllToAll(om.HexMesh(1, 2, ports=[0, 1, 3, 10]))
    report = om.verify(problem, claim(problem, certificate=priced(ROW, {7: 1}, infeasible=True)))
    assert report.ok
    assert report.figures["slots_lower_bound"] == 6
    assert report.proof == "certificate"


def test_cells_without_light_are_counted_for_nothing() -> None:
    for destination in range(4):
        matching = np.array([destination, -1, -1, -1], dtype=np.int32)
        problem = om.Routing(om.Benes(4), matching)
        assert bound_objective(problem) == om.solve(problem, "ilp", seed=0).objective


@pytest.mark.parametrize("fabric", [om.HexMesh(3, 3, ports=4), om.HexMesh(3, 3, tx=4, rx=4)])
def test_proofs_number_circuits_as_the_problem_does(fabric: Any) -> None:
    row: Any = [3, 2, 1, 0]
    idle: Any = [-1] * 4
    problem = om.Routing(fabric, row)
    starts, ends = fabric.source_terminals, fabric.destination_terminals
    expected = [(starts[i], ends[j]) for i, j in problem.circuits]
    assert list_circuits(problem) == expected
    assert list_circuits(om.Routing(fabric, idle)) == []
