"""Resources and jobs: the resources, the number that each job wants, and its requirements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    Axes,
    Given,
    GivenOrNone,
    InputError,
    Range,
    Value,
    check_fields,
    check_size,
    given,
    integer,
    number,
)
from optmatch.model.numbers import check_length, refuse_entries

Table = Annotated[Given[np.float64], Axes(2)]
Times = Annotated[GivenOrNone[np.float64], Range(0, 1e100)]
Places = Annotated[GivenOrNone[np.int32], Range(0)]


@dataclass(frozen=True, slots=True, eq=False)
class Resources(Value):
    """Ports or machines to be shared: their attributes, and when they are there.

    Parameters
    ----------
    public
        ``public[attribute, resource]``: the attributes of each resource.
    arrival_s
        When each is there first; None: from the start, 0.
    departure_s
        When each leaves; None: none leaves.
    plane, pod
        Where each lies; None: all on plane 0, or in pod 0.
    names
        The names of the attributes; may be empty.

    Raises
    ------
    InputError
        Naming the array of another length, the number that is not finite, or the departure that is
        not after its arrival.

    See Also
    --------
    Jobs : Who wants them.

    Examples
    --------
    >>> phones = Resources([[2.0, 4.0, 8.0], [16, 64, 64]], names=("cpu", "ram"))
    >>> phones.n_resources, phones.arrivals_s.tolist()
    (3, [0.0, 0.0, 0.0])
    """

    public: Table = given()
    arrival_s: Times = given(default=None, kw_only=True)
    departure_s: Times = given(default=None, kw_only=True)
    plane: Places = given(default=None, kw_only=True)
    pod: Places = given(default=None, kw_only=True)
    names: tuple[str, ...] = field(default=(), kw_only=True)
    removed_fields: ClassVar[tuple[str, ...]] = ("private",)

    def __post_init__(self) -> None:
        """Check all fields: tables have one length, and nobody leaves before it comes."""
        _check_table(self, "resources")
        check_length("names", self.names or None, len(self.public), "attributes")
        for name in ("arrival_s", "departure_s", "plane", "pod"):
            check_length(name, getattr(self, name), self.n_resources, "resources")
        if self.departure_s is not None:
            leaves_s = self.departure_s
            comes_s = self.arrivals_s
            refuse_entries(
                "departure_s",
                leaves_s <= comes_s,
                lambda k: f" = {leaves_s[k]:g}: after its arrival, {comes_s[k]:g}, is expected",
            )

    @property
    def n_resources(self) -> int:
        """The number of resources."""
        return int(self.public.shape[1])

    @property
    def attributes(self) -> list[NDArray[np.float64]]:
        """All attributes, an array each."""
        return list(self.public)

    @property
    def arrivals_s(self) -> NDArray[np.float64]:
        """When each is there first."""
        return _column(self.arrival_s, self.n_resources, 0.0)

    @property
    def departures_s(self) -> NDArray[np.float64]:
        """The time at which each leaves; infinite if it stays."""
        return _column(self.departure_s, self.n_resources, np.inf)

    @property
    def planes(self) -> NDArray[np.int32]:
        """The plane of each."""
        return _column(self.plane, self.n_resources, np.int32(0))


@dataclass(frozen=True, slots=True, eq=False)
class Jobs(Value):
    """Jobs that want resources: how many, of which kind, and since when.

    Parameters
    ----------
    demand
        How many resources each job wants.
    public
        ``public[attribute, job]``: the least that a resource must have, in the order of the
        attributes of `Resources`.
    arrival_s
        When each asks; None: at 0.
    all_or_nothing
        1 for a job that takes its whole demand or nothing; None: none does.
    fair_share
        How many resources a job is due, to judge fairness; None: its demand.
    plane_caps
        ``plane_caps[job, plane]``: how many resources of a plane a job takes at most; None: any.

    Raises
    ------
    InputError
        Naming the array of another length, or the number that is out of range or not finite.

    See Also
    --------
    Resources : What they want.

    Examples
    --------
    >>> jobs = Jobs([2, 1], [[4.0, 0.0], [0, 64]])
    >>> jobs.n_jobs, jobs.shares.tolist()
    (2, [2.0, 1.0])
    """

    demand: Annotated[Given[np.int64], Range(0)] = given()
    public: Table = given()
    arrival_s: Times = given(default=None, kw_only=True)
    all_or_nothing: Annotated[GivenOrNone[np.int8], Range(0, 1)] = given(
        default=None, kw_only=True
    )
    fair_share: Annotated[GivenOrNone[np.float64], Range(0, above=True)] = given(
        default=None, kw_only=True
    )
    plane_caps: Annotated[GivenOrNone[np.int64], Axes(2), Range(0)] = given(
        default=None, kw_only=True
    )
    removed_fields: ClassVar[tuple[str, ...]] = ("private", "rounds")

    def __post_init__(self) -> None:
        """Check all fields: tables and lists have one length, and demands can be added up."""
        _check_table(self, "jobs")
        for name in ("demand", "arrival_s", "all_or_nothing", "fair_share"):
            check_length(name, getattr(self, name), self.n_jobs, "jobs")
        check_length("plane_caps", self.plane_caps, self.n_jobs, "jobs")
        if sum(self.demand.tolist()) > 2**53:
            raise InputError("demand: at most 2**53 resources in all", where="demand")

    @property
    def n_jobs(self) -> int:
        """The number of jobs."""
        return int(self.public.shape[1])

    @property
    def bounds(self) -> list[NDArray[np.float64]]:
        """The least of all attributes, an array each."""
        return list(self.public)

    @property
    def arrivals_s(self) -> NDArray[np.float64]:
        """When each asks."""
        return _column(self.arrival_s, self.n_jobs, 0.0)

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Whether each takes all or nothing."""
        return _column(self.all_or_nothing, self.n_jobs, 0).astype(np.bool_)

    @property
    def shares(self) -> NDArray[np.float64]:
        """The number of resources that each job is due."""
        return self.demand.astype(np.float64) if self.fair_share is None else self.fair_share


