"""Studies of racks: slices that come and go, spares, and what a failed chip disturbs."""

from optmatch.studies.intervals import Estimate, estimate
from optmatch.studies.reroutes.blast import BlastRadius, measure_blast
from optmatch.studies.reroutes.spares import SpareCover, cover_failures
from optmatch.studies.slices.arrivals import Arrival, draw_arrivals, read_arrivals
from optmatch.studies.slices.fragmented import Placed, fill_fragmented
from optmatch.studies.slices.replay import RULES, Outcome, replay
from optmatch.studies.slices.tenants import Tenant, compare_tenants

__all__ = [
    "RULES",
    "Arrival",
    "BlastRadius",
    "Estimate",
    "Outcome",
    "Placed",
    "SpareCover",
    "Tenant",
    "compare_tenants",
    "cover_failures",
    "draw_arrivals",
    "estimate",
    "fill_fragmented",
    "measure_blast",
    "read_arrivals",
    "replay",
]
