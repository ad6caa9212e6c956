"""The rules of transitions: the spare of each lost unit, the new circuits, and the cost."""

from __future__ import annotations

import numpy as np

from optmatch.fabrics.light import trace
from optmatch.problems import Reroute, Transition
from optmatch.problems.reroutes.transition import SET
from optmatch.verify.report import Findings
from optmatch.verify.reroutes.failure import Failure, split_by_beam
from optmatch.verify.reroutes.steps import replay_steps

LEVELS = ("disturbed", "changed", "cells_set", "worst_loss_centidb", "length")


def replay_transition(failure: Failure, transition: Transition, findings: Findings) -> bool:
    """Apply all rules of a transition; tell whether its objective could be computed."""
    problem, before = failure.problem, len(findings.violations)
    _check_numbers(problem, transition, findings)
    if len(findings.violations) > before:
        findings.skipped.append("routes and steps: circuits that do not exist")
        return False
    _check_moves(failure, transition, findings)
    _check_ends(failure, transition, findings)
    if failure.graph is None and len(findings.violations) == before:
        _check_fibres(failure, transition, findings)
    if len(findings.violations) > before:
        findings.skipped.append("steps: the circuits at the end are not right")
        return False
    if not replay_steps(failure, transition, findings):
        findings.skipped.append("light: the steps cannot be taken")
        return False
    if failure.graph is not None:
        _check_routes(failure, transition, findings)
    _add_figures(failure, transition, findings)
    return True


def _check_numbers(problem: Reroute, transition: Transition, findings: Findings) -> None:
    """All that is spoken of exists, and circuits are listed once."""
    changed = transition.changed.tolist()
    rule = "changed circuits exist, and ascend"
    exist = all(0 <= circuit < len(problem.circuits) for circuit in changed)
    findings.expect(rule, "changed", exist and changed == sorted(set(changed)), True)
    most = problem.units.n_fibres
    for k, route in enumerate(transition.routes if problem.fabric.graph is None else ()):
        if not all(0 <= fibre < most for fibre in route):
            findings.refuse("fibres exist", f"routes[{k}]", route, f"0 .. {most - 1}")


def _check_moves(failure: Failure, transition: Transition, findings: Findings) -> None:
    """Each lost unit has a live spare of its own, and no other unit moves."""
    lost, spares = transition.moves[:, 0].tolist(), transition.moves[:, 1].tolist()
    rule = "what is lost is taken over, and nothing else"
    findings.expect(rule, "moves", sorted(lost), sorted(failure.lost))
    for k, spare in enumerate(spares):
        rule = "a live spare takes over"
        findings.expect(rule, f"moves[{k}, 1] = {spare}", spare in failure.spares, True)
    findings.expect("each takes over one", "moves", len(set(spares)), len(spares))
    if failure.problem.units.through:
        return
    units, other_rack = failure.problem.units, dict[int, int]()
    size = units.n_units // units.racks
    for k, (chip, spare) in enumerate(zip(lost, spares, strict=True)):
        rack = other_rack.setdefault(chip // size, spare // size)
        rule, place = "racks move as a whole, chip by chip", rack * size + chip % size
        findings.expect(rule, f"moves[{k}, 1]", spare, place)


def _check_ends(failure: Failure, transition: Transition, findings: Findings) -> None:
    """Check that ends stay at their unit, or go to the spare of it, and that ports live."""
    changed = transition.changed.tolist()
    after = dict(transition.moves.tolist())
    for circuit, ports in zip(changed, transition.circuits.tolist(), strict=True):
        for end, port in enumerate(ports):
            where = f"circuit {circuit}, end {end}"
            unit = failure.unit(int(failure.problem.circuits[circuit, end]))
            rule = "an end stays at its unit, or goes to the spare"
            findings.expect(rule, where, failure.unit(port), after.get(unit, unit))
            findings.expect("a port in use is alive", where, port in failure.dead_ports, False)


def _check_fibres(failure: Failure, transition: Transition, findings: Findings) -> None:
    """Routes lead over live fibres from server to server."""
    rack = failure.problem.units
    ends, server_of_unit = rack.edges[rack.edge_of_fibre].tolist(), rack.server_of_unit.tolist()
    changed = transition.changed.tolist()
    rows = zip(changed, transition.circuits.tolist(), transition.routes, strict=True)
    for circuit, (source, destination), route in rows:
        where = f"route of circuit {circuit}"
        at = server_of_unit[failure.unit(source)]
        for fibre in route:
            tail, head = ends[fibre]
            findings.expect("a fibre starts where the light is", where, tail, at)
            passed = fibre != route[0] and tail < rack.n_servers and not rack.through
            findings.expect("no light passes a chip", where, passed, False)
            dead = fibre in failure.problem.failed_fibres
            findings.expect("a fibre in use is alive", where, dead, False)
            at = head
        end = server_of_unit[failure.unit(destination)]
        findings.expect("a route ends at its server", where, at, end)


def _final_light(failure: Failure, transition: Transition) -> list[list[int]]:
    """Trace the changed circuits through the cells as they are in the end."""
    states = failure.states.copy()
    for kind, cell, state in transition.steps.tolist():
        if kind == SET:
            states[cell] = state
    starts = failure.problem.fabric.source_terminals[transition.circuits[:, 0]]
    assert failure.graph is not None
    light = trace(failure.graph, states[None], starts[None].astype(np.int64))
    return split_by_beam(light, len(starts))


def _check_routes(failure: Failure, transition: Transition, findings: Findings) -> None:
    """Let the light go where the routes say."""
    for circuit, got, said in zip(
        transition.changed.tolist(),
        _final_light(failure, transition),
        transition.routes,
        strict=True,
    ):
        findings.expect("light takes its route", f"circuit {circuit}", tuple(got), said)


def _add_figures(failure: Failure, transition: Transition, findings: Findings) -> None:
    """Compute the levels of the objective."""
    problem, changed = failure.problem, transition.changed.tolist()
    cell_loss, fibre_loss = problem.loss_units
    worst = length = 0
    for route in transition.routes:
        cells, fibres = 0, len(route)
        if failure.graph is not None:
            cells = len(route)
            fibres = int(np.count_nonzero(failure.fibre_of_terminal[list(route)] >= 0))
        worst = max(worst, cells * cell_loss + fibres * fibre_loss)
        length += cells + fibres
    disturbed = sum(failure.foreign(circuit) for circuit in changed)
    levels = (disturbed, len(changed), transition.n_set, worst, length)
    findings.figures.update(zip(LEVELS, levels, strict=True))
    findings.figures["objective"] = levels