def _check_table(value: Resources | Jobs, noun: str) -> None:
    """Check the fields of resources or jobs, which have one attribute at least."""
    check_fields(value)
    if not len(value.public):
        raise InputError(f"public: one attribute of {noun} or more is expected", where="public")


_MAX_DEMAND = 2**53
"""Larger numbers are no whole numbers of float64."""


def draw_shares(
    n_resources: int,
    n_jobs: int,
    rng: np.random.Generator,
    *,
    attributes: int = 4,
    levels: int = 4,
    load: float = 1.0,
) -> tuple[Resources, Jobs]:
    """Draw random resources and jobs, for tests and comparisons of methods.

    Attributes are from 0 to 1, and bounds are multiples of 1 / `levels`. Every job has a resource
    that can serve it, as its bounds are drawn from 0 up to the attributes of a random one: with 4
    levels, 0.6 allows 0, 0.25 and 0.5. Demands are from 0 to twice the mean; `load` is the demand
    of all jobs over the number of resources, on average.
    """
    n_resources = integer("resources", n_resources, at_least=1)
    n_attributes = integer("attributes", attributes, at_least=1)
    n_levels = integer("levels", levels, at_least=1)
    n_jobs = integer("jobs", n_jobs, at_least=1)
    check_size("entries", n_attributes * max(n_resources, n_jobs), "resources")
    mean_demand = number("load", load) * n_resources / n_jobs
    if 2 * mean_demand > _MAX_DEMAND:
        raise InputError(f"load = {load:g}: a demand is at most 2**53", where="load")

    # Each job asks for levels that one of the resources reaches.
    values = rng.random((n_attributes, n_resources))
    models = rng.integers(0, n_resources, n_jobs)  # of each job a resource that can serve it
    highest_level = np.floor(values[:, models] * n_levels)
    level = np.floor(rng.random((n_attributes, n_jobs)) * (highest_level + 1))
    demand = np.rint(rng.random(n_jobs) * 2 * mean_demand).astype(np.int64)
    return Resources(values), Jobs(demand, level / n_levels)


def _column(entries: NDArray[Any] | None, count: int, default: Any) -> NDArray[Any]:
    """Return the entry of each, which is the default of all where nobody gave any."""
    return np.full(count, default) if entries is None else entries
