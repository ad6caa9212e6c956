"""The verifier of transitions refuses whatever is changed in a right answer."""

import html
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.io import dumps, loads
from optmatch.problems import BlockProof, Reroute, RoutingProof
from optmatch.solvers.reroutes.states import fill_rack, hold_matching
from optmatch.testing import reroutes as drawn
from optmatch.verify.reroutes import bounds
from tests.verify.rules import claim


@cache
def chip_lost() -> Any:
    """Replace a chip of a full rack."""
    return om.solve(replace(fill_rack(om.RackFabric()), failed_chips=(3,)), "greedy", seed=0)


@cache
def port_lost() -> om.Solution:
    """Move a port of a mesh to a spare."""
    state = hold_matching(om.HexMesh(4, 4, ports=8), [3, 4, 5, 0, 1, 2, -1, -1])
    return om.solve(replace(state, failed_ports=(1,)), "greedy", seed=0)


@cache
def room_made() -> om.Solution:
    """Break a cell such that a circuit of another job has to make room."""
    state = hold_matching(om.HexMesh(4, 4, ports=10), [5, 6, 7, 8, 9, 0, 1, 2, 3, 4])
    for cell in range(state.fabric.n_cells):
        found = om.solve(replace(state, dead_cells=(cell,)), "greedy", seed=0)
        if found.stats.get("disturbed", 0):
            return found
    raise AssertionError("no cell of this mesh makes others move")


