"""The rules of transitions: the spare of each lost unit, the new circuits, and the cost."""

from __future__ import annotations

import numpy as np

from optmatch.model import IDLE
from optmatch.problems import Reroute, Transition
from optmatch.problems.reroutes.transition import SET
from optmatch.verify.budgets import check_budgets, round_losses
from optmatch.verify.report import Findings, Rule
from optmatch.verify.reroutes.failure import Failure, split_by_beam, trace_circuits
from optmatch.verify.reroutes.steps import replay_steps

LEVELS = ("disturbed", "changed", "cells_set", "worst_loss_centidb", "length")
"""The levels of the objective; each is a figure too."""

# What is spoken of
CHANGED_EXIST = Rule("changed circuits exist, and ascend")
FIBRES_EXIST = Rule("fibres exist")

# Spares
LOST_ARE_REPLACED = Rule("what is lost is taken over, and nothing else")
SPARE_IS_LIVE = Rule("a live spare takes over")
ONE_SPARE_EACH = Rule("each takes over one")
RACKS_MOVE_WHOLE = Rule("racks move as a whole, chip by chip")
END_FOLLOWS_UNIT = Rule("an end stays at its unit, or goes to the spare")
PORT_IS_ALIVE = Rule("a port in use is alive")

# Routes
FIBRE_STARTS_AT_LIGHT = Rule("a fibre starts where the light is")
NO_LIGHT_THROUGH_CHIP = Rule("no light passes a chip")
FIBRE_IS_ALIVE = Rule("a fibre in use is alive")
ROUTE_ENDS_AT_SERVER = Rule("a route ends at its server")
LIGHT_TAKES_ROUTE = Rule("light takes its route")


def replay_transition(failure: Failure, transition: Transition, findings: Findings) -> bool:
    """Check a repair after a failure by all rules; return whether its objective could be computed.

    Checked are numbers that exist, then spares, ends and fibres of circuits, then the steps, then
    the light in the end, or its loss. Each check is skipped if one before it failed.
    """
    # First all numbers must exist, since they are used as indices from there on.
    violations_before = len(findings.violations)
    _check_numbers(failure.problem, transition, findings)
    if len(findings.violations) > violations_before:
        findings.skipped.append("routes and steps: circuits that do not exist")
        return False

    _check_moves(failure, transition, findings)
    _check_ends(failure, transition, findings)
    if failure.graph is None and len(findings.violations) == violations_before:
        _check_fibres(failure, transition, findings)
    if len(findings.violations) > violations_before:
        findings.skipped.append("steps: the circuits at the end are not right")
        return False

    if not replay_steps(failure, transition, findings):
        findings.skipped.append("light: the steps cannot be taken")
        return False
    if failure.graph is not None:
        _check_light(failure, transition, findings)
    else:
        _check_budgets(failure.problem, transition, findings)
    _add_figures(failure, transition, findings)
    return True


def _check_numbers(problem: Reroute, transition: Transition, findings: Findings) -> None:
    """Check that all circuits and fibres exist, and that changed circuits ascend."""
    changed = transition.changed.tolist()
    exist = all(0 <= circuit < len(problem.circuits) for circuit in changed)
    ascend = changed == sorted(set(changed))
    findings.expect(CHANGED_EXIST, "changed", exist and ascend, True)
    if problem.fabric.graph is not None:
        return  # a route is one of cells there
    n_fibres = problem.units.n_fibres
    for number, route in enumerate(transition.routes):
        if not all(0 <= fibre < n_fibres for fibre in route):
            findings.refuse(FIBRES_EXIST, f"routes[{number}]", route, f"0 .. {n_fibres - 1}")


def _check_moves(failure: Failure, transition: Transition, findings: Findings) -> None:
    """Check that each lost unit has a live spare of its own, and that no other unit moves."""
    lost = transition.moves[:, 0].tolist()
    spares = transition.moves[:, 1].tolist()
    findings.expect(LOST_ARE_REPLACED, "moves", sorted(lost), sorted(failure.lost))
    for number, spare in enumerate(spares):
        where = f"moves[{number}, 1] = {spare}"
        findings.expect(SPARE_IS_LIVE, where, spare in failure.spares, True)
    findings.expect(ONE_SPARE_EACH, "moves", len(set(spares)), len(spares))
    if not failure.problem.units.through:
        _check_racks_move_whole(failure, lost, spares, findings)


