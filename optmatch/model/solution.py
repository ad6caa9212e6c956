"""The solution: the answer, what is proved about it, and why the method stopped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypedDict, get_args

from optmatch.model.declarations import Amount, FrozenMap, Index, Value, brief, check_fields
from optmatch.model.display import (
    dataframe,
    describe_question,
    figures_of,
    titled,
    view_of_solution,
)
from optmatch.model.errors import InputError
from optmatch.model.numbers import integer
from optmatch.model.problem import (
    Answer,
    Problem,
    Score,
    ScoreBound,
    gap_between,
    is_known,
    unit_of,
    write_score,
)
from optmatch.model.schedule import Schedule


class Stats(TypedDict, total=False):
    """Entries that `Solution.stats` may hold beside objective and bound.

    A method writes the statistics that it has. Plugins may add names of their own. The sentence
    below each name begins with the kinds of problem that it is for. The table of the manual is
    made of these sentences.

    See Also
    --------
    optmatch.model.Solution : The outcome that these figures belong to.

    Examples
    --------
    >>> from optmatch.model import Stats
    >>> sorted(Stats.__annotations__)[:2]
    ['algorithm', 'bound_by']
    """

    # The proof.
    reason: str
    """All kinds: why there is no answer."""
    bound_by: str
    """All kinds: the kind of search that found the bound or the infeasibility, if it left no
    certificate: ``"search"`` or ``"cp-sat"``."""
    bound_name: str
    """Collective: the name of what the bound counts: bytes, reach, distance, late, cut or
    steps."""
    dead_pairs: list[list[int]]
    """Routing, all-to-all, demand: pairs that no state of the cells connects, or whose circuit is
    over its link budget."""
    circuit_loss_bound_db: float
    """Collective: on a switch that states losses: a lower bound, in dB, on the loss of the worst
    circuit of this plan, for every order of ranks."""
    cut_circuits: list[list[int]]
    """Routing: circuits that together need more links than there are."""
    cut_links: list[str]
    """Routing: the links that the circuits of `cut_circuits` must share."""
    causes: list[str]
    """Routing, all-to-all: faults of the fabric that together forbid the answer."""
    causes_minimal: bool
    """Routing, all-to-all: whether an answer is possible as soon as any one of `causes` is
    repaired."""
    fewest_rounds_late: int
    """Collective: a lower bound on the rounds of an all-reduce after its late rank is ready."""

    # Size of the answer.
    slots: int
    """All-to-all, demand: slots of the schedule, over all planes."""
    rounded_to_s: float
    """Demand: with the objective ``"matchings"``, the tick to which demands were rounded because
    they have no common unit; optimal is meant of these, as the sum of the matchings is."""
    slots_lower_bound: int
    """All-to-all: a lower bound on the number of slots, by counting pairs or by link prices."""
    fewest_slots: str
    """All-to-all: if `slots` is larger than the number that counting gives: what is known about
    schedules with only that number of slots."""
    slots_routed: int
    """All-to-all: number of slots that had been routed when the method stopped without answer."""
    worst_route_cells: int
    """Routing, all-to-all: cells on the longest route."""
    toggles: int
    """All-to-all: cells that change their state, over all reconfigurations."""
    toggles_unordered: int
    """All-to-all: `toggles` before the slots were put in order."""
    toggles_ordered: int
    """All-to-all: `toggles` after the slots were put in order, before single slots were routed
    again for fewer toggles."""
    reconfigurations: int
    """Rail-job, collective: number of reconfigurations in a step, over all rails; of a collective
    the number of changes of circuits between rounds, over all planes if these change apart."""
    rounds: int
    """Collective: number of rounds of sends."""
    rounds_late: int
    """Collective: number of rounds that start when the last late rank is ready, or later."""
    algorithm: str
    """Collective: the algorithm that made the rounds."""
    topology: str
    """Collective: the graph that the circuits make, of the methods for several ports."""
    runners_up: list[str]
    """Collective: other methods with their times, the fastest first, as ``"ring 3.8e-05 s"``."""
    left_out: list[str]
    """Collective, with a time limit: methods for which the time was too short and which may have
    faster plans, with the seconds to make and check one: ``"ring 0.04 s, takes about 2 s to
    plan"``; of a search that did not end, ``"topologies 0.02 s, had too little time to end"``."""
    servers: int
    """Slice-allocation: number of servers of the slice."""
    racks: int
    """Slice-allocation: number of racks in which the slice lies, if the racks of the fabric are
    joined."""
    fibres: int
    """Slice-allocation: number of fibres that the circuits of the slice use."""
    longest_route_hops: int
    """Slice-allocation: number of hops of the longest route between two servers of the slice."""

    # Levels of the objective of a reroute.
    disturbed: int
    """Reroute: number of circuits that change although no circuit of their job was hit by the
    failure."""
    changed: int
    """Reroute: number of circuits that change."""
    cells_set: int
    """Reroute: number of cells whose state is set."""
    worst_loss_centidb: int
    """Reroute: loss of the worst new route, in hundredths of a dB."""
    length: int
    """Reroute: length of all new routes, in cells and fibres."""

    # Effort.
    compile_s: float
    """All kinds: time to compile or load compiled code in this call, no part of `time_s`."""
    decompositions: int
    """Demand: number of decompositions that were tried."""
    plans: int
    """Demand, all-to-all on a chip: number of plans that were tried."""
    cases: int
    """Routing: number of cases that the search has distinguished."""
    nodes: int
    """Slice-allocation: number of nodes of the search."""
    orders: int
    """Routing: number of orders of circuits that the example method for authors of methods has
    tried."""