@pytest.mark.parametrize("most", [720, 1])
def test_the_bounds_of_problem_and_verifier_agree(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are computed twice; where not all handovers are looked at, no higher."""
    monkeypatch.setattr(bounds, "_MOST_HANDOVERS", most)
    switches = (
        om.HexMesh(2, 2, ports=6),
        om.SpankeBenes(5),
        om.Benes(8),
        om.HexMesh(2, 2, tx=4, rx=4),
    )
    found: set[tuple[bool, bool]] = set()
    for seed in range(200):
        rng = np.random.default_rng(seed)
        fabric: Any = (*switches, *drawn._RACKS)[seed % 8]
        cells = fabric.graph is not None
        state = (drawn.draw_state if cells else drawn.draw_rack_state)(fabric, rng)
        problem = drawn.fail_something(state, rng)
        bound: Any = om.verify(problem, claim(problem)).figures["lower_bound_recomputed"]
        known: Any = problem.lower_bound()
        assert bound == known or (most == 1 and np.inf not in (bound, known) and bound < known)
        found.add((bound == np.inf, bool(problem.lost)))
    assert len(found) == 4


@pytest.mark.parametrize("name", ["disturbed", "changed", "cells_set", "length"])
def test_claims_are_recomputed(name: str) -> None:
    solution = room_made()
    wrong = replace(solution, stats={**solution.stats, name: solution.stats[name] + 1})
    assert not om.verify(solution.problem, wrong).ok


@pytest.mark.parametrize("level", range(5))
@pytest.mark.parametrize("make", [room_made, chip_lost])
def test_every_level_is_a_whole_number(make: Callable[[], om.Solution], level: int) -> None:
    """One more or less is seen, however large the others are; one number says nothing."""
    solution = make()
    open_end: Any = {"status": om.Status.FEASIBLE, "limit": om.Limit.TIME}

    def higher(levels: Any) -> Any:
        return tuple(part + (k == level) for k, part in enumerate(levels))

    claim = replace(solution, objective=higher(solution.objective), **open_end)
    (violation,) = om.verify(solution.problem, claim).violations
    assert (violation.where, violation.expected) == ("objective", solution.objective)
    nothing: Any = {"status": om.Status.UNKNOWN, "limit": om.Limit.TIME, "answer": None}
    bound = higher(solution.lower_bound)
    claim = replace(solution, **nothing, objective=None, lower_bound=bound, stats={})
    (violation,) = om.verify(solution.problem, claim).violations
    assert violation.rule == "the lower bound is supported"
    claim = replace(solution, objective=1.0, lower_bound=-np.inf, **open_end)
    assert not om.verify(solution.problem, claim).valid


def test_the_gap_is_that_of_the_first_level_that_differs() -> None:
    solution = room_made()
    levels: Any = solution.objective
    assert (levels[0], solution.lower_bound[0]) == (1, 0)
    assert solution.gap == 1.0
    assert chip_lost().gap == 0.0
    assert loads(dumps(solution)) == solution
    for wrong in ((1, 0), 5.0, (0, 1, 2, 3, 4.5)):
        with pytest.raises(om.InputError, match=r"level|whole number"):
            replace(solution, lower_bound=wrong)


def cut_off() -> Reroute:
    """Cut all fibres that leave a server."""
    rack = om.RackFabric()
    state = fill_rack(rack)
    out = np.flatnonzero(rack.edges[rack.edge_of_fibre][:, 0] == 3)
    return replace(state, failed_fibres=tuple(out.tolist()))


def test_a_cut_proves_that_nothing_helps() -> None:
    solution = om.solve(cut_off(), "ilp", seed=0)
    assert solution.status is om.Status.INFEASIBLE
    assert solution.certificate.servers.tolist() == [3]
    assert om.verify(solution).ok


@pytest.mark.parametrize("method", ["greedy", "ilp"])
@pytest.mark.parametrize(("end", "leaving"), [(0, True), (-1, False)])
def test_a_block_proves_that_nothing_helps(method: str, end: int, leaving: bool) -> None:
    """A chip with all ports in use has no other way out, or in, than its first cells."""
    rack = om.RackFabric((2, 2, 2), (2, 1, 1), fibres=4, interposer=om.Benes(32))
    state = fill_rack(rack, (((0, 0, 0), (2, 2, 2)),))
    problem = replace(state, dead_cells=(state.circuit_routes[0][end] // 4,))
    solution = om.solve(problem, method, seed=0)
    proof = solution.certificate
    assert solution.status is om.Status.INFEASIBLE
    assert isinstance(proof, BlockProof)
    assert proof.leaving == leaving
    assert loads(dumps(solution)) == solution
    assert om.verify(problem, solution).ok


def test_proofs_of_handovers_are_checked() -> None:
    """One proof for each way to hand over, in order; without them infeasible is a mere claim."""
    state = hold_matching(om.HexMesh(3, 3, ports=8), [1, 0, 3, 2, 5, 4, -1, -1])
    solution = om.solve(replace(state, dead_cells=(22,)), "ilp", seed=0)
    assert solution.status is om.Status.INFEASIBLE
    assert "links" in solution.stats["reason"]
    assert om.verify(solution.problem, replace(solution, stats={})).ok
    (proof,) = solution.certificate
    cheap = replace(proof, prices=np.zeros_like(proof.prices))
    for wrong in ((), (None,), (cheap,), (proof, proof)):
        claim = replace(solution, certificate=wrong, stats={})
        assert not om.verify(solution.problem, claim).ok


def test_circuits_of_proofs_are_in_the_order_of_their_smaller_ports() -> None:
    """Circuits 0 to 3 and 1 to 2 both need link 7; the first one is split on its own way."""
    state = hold_matching(om.HexMesh(1, 2, ports=[0, 3, 10, 1, 4]), [3, 4, -1, 0, 1])
    problem = replace(state, spares=(2,), failed_ports=(4,))
    fabric: Any = problem.fabric
    proof_of: Any = RoutingProof
    prices = np.zeros((3, fabric.graph.links.count), dtype=np.int64)
    prices[2, 7] = 1
    first_terminal = int(fabric.source_terminals[0])
    proofs = [
        proof_of(
            circuit=[circuit, -1, -1],
            terminal=[first_terminal, -1, -1],
            one_way=[0, 0, 0],
            children=[[1, 2], [-1, -1], [-1, -1]],
            prices=prices,
            infeasible=[0, 1, 1],
        )
        for circuit in (0, 1)
    ]
    told = [om.verify(problem, claim(problem, certificate=(proof,))).ok for proof in proofs]
    assert told == [True, False]


def test_a_notebook_says_what_is_done() -> None:
    """In a frame: how many circuits lose light, and each that is raised at the spare."""
    from optmatch.plotting import solution_html

    frame = re.search(r'<iframe srcdoc="([^"]*)"', solution_html(chip_lost()))
    assert frame
    page = html.unescape(frame[1])
    assert "the failure: 12 circuits without light" in page
    raised = set(re.findall(r"set up circuit (\d+): port", page))
    to_spare = re.findall(r'"circuit (\d+): chip (\d+) to chip (\d+)"', page)
    assert raised == {name for name, *chips in to_spare if "60" in chips}
    assert len(raised) == 12


def test_the_picture_of_a_rack_has_every_role() -> None:
    """Lost and spare chips, neighbours with new circuits, and the fibres that are passed."""
    from optmatch.plotting import plot_transition, transition_data

    data = transition_data(chip_lost())
    assert np.flatnonzero(data.role == 3).tolist() == [3]
    assert np.flatnonzero(data.role == 4).tolist() == [60]
    assert np.flatnonzero(data.role == 5).tolist() == [61, 62, 63]
    assert (data.circuits == 60).any(axis=1).all()
    assert (data.role[data.circuits[data.circuits != 60]] == 2).all()
    edges = {tuple(edge) for edge in chip_lost().problem.units.edges.tolist()}
    assert {tuple(edge) for edge in data.fibres.tolist()} <= edges
    assert len(np.unique(data.chips, axis=0)) == 64
    assert plot_transition(chip_lost()).axes[0].get_title() == "chip 3 to 60: 12 circuits change"


def test_a_picture_needs_a_transition() -> None:
    from optmatch.plotting import plot_transition, transition_data

    with pytest.raises(om.InputError, match="a drawing of a rack needs one"):
        transition_data(port_lost())
    other = om.solve(om.AllToAll(om.IdealSwitch(2)), seed=0)
    for draw in (plot_transition, transition_data):
        with pytest.raises(om.InputError, match="kind all-to-all: this picture is of reroute"):
            draw(other)
