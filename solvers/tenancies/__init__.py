"""Methods for jobs side by side on one switch."""

from __future__ import annotations

from optmatch.problems import Tenancy
from optmatch.solvers.method import Method, Run
from optmatch.solvers.params import TenancyParams


def _load() -> Run:
    from optmatch.solvers.tenancies.negotiation import plan_tenancy

    return plan_tenancy


METHODS = (
    Method(
        "negotiated",
        Tenancy,
        _load,
        "neighbouring ports for each job, and a search over the slots in which jobs meet",
        warm=True,
        params=TenancyParams,
    ),
)
