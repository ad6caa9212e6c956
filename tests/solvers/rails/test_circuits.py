"""Circuits of rails: every set of them is a matching, and it connects who has to talk."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optmatch.model import InputError, Limits
from optmatch.solvers.rails.circuits import (
    halving,
    hamiltonian_cycles,
    line,
    ring,
    scatter,
    shifts,
    to_matching,
    tree,
)

groups = st.integers(2, 12).flatmap(
    lambda n: st.permutations(range(n + 3)).map(lambda order: order[:n])
)


@given(st.integers(1, 40))
def test_cycles_split_the_complete_graph(n: int) -> None:
    """Each goes through all points once, no two share an edge, and there are as many as fit."""
    cycles = hamiltonian_cycles(n)
    assert len(cycles) == max(1, (n - 1) // 2)
    assert (np.sort(cycles, axis=1) == np.arange(n)).all()
    edges = np.sort(np.stack([cycles, np.roll(cycles, -1, axis=1)], axis=2).reshape(-1, 2), axis=1)
    if n > 2:
        assert len(np.unique(edges, axis=0)) == len(edges)
    assert cycles[0].tolist() == list(range(n))


@given(groups, st.integers(1, 6))
def test_each_port_of_a_ring_goes_round_once(members: list[int], ports: int) -> None:
    """From any member, following one port visits all before it comes back; all ports are used."""
    matching = to_matching(ring(members, range(ports), ports), ports * (max(members) + 1))
    used = {g * ports + p for g in members for p in range(ports)}
    assert set(np.flatnonzero(matching >= 0).tolist()) == used
    assert set(matching[matching >= 0].tolist()) == used
    for port in range(ports):
        seen, at = [], members[0]
        for _ in members:
            seen.append(at)
            at = int(matching[at * ports + port]) // ports
        assert at == members[0]
        assert sorted(seen) == sorted(members)


@given(groups, st.sampled_from([2, 4, 6]))
def test_rings_on_paired_ports_can_be_held_by_duplex_ports(members: list[int], ports: int) -> None:
    """The matching is an involution without fixed points: a switch of duplex fibres holds it."""
    matching = to_matching(ring(members, range(ports), ports), ports * (max(members) + 1))
    sources = np.flatnonzero(matching >= 0)
    assert (matching[matching[sources]] == sources).all()
    assert (matching[sources] != sources).all()


@given(groups, st.booleans())
def test_neighbours_meet_in_both_directions(members: list[int], closed: bool) -> None:
    """On two ports each pair of neighbouring stages has a circuit there and one back."""
    circuits = line(members, 0, 1, 2, closed=closed) // 2
    pairs = list(pairwise(members))
    pairs += [(members[-1], members[0])] if closed else []
    assert sorted(map(tuple, circuits.tolist())) == sorted(pairs + [(b, a) for a, b in pairs])


def test_one_port_meets_the_next_stage_only() -> None:
    """A single port has one partner to send to, so the line has one direction."""
    assert line([4, 2, 0], 0, 0, 1, closed=False).tolist() == [[4, 2], [2, 0]]


@given(groups, st.integers(1, 4))
def test_shifts_are_an_all_to_all(members: list[int], ports: int) -> None:
    """Every ordered pair meets exactly once, in the fewest rounds that the ports allow."""
    rounds = shifts(members, range(ports), ports)
    for circuits in rounds:
        to_matching(circuits, ports * (max(members) + 1))
    met = np.concatenate(rounds) // ports
    assert len(np.unique(met, axis=0)) == len(met) == len(members) * (len(members) - 1)
    assert len(rounds) == -(-(len(members) - 1) // ports)


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 6), st.integers(0, 100), st.integers(1, 2))
def test_unequal_parts_all_arrive(n: int, seed: int, ports: int) -> None:
    """Replayed: circuits held long enough for every pair, each round a matching of the switch."""
    size_bytes = np.random.default_rng(seed).integers(0, 9, size=(n, n))
    np.fill_diagonal(size_bytes, 0)
    members = np.arange(n) + 3
    limits = Limits(iterations=2)
    rounds = scatter(
        members, size_bytes, ports - 1, ports, rate_bytes_per_s=2.0, delay_s=0.5, limits=limits
    )
    left = size_bytes.astype(float)
    for circuits, duration_s in rounds:
        to_matching(circuits, ports * (n + 3))
        assert (circuits % ports == ports - 1).all()
        sender, receiver = (circuits // ports - 3).T
        left[sender, receiver] -= 2.0 * duration_s
    assert (left <= 1e-9).all()


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_halving_brings_every_part_to_its_owner(n: int) -> None:
    """Replayed: each round, keep the half of the own side; at the end all is summed up once."""
    sums = np.ones((n, n), dtype=int)  # sums[member, part]: how many contributions it holds
    for circuits in halving(range(n), 0, 1):
        partner = to_matching(circuits, n)
        assert (partner[partner] == np.arange(n)).all()
        sums = sums + sums[partner]
    assert (sums.diagonal() == n).all()


@pytest.mark.parametrize("n", [1, 2, 5, 8, 11])
def test_a_tree_collects_from_everyone(n: int) -> None:
    """Replayed: in the end the first member has heard of all, each once."""
    held = [{k} for k in range(n)]
    for circuits in tree(range(n), 0, 1):
        to_matching(circuits, n)
        both = {tuple(row) for row in circuits.tolist()}
        assert both == {(b, a) for a, b in both}
        for parent, child in (pair for pair in both if pair[0] < pair[1]):
            assert not held[child] & held[parent]
            held[parent] |= held[child]
    assert held[0] == set(range(n))


def test_what_cannot_be_connected_is_refused() -> None:
    """A group that cannot be halved, a port twice, a port beyond the switch: named."""
    with pytest.raises(InputError, match="group of 3: recursive halving needs a power of two"):
        halving([0, 1, 2], 0, 1)
    twice = np.concatenate([ring([0, 1], [0], 1), ring([1, 2], [0], 1)])
    with pytest.raises(InputError, match="transmit port 1 is in two circuits"):
        to_matching(twice, 3)
    with pytest.raises(InputError, match="transmit port 2: the switch has 2 of them"):
        to_matching(ring([0, 2], [0], 1), 2)


def test_a_group_of_one_needs_no_circuit() -> None:
    """It talks to nobody."""
    assert len(ring([3], [0, 1], 2)) == 0
    assert shifts([3], [0], 1) == []
