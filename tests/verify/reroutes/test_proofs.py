"""Proofs that no transition exists hold if and only if counting anew says so."""

from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.problems import BlockProof, CutProof, Reroute
from optmatch.testing import reroutes as drawn
from optmatch.verify.reroutes import bounds
from optmatch.verify.reroutes.replay import assess_failure
from tests.verify.rules import claim
from tests.verify.rules.routing import ROUND

JOINED = om.RackFabric((2, 2, 2), (1, 1, 1), fibres=1, racks=2, joined=True)
CELLS = [
    om.RackFabric((1, 1, 2), (1, 1, 1), fibres=1, ports_per_chip=2, interposer=interposer)
    for interposer in (om.Benes(4), om.HexMesh(1, 1, tx=[0, 2, 4, 6], rx=[1, 3, 5, 7]))
]


def shows(problem: Reroute, proof: Any) -> bool:
    """Tell whether the verifier takes a proof that there is no transition."""
    report = om.verify(problem, claim(problem, certificate=proof))
    return all(v.rule != "the certificate is a proof" for v in report.violations)


def units(problem: Reroute) -> tuple[list[tuple[int, int]], set[int], list[int]]:
    """Return the units that circuits join, those that are lost, and the live spares."""
    per_unit = problem.units.ports_per_unit
    pairs = [(a // per_unit, b // per_unit) for a, b in problem.circuits.tolist()]
    return pairs, set(problem.lost), list(problem.live_spares)


@pytest.mark.parametrize("fabric", [*drawn._RACKS[:3], JOINED])
def test_a_cut_counts_what_leaves_for_the_best_handover(fabric: Any) -> None:
    """Handover by handover, edge by edge; circuits between two lost units do not count."""
    found = set()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        problem = drawn.fail_something(drawn.draw_rack_state(fabric, rng), rng)
        pairs, lost, spares = units(problem)
        most = fabric.n_fibres * int(rng.integers(1, 5)) // 4
        gone = rng.permutation(fabric.n_fibres)[:most]
        problem = replace(problem, failed_fibres=tuple(sorted({*gone.tolist()})))
        if set(problem.lost) != lost or len(lost) > len(spares):
            continue
        servers = rng.permutation(fabric.n_servers)[: rng.integers(1, fabric.n_servers)].tolist()
        at = fabric.server_of_chip.tolist()
        needed = min(
            sum(
                at[new.get(a, a)] in servers and at[new.get(b, b)] not in servers
                for a, b in pairs
                if not {a, b} <= lost
            )
            for taken in permutations(spares, len(lost))
            for new in [dict(zip(sorted(lost), taken, strict=True))]
        )
        through: dict[int, list[int]] = {}
        fibres = 0
        for fibre, edge in enumerate(fabric.edge_of_fibre.tolist()):
            if fibre not in problem.failed_fibres:
                u, v = fabric.edges[edge].tolist()
                if v >= fabric.n_servers:
                    through.setdefault(v, [0, 0])[0] += u in servers
                elif u >= fabric.n_servers:
                    through.setdefault(u, [0, 0])[1] += v not in servers
                else:
                    fibres += u in servers and v not in servers
        fibres += sum(map(min, through.values()))
        proved = shows(problem, CutProof(servers=sorted(servers)))  # type: ignore[arg-type]
        assert proved == (needed > fibres)
        found.add(proved)
    assert found == {False, True}


def test_a_block_is_all_that_light_can_pass() -> None:
    """The closure of all links says which ports light reaches around those of the block."""
    found = set()
    for seed in range(160):
        fabric: Any = CELLS[seed % 4 == 0]
        rng = np.random.default_rng(seed)
        state = drawn.draw_state(fabric, rng)
        broken = rng.choice(fabric.n_cells, int(rng.integers(0, 4)), replace=False)
        dead, stuck = broken[:2].tolist(), broken[2:].tolist()
        failed = rng.choice(fabric.n_fibres, int(rng.integers(0, 2))).tolist()
        problem = replace(
            state, dead_cells=tuple(dead), stuck_bar=tuple(stuck), failed_fibres=tuple(failed)
        )
        chip = int(rng.integers(problem.n_units))
        leaving = bool(rng.integers(2))
        if chip in problem.lost:
            continue
        whole = fabric.graph
        link_of = whole.links.of_terminal
        around = link_of[fabric.source_terminals if leaving else fabric.destination_terminals]
        own = [port for port in range(fabric.n_ports) if port // 2 == chip]
        links = {int(around[port]) for port in own[: rng.integers(0, 3)]}
        links |= set(rng.choice(whole.links.count, int(rng.integers(0, 2))).tolist())
        opens = np.zeros((len(whole.mate),) * 2, dtype=bool)  # from entered to entered
        out = np.zeros_like(opens)  # from entered to where it leaves the graph
        for terminal in range(len(whole.mate)):
            cell, side = divmod(terminal, 4)
            for state_of in (0, 1):
                if cell in dead or (cell in stuck and state_of):
                    continue
                left = 4 * cell + [[2, 3], [3, 2], [0, 1], [1, 0]][side][state_of]
                if int(link_of[left]) in links:
                    continue
                onward = int(whole.mate[left])
                if onward < 0:
                    out[terminal, left] = True
                elif problem.units.fibre_of_terminal[onward] not in failed:
                    opens[terminal, onward] = True
        reach = np.eye(len(opens), dtype=bool) | opens
        for _ in range(10):
            reach = reach.astype(np.float32) @ reach.astype(np.float32) > 0
        away = reach.astype(np.float32) @ out.astype(np.float32) > 0
        ends = {*fabric.destination_terminals.tolist()}
        for start in fabric.source_terminals.tolist():
            away[start] &= int(link_of[start]) not in links
            passed = ends.intersection(bounds._light_from(assess_failure(problem), [start], links))
            assert passed == ends.intersection(np.flatnonzero(away[start]).tolist())
        starts, goals = (own, range(fabric.n_ports)) if leaving else (range(fabric.n_ports), own)
        passes = any(
            away[fabric.source_terminals[a], fabric.destination_terminals[b]]
            for a in starts
            for b in goals
        )
        side = 0 if leaving else 1
        circuits = sum(port // 2 == chip for port in problem.circuits[:, side].tolist())
        proof = BlockProof(chips=[chip], links=sorted(links), leaving=leaving)  # type: ignore[arg-type]
        proved = shows(problem, proof)
        assert proved == (not passes and circuits > len(links))
        found.add(proved)
    assert found == {False, True}


def test_light_goes_on_to_the_first_terminal() -> None:
    """It comes round to the cell, and leaves by the other terminal alone."""
    cell: Any = SimpleNamespace(fabric=SimpleNamespace(graph=ROUND), failed_fibres=())
    failure: Any = SimpleNamespace(
        graph=ROUND,
        problem=cell,
        faults=np.full(1, -1, dtype=np.int8),
        fibre_of_terminal=np.full(4, -1),
    )
    assert set(bounds._light_from(failure, [1], set())) == {3}


def test_a_circuit_between_lost_units_crosses_nothing() -> None:
    """The next one leaves the units; spares are outside."""
    failure: Any = SimpleNamespace(
        problem=SimpleNamespace(circuits=np.array([[0, 1], [2, 3]])),
        lost={0, 1},
        spares={4, 5},
        unit=int,
    )
    inside = np.array([False, False, True, False, False, False])
    assert bounds._must_cross(failure, inside) == 1
