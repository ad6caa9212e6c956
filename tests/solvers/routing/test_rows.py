"""Rows of matchings: rows that are none, the order of circuits, and states that carry them."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.solvers.routing.row_router import MeshRouter, new_row_router
from optmatch.solvers.routing.rows import NO_MATCHING, NOT_ROUTED, ROUTED, PortTable, line_up
from tests.helpers.modes import examples

pytestmark = pytest.mark.kernels


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_circuits_line_up_by_length(seed: int, mutual: bool) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    live, least = rng.random(n) < 0.95, rng.integers(1, 4, (n, n))
    row = np.full(n, -1)
    chosen = rng.permutation(n)[: 2 * int(rng.integers(0, n // 2 + 1))]
    row[chosen] = chosen.reshape(-1, 2)[:, ::-1].ravel() if mutual else np.roll(chosen, 1)
    if rng.random() < 0.4:
        row[rng.integers(n)] = rng.integers(-2, n + 2)
    pairs = [(i, j) for i, j in enumerate(row.tolist()) if j != -1]
    right = all(0 <= j < n and live[i] and live[j] for i, j in pairs)
    right = right and len({j for _, j in pairs}) == len(pairs)
    if right and mutual:
        right = all(i != j and row[j] == i for i, j in pairs)
        pairs = [(i, j) for i, j in pairs if i < j]
    order, partner, taken = np.zeros((3, n), dtype=np.int64)
    ports = PortTable(live, least, np.empty(0, dtype=np.int8), mutual)
    count = line_up(ports, row, order, partner, taken.astype(np.int8))
    assert (count >= 0) == right
    if right:
        expected = [i for i, _ in sorted(pairs, key=lambda pair: -least[pair])]
        assert order[:count].tolist() == expected
        assert (partner == row).all()


@pytest.mark.parametrize("fabric", [om.HexMesh(2, 3, ports=8), om.Benes(4)], ids=["mesh", "benes"])
def test_rows_are_told_apart(fabric: om.Fabric) -> None:
    n, router = fabric.n_ports, new_row_router(fabric)
    rng, kinds = np.random.default_rng(7), set()  # of ten rows one has no routes, which takes long
    for _ in range(examples(30, plain=10)):
        rows = np.full((1, n), -1, dtype=np.int32)
        order = rng.permutation(n)
        if fabric.bidirectional:
            rows[0, order] = order.reshape(-1, 2)[:, ::-1].ravel()
        else:
            rows[0, order[1:]] = np.roll(order, 1)[1:]
        if rng.random() < 0.2:
            rows[0, 0] = rows[0, 1]
        states = np.zeros((1, fabric.n_cells), dtype=np.int8)
        routes, lengths = np.zeros((n, router.width), np.int32), np.zeros((1, n), np.int64)
        held = np.zeros(1, dtype=np.int8)
        router.route(rows, states, routes, lengths, held)
        kinds.add(int(held[0]))
        if held[0] != ROUTED:
            assert held[0] == NO_MATCHING or isinstance(router, MeshRouter)
            continue
        again, read = np.zeros_like(routes), np.zeros_like(lengths)
        router.read(rows[0], states[0], again, read[0])
        assert np.array_equal(read, lengths)
        for port in np.flatnonzero(lengths[0]).tolist():
            way = again[port, : read[0, port]]
            assert np.array_equal(way, routes[port, : lengths[0, port]])
            assert way[-1] == fabric.destination_terminals[rows[0, port]]
        assert (states >= 0).sum() == len(
            {t >> 2 for p in range(n) for t in again[p, : read[0, p]]}
        )
    assert kinds == {ROUTED, NO_MATCHING} | ({NOT_ROUTED} if fabric.bidirectional else set())
