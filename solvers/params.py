"""Parameters of searches: an object for each method that has some, each field with one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from optmatch.model.declarations import Count, Index, Positive, check_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """What can be set of a search; ``Annotated`` types have the range and a line for users."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllToAllParams(Params):
    """Parameters of method `negotiated` for all-to-alls."""

    starts: Annotated[Count, "how often the search begins without a limit"] = 4
    moves_per_slot: Annotated[Count, "exchanges that bring nothing, until it begins anew"] = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandParams(Params):
    """Parameters of method `best` for demands."""

    rebuilds: Annotated[Index, "parts rebuilt without a limit, fewer where slots are many"] = 100
    decompositions: Annotated[Count, "for fewest matchings: those drawn without a limit"] = 200
    orders: Annotated[Index, "for weighted groups: orders tried without a limit"] = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingParams(Params):
    """Parameters of method `negotiated` for one matching."""

    restarts: Annotated[Count, "negotiations without a limit of iterations"] = 40
    patience: Annotated[Count, "negotiations without any routes, until a proof is sought"] = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementParams(Params):
    """Parameters of method `best` for placements."""

    exchanges: Annotated[Count, "all-to-all: exchanges of tabu search for each threshold"] = (
        100_000
    )
    eigenvalue_steps: Annotated[Index, "all-to-all: decompositions for each threshold"] = 150
    bound_step_db: Annotated[Positive, "how exact the bound is sought, in dB"] = 0.02
    ring_work_s: Annotated[Positive, "ring: work of CP-SAT for each threshold"] = 5.0
    moves: Annotated[Count, "demand: moves of min-conflicts for each threshold"] = 300_000
    trials: Annotated[Index, "demand: trials of shaving for each threshold"] = 1500
    annealing_steps: Annotated[Count, "least sum: steps of annealing, each time"] = 1_000_000
    starts: Annotated[Count, "least sum: how often annealing begins"] = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TenancyParams(Params):
    """Parameters of method `negotiated` for tenancies."""

    moves_per_slot: Annotated[Index, "exchanges for each slot, for one choice of ports"] = 96
    most_moves: Annotated[Index, "exchanges of one choice of ports, however many slots"] = 6000
