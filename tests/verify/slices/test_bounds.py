"""Bounds of slices hold if and only if they are true; switches are where the fabric has them."""

import math
from collections import Counter
from dataclasses import replace
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.problems import LoadProof
from optmatch.problems.slices.problem import draw_occupancy
from optmatch.testing import slice_problems
from optmatch.verify.slices import bounds
from optmatch.verify.slices.bounds import bound_load, check_load_proof, list_tori
from tests.helpers.exhaustive.slices import best_slice

few = settings(max_examples=25, deadline=None, database=None)
RACK = om.RackFabric()


def test_a_bound_above_the_truth_is_not_shown() -> None:
    problem = om.SliceAllocation(RACK, (2, 2, 4))
    proof = LoadProof(bound=8, cuts=((0,), (0, 1, 2)))
    assert check_load_proof(problem, proof) < 8


def test_a_rack_that_is_full_does_not_bound_a_slice_in_another_one() -> None:
    racks = om.RackFabric(racks=2)
    n_servers = racks.n_servers // 2
    problem = om.SliceAllocation(racks, (4, 4, 2), reserved=tuple(range(n_servers)))
    assert bound_load(problem) == bound_load(om.SliceAllocation(racks, (4, 4, 2))) == 4.0
    full = om.SliceAllocation(racks, (4, 4, 2), reserved=tuple(range(2 * n_servers)))
    assert bound_load(full) == math.inf


@given(slice_problems(tiny=True), st.integers(1, 9), st.sets(st.integers(0, 3), min_size=1))
@few
def test_a_bound_is_shown_if_and_only_if_it_is_true(
    problem: om.SliceAllocation, bound: int, servers: set[int]
) -> None:
    most, least = int(problem.fabric.edge_fibres.max(initial=0)), best_slice(problem)
    cut = tuple(servers & set(range(problem.fabric.n_servers)))
    shown = check_load_proof(problem, LoadProof(bound=bound, cuts=(cut,) * bool(cut)))
    if least is not None and least <= min(bound - 1, most):
        assert shown == 0.0
    else:
        assert shown == (bound if bound <= most else np.inf)


@pytest.mark.parametrize("wrap", [False, True])
def test_whatever_is_there_before_counts(wrap: bool) -> None:
    """Bounds by trying are those of all places and routes, on fibres that others use, too."""
    found = set()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        chips = ((1, 1, 4), (1, 2, 2), (1, 1, 5), (1, 1, 3))[seed % 4]
        fibres = int(rng.integers(1, 4))
        rack = om.RackFabric(chips, server=(1, 1, 1), fibres=fibres, wrap=wrap)
        placed = draw_occupancy(rack, [(1, 1, 2)] * int(rng.integers(3)), rng, routes=2)
        shape = ((1, 1, 2), (1, 1, 3))[int(rng.integers(2))]
        problem = om.SliceAllocation(rack, shape, placed=placed, routes=2)
        least, most = best_slice(problem), int(rack.edge_fibres.max())
        for bound in range(1, most + 2):
            shown = check_load_proof(problem, LoadProof(bound=bound, cuts=()))
            possible = least is not None and least <= min(bound - 1, most)
            assert shown == (0.0 if possible else bound if bound <= most else np.inf)
            found.add((bool(placed), shown == 0.0))
    assert len(found) == 4


@pytest.mark.parametrize("twisted", [False, True])
@pytest.mark.parametrize(
    "shape", [(2, 2, 4), (2, 4, 4), (4, 2, 2), (3, 6, 3), (2, 2, 2), (1, 1, 3)]
)
def test_neighbours_are_those_of_the_lattice(shape: Any, twisted: bool) -> None:
    """Points are one chip if they differ by whole sides; around a short side, by long ones too."""
    shifts, places = np.diag(shape), list[Any](product(*map(range, shape)))
    for axis in range(3):
        if twisted and shape[axis] < max(shape):
            shifts[axis][np.array(shape) == max(shape)] = shape[axis]
    for place, axis, step in product(places, range(3), (-1, 1)):
        if shape[axis] == 1:
            assert bounds.neighbour(shape, twisted, place, axis, step) is None
            continue
        chips = []
        for by in (step, -step):
            point = np.array(place) + by * np.eye(3, dtype=int)[axis]
            same = (point + np.array(m) @ shifts for m in product((-1, 0, 1), repeat=3))
            chips.append(
                next(tuple(at.tolist()) for at in same if (at >= 0).all() and (at < shape).all())
            )
        inside = 0 <= place[axis] + step < shape[axis]
        expected = chips[0] if inside or chips[0] != chips[1] else None
        assert bounds.neighbour(shape, twisted, place, axis, step) == expected


