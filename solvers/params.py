"""Parameters of searches: an object for each method that has some, each field with one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from optmatch.model.declarations import Count, Index, check_fields


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

    rebuilds: Annotated[Index, "parts rebuilt without a limit; of pairs 20 times as many"] = 100
    decompositions: Annotated[Count, "for fewest matchings: those drawn without a limit"] = 200
    orders: Annotated[Index, "for weighted groups: orders tried without a limit"] = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingParams(Params):
    """Parameters of method `negotiated` for one matching."""

    restarts: Annotated[Count, "negotiations without a limit of iterations"] = 40
    patience: Annotated[Count, "negotiations without any routes, until a proof is sought"] = 8
