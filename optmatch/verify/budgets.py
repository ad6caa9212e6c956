"""Link budgets of ideal switches: which circuits lose too much, counted from the stated losses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric, Faulty, IdealSwitch, SelectedPorts
from optmatch.model import IDLE
from optmatch.verify.report import Findings, Rule

WITHIN_BUDGET = Rule("a circuit keeps to its link budget")


def losses_of(fabric: Fabric) -> NDArray[np.float64] | None:
    """Return ``loss_db[source, destination]`` of a switch without cells; None if not stated.

    Only an ideal switch states losses, also within faults or as selected ports.
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
    """Return the most dB that a circuit at each port may lose; infinite if not stated."""
    if isinstance(fabric, Faulty):
        return budgets_of(fabric.fabric)
    if isinstance(fabric, SelectedPorts):
        return budgets_of(fabric.fabric)[list(fabric.chosen)]
    budget_of_port = np.full(fabric.n_ports, np.inf)
    if isinstance(fabric, IdealSwitch) and fabric.budget_db is not None:
        budget_of_port[:] = fabric.budget_db
    return budget_of_port


def find_over_budget(fabric: Fabric) -> NDArray[np.bool_]:
    """Find the circuits that lose more than the link budget of either end allows.

    Between bidirectional ports either direction counts. All False where no losses are stated.
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
    """Check that all circuits keep to their link budgets; set ``worst_circuit_loss_db``."""
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