@pytest.mark.parametrize("server", [(1, 1, 1), (2, 2, 1), (1, 1, 2), (2, 1, 3)])
def test_slots_are_counted_chip_by_chip(server: Any) -> None:
    """Circuits go both ways between chips side by side on a ring; slots are numbered x first."""
    for shape in ((1, 1, 1), (2, 1, 3), (3, 3, 1), (4, 2, 2), (1, 4, 3), (2, 2, 4), (5, 1, 2)):
        chips = list(product(*map(range, shape)))
        slot_of = {chip: tuple(np.floor_divide(chip, server).tolist()) for chip in chips}
        grid = sorted(set(slot_of.values()), key=lambda at: at[::-1])
        weights = Counter[tuple[int, int]]()
        for a, b in product(chips, repeat=2):
            apart = [(v - u) % side for u, v, side in zip(a, b, shape, strict=True)]
            if [d in (1, n - 1) for d, n in zip(apart, shape, strict=True) if d] == [True]:
                weights[grid.index(slot_of[a]), grid.index(slot_of[b])] += 1
        found = bounds.measure(shape, server)
        assert found.weights == {(a, b): count for (a, b), count in weights.items() if a != b}
        assert found.slots == len(grid) == math.prod(found.sides)
        assert found.even == (len(set(Counter(slot_of.values()).values())) == 1)


@given(st.integers(2, 4), st.integers(0, 2**32))
@few
def test_the_fewest_circuits_leave_any_so_many_slots(slots: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = {(a, b): int(rng.integers(4)) for a in range(slots) for b in range(slots) if a != b}
    least = [
        min(
            sum(w for (a, b), w in weights.items() if a in chosen and b not in chosen)
            for chosen in combinations(range(slots), count)
        )
        for count in range(slots + 1)
    ]
    torus = bounds.Torus((1, 1, slots), slots, weights, (1, 1, slots), True)
    assert bounds._border(torus) == least


def test_what_takes_too_long_to_try_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, proof = om.SliceAllocation(RACK, (2, 2, 2)), LoadProof(bound=2, cuts=())
    assert check_load_proof(problem, proof) == 2
    monkeypatch.setattr(bounds, "MOST_STEPS", 0)
    assert check_load_proof(problem, proof) == 0


@given(slice_problems(tiny=True))
@few
def test_the_bounds_of_problem_and_verifier_agree(problem: om.SliceAllocation) -> None:
    assert bound_load(problem) == problem.lower_bound()


@given(slice_problems(tiny=True), st.integers(1, 9), st.sets(st.integers(0, 3), min_size=1))
@settings(max_examples=60, deadline=None, database=None)
def test_a_cut_counts_what_leaves_any_so_many_slots(
    problem: om.SliceAllocation, bound: int, cut: set[int]
) -> None:
    """Where nothing is tried, a cut shows what its definition says, circuit by circuit."""
    fabric, free = problem.fabric, problem.free_servers.tolist()
    cut &= set(range(fabric.n_servers))
    most = int(fabric.edge_fibres.max(initial=0))
    shown = min(bound - 1, most)
    room = np.minimum(shown, fabric.edge_fibres) - problem.loads
    refuted = True
    for torus in list_tori(problem):
        step = math.gcd(*torus.weights.values()) if torus.weights else 1
        passing = [0, 0]
        for (u, v), left in zip(fabric.edges.tolist(), room.tolist(), strict=True):
            if (u in cut) != (v in cut):
                passing[u in cut] += max(0, left) // step * step
        inside = len(cut.intersection(free))
        counts = range(max(0, torus.slots - len(free) + inside), min(torus.slots, inside) + 1)
        leaving = [
            sum(w for (a, b), w in torus.weights.items() if a in chosen and b not in chosen)
            for count in counts
            for chosen in combinations(range(torus.slots), count)
        ]
        enough = torus.slots <= len(free)
        refuted &= not enough or (bool(torus.weights) and min(passing) < min(leaving))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "_refuted_by_trying", lambda *_: False)
        proof = LoadProof(bound=bound, cuts=(tuple(cut),))
        found = check_load_proof(problem, proof)
    assert found == ((bound if bound <= most else math.inf) if refuted else 0.0)


