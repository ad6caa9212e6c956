"""Nouns without algorithms: schedule, solution, limits, events, errors."""

from optmatch.model.declarations import (
    Amount,
    Axes,
    Count,
    Index,
    Positive,
    Range,
    check_fields,
)
from optmatch.model.device import DEVICES, Device, find_device
from optmatch.model.errors import (
    FormatError,
    InfeasibleError,
    InputError,
    LimitReached,
    OptMatchError,
    SolverError,
    SolverUnavailable,
    TimeUp,
    VerificationError,
)
from optmatch.model.events import Bound, Event, NewBest, OnEvent, Tick, ignore
from optmatch.model.limits import (
    Clock,
    Limits,
    check_time,
    counted_time,
    running_clock,
    uncounted,
    uncounted_s,
    unlimited,
)
from optmatch.model.problem import Problem, unit_of
from optmatch.model.schedule import BAR, CROSS, FREE, IDLE, Schedule
from optmatch.model.scores import Score, gap_between, is_known, is_levels, write_score
from optmatch.model.sizes import SIZES, check_size, largest
from optmatch.model.solution import PROOFS, RTOL, Limit, Proof, Solution, Status
from optmatch.model.stats import Stats
from optmatch.model.values import FrozenMap, Value, frozen, integer, number

__all__ = [
    "Range",
    "Positive",
    "Index",
    "Count",
    "Amount",
    "Axes",
    "BAR",
    "CROSS",
    "DEVICES",
    "FREE",
    "IDLE",
    "PROOFS",
    "RTOL",
    "SIZES",
    "Bound",
    "Clock",
    "Device",
    "Event",
    "FormatError",
    "FrozenMap",
    "InfeasibleError",
    "InputError",
    "Limit",
    "LimitReached",
    "Limits",
    "NewBest",
    "OnEvent",
    "OptMatchError",
    "Problem",
    "Proof",
    "Schedule",
    "Score",
    "Solution",
    "SolverError",
    "SolverUnavailable",
    "Stats",
    "Status",
    "Tick",
    "TimeUp",
    "Value",
    "VerificationError",
    "find_device",
    "check_fields",
    "check_size",
    "check_time",
    "largest",
    "frozen",
    "gap_between",
    "ignore",
    "integer",
    "is_known",
    "is_levels",
    "number",
    "running_clock",
    "counted_time",
    "uncounted",
    "uncounted_s",
    "unlimited",
    "unit_of",
    "write_score",
]
