"""Who gets which machines, and which ports of a switch, when jobs share them."""

from __future__ import annotations

from optmatch.problems import Tenancy
from optmatch.solvers.method import Method, Run


def _negotiated() -> Run:
    from optmatch.solvers.sharing.tenancy import solve

    return solve


TENANCY_METHODS = (
    Method(
        "negotiated",
        Tenancy,
        _negotiated,
        "neighbouring ports for each job, and a search over the slots in which jobs meet",
    ),
)
"""Methods for jobs on the ports of one switch."""