def test_a_cut_is_enough_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers of a row of four reach the others over one edge; a ring leaves them by two."""
    monkeypatch.setattr(bounds, "_refuted_by_trying", lambda *_: False)
    row = om.RackFabric((1, 1, 4), server=(1, 1, 1), fibres=2, wrap=False)
    problem = om.SliceAllocation(row, (1, 1, 4))
    for cut, shown in (((0, 1), 2.0), ((0, 1, 2, 3), 0.0)):
        assert check_load_proof(problem, LoadProof(bound=2, cuts=(cut,))) == shown
    joined = om.SliceAllocation(
        om.RackFabric((2, 2, 2), (1, 1, 1), fibres=1, racks=2, joined=True), (2, 2, 4)
    )
    assert check_load_proof(joined, LoadProof(bound=1, cuts=((0, 1),))) == 1.0


def test_either_direction_over_a_cut_may_be_short() -> None:
    ring = om.RackFabric((1, 1, 4), server=(1, 1, 1), fibres=2)
    (torus,) = list_tori(om.SliceAllocation(ring, (1, 1, 4)))
    for full in ((), (1, 2), (2, 1)):
        loads = np.array([tuple(edge) == full for edge in ring.edges.tolist()]).astype(int)
        problem: Any = SimpleNamespace(fabric=ring, loads=loads)
        assert bounds._cut_refutes(problem, torus, [0, 1, 2, 3], 1, (0, 1)) == bool(full)


def test_a_server_holds_one_slot() -> None:
    """Over a full edge nothing goes from one half of a row to the other."""
    row = om.RackFabric((1, 1, 4), server=(1, 1, 1), fibres=8, wrap=False)
    whole = om.SliceAllocation(row, (1, 1, 4))
    (torus,) = list_tori(whole)
    for full in (False, True):
        loads = np.array([8 * full * ({*edge} == {1, 2}) for edge in row.edges.tolist()])
        asked: Any = SimpleNamespace(fabric=row, loads=loads, candidates=whole.candidates)
        assert bounds._refuted_by_trying(asked, torus, [0, 1, 2, 3], 8) == full


@pytest.mark.parametrize("server", [(1, 1, 2), (1, 2, 1), (2, 1, 2), (1, 2, 2)])
@pytest.mark.parametrize("shape", [(2, 2, 4), (3, 4, 2), (4, 1, 3), (3, 3, 3)])
def test_slices_on_servers_of_any_form_are_right(server: Any, shape: Any) -> None:
    """Chips of a slot are numbered as those of the server, also where it is not filled."""
    fabric = om.RackFabric(chips=(4, 4, 4), server=server, fibres=8)
    problem = om.SliceAllocation(fabric, shape)
    assert om.verify(problem, om.solve(problem, seed=0)).ok


def test_light_does_not_come_back_from_a_switch() -> None:
    """Neither before it takes its way, nor after it: no such route is offered."""
    small = om.RackFabric((2, 2, 2), (2, 2, 1), racks=2, joined=True)
    problem = om.SliceAllocation(small, (2, 2, 4))
    answer: Any = om.solve(problem, seed=0).answer
    k, way = next((k, r) for k, r in enumerate(answer.routes) if r[1] >= small.n_servers)
    for wrong in ((*way[:2], *way), (*way, *way[-2:])):
        routes = list(answer.routes)
        routes[k] = wrong
        report = om.verify(problem, replace(answer, routes=tuple(routes)))
        rules = {violation.rule for violation in report.violations}
        assert "a route is one of those offered" in rules


@pytest.mark.parametrize(
    ("fibres", "loads", "limit", "refuted"),
    [
        ([4, 4], [4, 0], 9, True),
        ([4, 4], [3, 0], 9, True),
        ([4, 4], [2, 0], 9, False),
        ([4, 4], [1, 0], 9, False),
        ([4, 4], [0, 3], 9, True),
        ([4, 4], [0, 0], 1, True),
        ([4, 4], [0, 0], 2, False),
        ([4, 4, 4], [4, 2, 2], 2, True),
        ([4, 4, 4], [0, 0, 4], 2, False),
        ([4, 4, 4], [3, 2, 3], 9, True),
    ],
)
def test_edges_over_a_cut_are_filled_in_whole_pairs(
    fibres: list[int], loads: list[int], limit: int, refuted: bool
) -> None:
    """Two circuits of a pair of slots take one edge; one that is too full helps no other."""
    edges = np.array([[0, 1], [1, 0], [0, 1]])[: len(fibres)]
    fabric = SimpleNamespace(edges=edges, edge_fibres=np.array(fibres))
    problem: Any = SimpleNamespace(fabric=fabric, loads=np.array(loads))
    torus = bounds.Torus((1, 1, 2), 2, {(0, 1): 2, (1, 0): 2}, (1, 1, 2), True)
    assert bounds._cut_refutes(problem, torus, [0, 1], limit, (0,)) == refuted


def test_of_many_slots_no_sets_are_tried() -> None:
    """A ring over edges without fibres is refuted if it has 16 slots, but not if it has 17."""
    fabric = SimpleNamespace(edges=np.array([[0, 1], [1, 0]]), edge_fibres=np.zeros(2, dtype=int))
    problem: Any = SimpleNamespace(fabric=fabric, loads=np.zeros(2, dtype=int))
    for n_slots in (bounds.MOST_SLOTS, bounds.MOST_SLOTS + 1):
        ring = {(slot, (slot + 1) % n_slots): 1 for slot in range(n_slots)}
        torus = bounds.Torus((1, 1, n_slots), n_slots, ring, (1, 1, n_slots), True)
        refuted = bounds._cut_refutes(problem, torus, list(range(n_slots)), 9, (0,))
        assert refuted == (n_slots == bounds.MOST_SLOTS)