def _check_racks_move_whole(
    failure: Failure, lost: list[int], spares: list[int], findings: Findings
) -> None:
    """Check that all chips of a lost rack go to the same places of one other rack."""
    units = failure.problem.units
    chips_per_rack = units.n_units // units.racks
    spare_rack_of: dict[int, int] = {}  # by lost rack, as its first chip says
    for number, (chip, spare) in enumerate(zip(lost, spares, strict=True)):
        rack = chip // chips_per_rack
        spare_rack = spare_rack_of.setdefault(rack, spare // chips_per_rack)
        expected = spare_rack * chips_per_rack + chip % chips_per_rack
        findings.expect(RACKS_MOVE_WHOLE, f"moves[{number}, 1]", spare, expected)


def _check_ends(failure: Failure, transition: Transition, findings: Findings) -> None:
    """Check that ends stay at their unit, or go to its spare, and that their ports live."""
    spare_of = dict(transition.moves.tolist())
    changed = transition.changed.tolist()
    for circuit, ports in zip(changed, transition.circuits.tolist(), strict=True):
        for end, port in enumerate(ports):
            where = f"circuit {circuit}, end {end}"
            unit_before = failure.unit(int(failure.problem.circuits[circuit, end]))
            expected = spare_of.get(unit_before, unit_before)
            findings.expect(END_FOLLOWS_UNIT, where, failure.unit(port), expected)
            findings.expect(PORT_IS_ALIVE, where, port in failure.dead_ports, False)


def _check_fibres(failure: Failure, transition: Transition, findings: Findings) -> None:
    """Check that routes lead over live fibres from server to server, where there are no cells."""
    units = failure.problem.units
    ends_of_fibre = units.edges[units.edge_of_fibre].tolist()
    changed = transition.changed.tolist()
    routed = zip(changed, transition.circuits.tolist(), transition.routes, strict=True)
    for circuit, (source, destination), route in routed:
        where = f"route of circuit {circuit}"
        # Where the light is: a server, or a switch between racks with a number after all servers.
        server = int(units.server_of_unit[failure.unit(source)])
        for fibre in route:
            tail, head = ends_of_fibre[fibre]
            findings.expect(FIBRE_STARTS_AT_LIGHT, where, tail, server)
            # Behind its first fibre a route may pass switches, but servers only if light can.
            is_first = fibre == route[0]
            passes_chip = not is_first and tail < units.n_servers and not units.through
            findings.expect(NO_LIGHT_THROUGH_CHIP, where, passes_chip, False)
            is_dead = fibre in failure.problem.failed_fibres
            findings.expect(FIBRE_IS_ALIVE, where, is_dead, False)
            server = head
        expected = int(units.server_of_unit[failure.unit(destination)])
        findings.expect(ROUTE_ENDS_AT_SERVER, where, server, expected)


def _check_light(failure: Failure, transition: Transition, findings: Findings) -> None:
    """Check that light takes the stated routes through the cells as they are in the end."""
    assert failure.graph is not None
    states = failure.states.copy()
    for kind, cell, state in transition.steps.tolist():
        if kind == SET:
            states[cell] = state
    light = trace_circuits(failure.problem, failure.graph, states, transition.circuits)
    traced = split_by_beam(light, len(transition.circuits))
    changed = transition.changed.tolist()
    for circuit, route, stated in zip(changed, traced, transition.routes, strict=True):
        findings.expect(LIGHT_TAKES_ROUTE, f"circuit {circuit}", tuple(route), stated)


def _check_budgets(problem: Reroute, transition: Transition, findings: Findings) -> None:
    """Check that the changed circuits of an ideal switch keep to their link budgets."""
    matching = np.full((1, problem.fabric.n_ports), IDLE, dtype=np.int32)
    sources, destinations = transition.circuits.T
    matching[0, sources] = destinations
    check_budgets(problem.fabric, matching, findings)


def _add_figures(failure: Failure, transition: Transition, findings: Findings) -> None:
    """Compute the levels of the objective, and add them as figures.

    They are disturbed circuits (of jobs that the failure did not hit), changed circuits, cells
    set, the worst loss of a changed circuit in 0.01 dB, and the cells and fibres of all changed
    circuits.
    """
    worst_loss = 0  # in hundredths of a dB
    length = 0
    for route in transition.routes:
        if failure.graph is None:
            n_cells = 0
            n_fibres = len(route)
        else:
            n_cells = len(route)
            fibres = failure.fibre_of_terminal[list(route)]
            n_fibres = int(np.count_nonzero(fibres >= 0))
        cell_loss, fibre_loss = failure.problem.loss_units
        worst_loss = max(worst_loss, n_cells * cell_loss + n_fibres * fibre_loss)
        length += n_cells + n_fibres

    # A switch without cells may state the losses of its circuits.
    stated_losses = round_losses(failure.problem.fabric)
    if stated_losses is not None:
        sources, destinations = transition.circuits.T
        worst_loss = int(stated_losses[sources, destinations].max(initial=0))

    changed = transition.changed.tolist()
    n_disturbed = sum(failure.foreign(circuit) for circuit in changed)
    levels = (n_disturbed, len(changed), transition.n_set, worst_loss, length)
    findings.figures.update(zip(LEVELS, levels, strict=True))
    findings.figures["objective"] = levels
