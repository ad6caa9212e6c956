"""Link budgets of ideal switches: which circuits lose too much, counted from the stated losses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric, Faulty, IdealSwitch, SelectedPorts
from optmatch.model import IDLE
from optmatch.verify.report import Findings, Rule

WITHIN_BUDGET = Rule("a circuit keeps to its link budget")


def losses_of(fabric: Fabric) -> NDArray[np.float64] | None:
    """Return the loss of each possible circuit of a switch without cells, fibre to fibre.

    Faults of ports change no losses. Where a fabric is some ports of a larger switch, it has the
    rows and columns of these ports.

    Parameters
    ----------
    fabric
        The switch. Only an ideal one states losses, also within faults or as selected ports.

    Returns
    -------
    float64 array or None
        ``loss_db[source, destination]``, shape (ports, ports), in dB; None if not stated.
    """
    if isinstance(fabric, IdealSwitch):
        return fabric.loss_db
    if isinstance(fabric, Faulty):
        return losses_of(fabric.fabric)
    if isinstance(fabric, SelectedPorts):
        loss_db = losses_of(fabric.fabric)
        chosen = list(fabric.chosen)
        return None if loss_db is None else loss_db[chosen][:, chosen]
    return None


def budgets_of(fabric: Fabric) -> NDArray[np.float64]:
    """Return the link budget of each port: the most that a circuit at this port may lose.

    Parameters
    ----------
    fabric
        The switch. Only an ideal one states budgets, also within faults or as selected ports.

    Returns
    -------
    float64 array
        ``budget_db[port]``, shape (ports,), in dB; infinite where nothing is stated.
    """
    if isinstance(fabric, Faulty):
        return budgets_of(fabric.fabric)
    if isinstance(fabric, SelectedPorts):
        return budgets_of(fabric.fabric)[list(fabric.chosen)]
    budget_of_port = np.full(fabric.n_ports, np.inf)
    if isinstance(fabric, IdealSwitch) and fabric.budget_db is not None:
        budget_of_port[:] = fabric.budget_db
    return budget_of_port


def find_over_budget(fabric: Fabric) -> NDArray[np.bool_]:
    """Find the circuits that lose more light than the link budget of either end allows.

    Parameters
    ----------
    fabric
        The switch. Where ports are bidirectional, a circuit is over its budget if it is in one of
        the two directions.

    Returns
    -------
    bool array
        ``is_over[source, destination]``, shape (ports, ports); all False where no losses are
        stated.
    """
    is_over = np.zeros((fabric.n_ports, fabric.n_ports), dtype=bool)
    loss_db = losses_of(fabric)
    if loss_db is None:
        return is_over
    budget_of_port = budgets_of(fabric)
    is_over |= loss_db > budget_of_port[:, np.newaxis]
    is_over |= loss_db > budget_of_port[np.newaxis, :]
    if fabric.bidirectional:
        is_over |= is_over.T.copy()  # a circuit leads both ways
    return is_over


def round_losses(fabric: Fabric) -> NDArray[np.int64] | None:
    """Return the stated losses in whole hundredths of a dB; None if they are not stated."""
    loss_db = losses_of(fabric)
    return None if loss_db is None else np.rint(100 * loss_db).astype(np.int64)


def check_budgets(fabric: Fabric, matchings: NDArray[np.int32], findings: Findings) -> None:
    """Check that all circuits keep to their link budgets, and note the loss of the worst one.

    A link budget is the most, in dB, that a circuit at a port may lose; the smaller one of both
    ends counts.

    Parameters
    ----------
    fabric
        The switch. Nothing is checked if it states no losses.
    matchings
        ``matchings[slot, source]``: the destination of a source, -1 if it is idle; shape
        (slots, ports).
    findings
        Gets the figure ``worst_circuit_loss_db``, and a violation for each circuit over budget.
    """
    loss_db = losses_of(fabric)
    if loss_db is None:
        return
    slots, sources = np.nonzero(matchings != IDLE)
    destinations = matchings[slots, sources]
    circuit_losses_db = loss_db[sources, destinations]
    findings.figures["worst_circuit_loss_db"] = float(circuit_losses_db.max(initial=0.0))

    budget_of_port = budgets_of(fabric)
    budgets_db = np.minimum(budget_of_port[sources], budget_of_port[destinations])
    for circuit in np.flatnonzero(circuit_losses_db > budgets_db):
        source = fabric.name_port(int(sources[circuit]))
        destination = fabric.name_port(int(destinations[circuit]), receives=True)
        findings.refuse(
            WITHIN_BUDGET,
            f"slot {slots[circuit]}, circuit from port {source} to port {destination}",
            f"{circuit_losses_db[circuit]:g} dB",
            f"at most {budgets_db[circuit]:g} dB",
        )