RTOL = 1e-9
"""Relative tolerance between objectives and bounds that are sums of floats, and for no others."""


if TYPE_CHECKING:  # the status says whether it is there: no caller need ask for None
    Missing: TypeAlias = Any
    Found: TypeAlias = Answer | Any
else:
    Missing = None
    Found = {Answer: Any}  # what `Found[Answer]` is where hints are read

Proof = Literal["counting", "certificate", "search"]
"""The proof of status and lower bound: a count, a certificate in the solution, or a search."""

PROOFS: tuple[Proof, ...] = get_args(Proof)
"""From the strongest to the weakest."""


class Status(Enum):
    """What is proved.

    Examples
    --------
    >>> import optmatch as om
    >>> mesh = om.HexMesh(4, 4, ports=8)
    >>> om.solve(om.AllToAll(mesh), seed=0).status
    <Status.OPTIMAL: 'optimal'>
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


class Limit(Enum):
    """Why there is no proof; set exactly where the status is FEASIBLE or UNKNOWN.

    Examples
    --------
    >>> import optmatch as om
    >>> [limit.value for limit in om.Limit][:3]
    ['time', 'iterations', 'nodes']
    """

    TIME = "time"
    ITERATIONS = "iterations"
    NODES = "nodes"
    GAP = "gap"
    MEMORY = "memory"
    INTERRUPTED = "interrupted"
    EXHAUSTED = "exhausted"  # a heuristic that has finished


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution(Value, Generic[Answer]):
    """The outcome of a solve.

    Parameters
    ----------
    problem
        The question.
    schedule
        The answer, or None.
    answer
        A frozen object of the problem's own kind, where a schedule is not the whole answer.
    status
        What is proved. A schedule is there if and only if it is OPTIMAL or FEASIBLE.
    limit
        Why the method stopped without a proof; None with a proof.
    objective
        The value of the schedule, in the problem's unit; None without one. Of a `Reroute` a tuple
        of whole numbers, level by level.
    lower_bound
        No schedule can be better than this; infinite if INFEASIBLE. The form is that of
        `objective`.
    method
        The name of the method.
    seed
        The seed that was used, also where none was given.
    time_s
        Seconds spent.
    certificate
        What the verifier needs to check `lower_bound` where the problem's own bound is lower; or
        None.
    stats
        Further figures by name: plain numbers, strings and lists; `Stats` has their meanings.
    proof
        The proof of status and lower bound, as `optmatch.verify` found; None before it looked.
        `optmatch.solve` fills it in. A claim that rests on ``"search"`` is unproved.

    Raises
    ------
    InputError
        If the parts contradict each other.

    See Also
    --------
    Status : What is proved.
    Limit : Why there is no proof.

    Examples
    --------
    >>> import optmatch as om
    >>> solution = om.solve(om.AllToAll(om.HexMesh(4, 4, ports=8)), seed=0)
    >>> solution.objective, solution.lower_bound, solution.gap, solution.proof
    (274.0, 274.0, 0.0, 'counting')
    """

    problem: Problem[Answer]
    schedule: Schedule | Missing = None
    answer: Found[Answer] = None
    status: Status
    limit: Limit | None = None
    objective: Score | Missing = None
    lower_bound: ScoreBound = -math.inf
    method: str
    seed: Index | None = None
    time_s: Amount = 0.0
    certificate: Any = None
    stats: Mapping[str, Any] = field(default_factory=FrozenMap)
    proof: Proof | None = None

    def __post_init__(self) -> None:
        """Refuse a status, an answer, an objective and a bound that contradict each other.

        Optimal and infeasible are proved, and have no limit; all others were ended by one. An
        optimal or a feasible solution has an answer with its objective, others have none.
        """
        check_fields(self)
        has_answer = self.schedule is not None or self.answer is not None
        is_proved = self.status in (Status.OPTIMAL, Status.INFEASIBLE)

        # The status says whether there is an answer, and whether a limit left something open.
        if has_answer and self.status not in (Status.OPTIMAL, Status.FEASIBLE):
            raise InputError(f"status {self.status.value} with an answer")
        if not has_answer and self.status in (Status.OPTIMAL, Status.FEASIBLE):
            raise InputError(f"status {self.status.value} without an answer")
        if has_answer != (self.objective is not None):
            raise InputError("an objective is there if and only if an answer is")
        if is_proved != (self.limit is None):
            raise InputError(f"status {self.status.value} with limit {self.limit}")
        if self.objective is not None:
            self._check_bound(self.objective, self.lower_bound)

    def __repr__(self) -> str:
        """Return in one line the status, objective, bound, method, time and problem."""
        objective = ""
        if self.objective is not None:
            objective = f", objective={self.objective}"
        return (
            f"<Solution {self.status.value}{objective}, lower_bound={self.lower_bound}, "
            f"method={self.method!r}, time_s={self.time_s:.3g}, problem={brief(self.problem)}>"
        )

    def summary(self) -> str:
        """Return a few lines about the problem, the answer, and what is proved.

        Examples
        --------
        >>> import optmatch as om
        >>> mesh = om.HexMesh(4, 4, ports=8)
        >>> print(om.solve(om.Routing(mesh, [4, 3, 6, 1, 0, 7, 2, 5]), seed=0).summary())
        routing on hex mesh 4 x 4, 8 ports, by negotiated
        optimal: objective 44 cells, lower bound 44 cells (counting)
        slots: 1
        """
        question = describe_question(self.problem)
        lines = [f"{question}, by {self.method}", self._summarize_claim()]

        # Properties of the answer, or why there is none.
        if self.schedule is not None:
            slots = f"slots: {self.schedule.n_slots}"

            # Where fewer slots may do, the objective is not what is open first.
            fewest_slots = self._bound_of_open_slots()
            if fewest_slots is not None:
                slots += f", lower bound {fewest_slots}; fewer slots come before the objective"
            lines.append(slots)
        elif hasattr(self.answer, "summary"):
            lines.append(self.answer.summary())
            figures = figures_of(self.problem, self.answer)
            lines += [f"{name}: {value}" for name, value in figures.items()]
        elif self.answer is None:
            lines.append(str(self.stats.get("reason", "nothing found")))
        return "\n".join(lines)

    def _summarize_claim(self) -> str:
        """Return in one line the status, the limit, the objective, the bound and its proof.

        Limits that a user has set are told; that a method has nothing left to try is none of them.
        An example is ``optimal: objective 44 cells, lower bound 44 cells (counting)``.
        """
        unit = unit_of(self.problem)
        claim = self.status.value
        if self.limit not in (None, Limit.EXHAUSTED):
            claim += f" (limit: {self.limit.value})"
        if self.objective is not None:
            claim += f": objective {write_score(self.objective, unit)}"

        # A proof is that of a bound, or that nothing answers the problem.
        if not is_known(self.lower_bound) and self.status is Status.FEASIBLE:
            return claim + ", no lower bound"
        if is_known(self.lower_bound):
            claim += f", lower bound {write_score(self.lower_bound, unit)}"
        if self.proof:
            claim += f" ({self.proof})"
        return claim

    def _check_bound(self, objective: Score, bound: Score) -> None:
        """Refuse a lower bound that is above the objective, or below it where that is optimal.

        Levels are compared one after the other, and minus infinity stands for no bound.
        """
        if isinstance(objective, tuple) and isinstance(bound, tuple):
            if len(objective) != len(bound):
                raise InputError(f"objective {objective} and lower_bound {bound}: as many levels")
            is_above = bound > objective
            is_below = bound < objective
        elif isinstance(objective, tuple) or isinstance(bound, tuple):
            if bound != -math.inf:
                raise InputError(f"objective {objective} and lower_bound {bound}: levels in both")
            is_above = False
            is_below = True
        else:
            # Sums of floats may differ in their last digits from the bound that they reach.
            slack = RTOL * abs(objective)
            is_above = bound > objective + slack
            is_below = bound < objective - slack
        if is_above:
            raise InputError(f"lower_bound {bound} > objective {objective}")
        if is_below and self.status is Status.OPTIMAL:
            raise InputError(f"optimal, but lower_bound {bound} < objective {objective}")

    def plot(self, *, slot: int | None = None, ax: Any = None, title: str | None = None) -> Any:
        """Return a figure of matplotlib: one slot, or what suits the kind of answer.

        Parameters
        ----------
        slot
            The slot that is drawn, from 0; None for what suits the kind of answer.
        ax
            Axes of matplotlib to draw in; None makes a new figure.
        title
            What stands above it; None for what suits the kind of answer.

        Raises
        ------
        InputError
            If there is no such slot, or `ax` is none.

        Examples
        --------
        >>> import optmatch as om
        >>> om.solve(om.Collective("all-gather", 3, 3.0), "ring").plot().axes[0].get_ylabel()
        'rank'
        """
        if slot is not None:
            slot = integer("slot", slot, at_least=None)
        return titled(view_of_solution(self).draw(self, slot, ax), title, ax)

    def to_dataframe(self) -> Any:
        """Return the answer as a table of pandas.

        Returns
        -------
        pandas.DataFrame
            Of a schedule and of rails a row for each circuit, operation and reconfiguration, with
            its times; of a collective for each send; of a transition for each step, with what it
            does; of a slice for each circuit, with its ports and fibres; of shares for each
            resource, with its job.

        Raises
        ------
        InputError
            If there is no answer.
        optmatch.model.SolverUnavailable
            If pandas is not installed.

        Examples
        --------
        >>> import optmatch as om
        >>> solution = om.solve(om.Collective("all-gather", 3, 3.0), "ring")
        >>> solution.to_dataframe().columns.tolist()
        ['round', 'source', 'destination', 'chunk', 'kind', 'size_bytes']
        """
        if self.answer is None and self.schedule is None:
            raise InputError(f"a solution without an answer: {self.status.value}")
        return dataframe(view_of_solution(self).tabulate(self))

    def _repr_html_(self) -> str:
        """Show the solution in Jupyter, in its viewer."""
        from optmatch.plotting import solution_html

        return solution_html(self)

    def check_fits(self) -> None:
        """Refuse a schedule or an answer whose shapes and indices are not those of the problem.

        Whether it is right, `verify` tells; drawings and exports use its numbers as indices.
        Answers of plugins that have no ``check_fits`` are not checked.

        Raises
        ------
        InputError
            Naming the field, its value or shape, and what the problem allows.

        Examples
        --------
        >>> import optmatch as om
        >>> schedule = om.Schedule(matchings=[[1, 0, 2]], durations_s=[1.0])
        >>> schedule.check_fits(om.AllToAll(om.IdealSwitch(2)))
        Traceback (most recent call last):
            ...
        optmatch.model.errors.InputError: matchings has rows of 3 entries, the fabric needs 2
        """
        for part in (self.schedule, self.answer):
            check = getattr(part, "check_fits", None)
            if check is not None:
                check(self.problem)

    @property
    def gap(self) -> float:
        """(objective - lower bound) / objective; 0 if they agree, infinite without an answer.

        Of levels it is the gap of the first one that differs. So it is of an `AllToAll`, whose
        slots come before its objective: it is that of the slots while fewer of them may do.
        """
        if self.objective is None:
            return math.inf
        fewest_slots = self._bound_of_open_slots()
        if fewest_slots is not None:
            return gap_between(self.schedule.n_slots, fewest_slots)
        return gap_between(self.objective, self.lower_bound)

    def _bound_of_open_slots(self) -> int | None:
        """Return a lower bound on slots that come before the objective, if fewer of them may do.

        It is what counting pairs gives, or a larger number that the method has found. None if the
        answer has no more slots, or slots do not come first.
        """
        problem: Any = self.problem
        if self.schedule is None or not getattr(problem, "slots_first", False):
            return None
        claimed_slots = self.stats.get("slots_lower_bound")
        if not isinstance(claimed_slots, int):
            claimed_slots = 0
        fewest_slots = max(int(problem.min_slots), claimed_slots)
        if self.schedule.n_slots <= fewest_slots:
            return None
        return fewest_slots


def schedule_of(subject: Schedule | Solution) -> Schedule | Missing:
    """Return a schedule itself, or that of a solution; a solution without an answer is refused."""
    if not isinstance(subject, Solution):
        return subject
    if subject.objective is None:
        raise InputError(f"status {subject.status.value}: there is no schedule")
    return subject.schedule


def describe_claims(solution: Solution) -> dict[str, str]:
    """Return what a solution claims, in words: objective, bound, gap, figures and proof."""
    unit = unit_of(solution.problem)
    objective: Any = solution.objective
    claims = {}
    if objective is not None:
        claims["objective"] = write_score(objective, unit)
    if is_known(solution.lower_bound):
        claims["lower bound"] = write_score(solution.lower_bound, unit)

    # Of an objective of levels, the gap is the first level that is open.
    bound = solution.lower_bound
    if isinstance(objective, tuple) and isinstance(bound, tuple) and objective != bound:
        levels = zip(objective, bound, strict=True)
        open_level = next(
            level for level, (value, least) in enumerate(levels, 1) if value != least
        )
        claims["gap"] = f"open from level {open_level} of {len(objective)} on"
    elif math.isfinite(solution.gap):
        claims["gap"] = f"{100 * solution.gap:.3g} %"
        if solution._bound_of_open_slots() is not None:
            claims["gap"] += " of the slots, which come before the objective"
    claims |= figures_of(solution.problem, solution.answer)

    # What the claims rest on: a search without a certificate is no proof.
    is_decided = solution.status in (Status.OPTIMAL, Status.INFEASIBLE)
    if solution.proof is not None and (is_decided or is_known(solution.lower_bound)):
        unproved = ", unproved" if solution.proof == "search" else ""
        claims["proof"] = f"{solution.proof}{unproved}"
    return claims
