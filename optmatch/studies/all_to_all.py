"""Yield of a fabric: how likely its schedule survives random faults, and which cells matter."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from optmatch.entrances import solve, verify
from optmatch.fabrics import Fabric, Fault, FaultKind, Faulty
from optmatch.model import (
    FrozenMap,
    InputError,
    Limit,
    OnEvent,
    Schedule,
    Solution,
    Tick,
    Value,
    VerificationError,
    frozen,
    ignore,
    integer,
    schedule_of,
)
from optmatch.model.declarations import Amount, form_of
from optmatch.problems import AllToAll, Routing
from optmatch.studies.outcome import Row, Study
from optmatch.sweeps.processes import Submits, in_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PART = 250
"""The number of samples that are judged together."""


class Part(NamedTuple):
    """A part of the samples, in their order."""

    solution: Solution
    """The schedule that is studied."""
    fixed: bool
    """Whether a repair keeps each matching; else pairs of an all-to-all may move between slots."""
    kinds: tuple[FaultKind, ...]
    samples: list[tuple[Fault, ...]]
    """The cells that break together in each sample, and how."""
    first: int
    """The number of the first sample among all."""
    total: int
    """How many samples there are in all parts."""
    left_s: float | None
    """The seconds that are left for this part; None for no limit."""


class _Judged(NamedTuple):
    """A sample after it was judged."""

    sample: tuple[Fault, ...]
    outcome: str
    """``"survived"``, ``"failed"`` or ``"unrepaired"``."""
    how: str
    """What has decided."""
    outcomes_alone: list[str]
    """The outcome of each fault of the sample by itself."""


def _judge_part(part: Part, on_event: OnEvent = ignore) -> tuple[list[_Judged], Limit | None]:
    """Judge sample by sample whether a schedule survives broken cells.

    A sample is a few cells that break at once; it has survived if the schedule can be repaired,
    with other matchings and states of cells. Returns the samples that were judged, and why others
    are missing (time, or Ctrl-C); None if none are.
    """
    started = time.perf_counter()
    repair = _prepare_repair(part.solution, part.fixed, get_ident())
    repair.forget()  # so that no verdict depends on what this process has judged before
    judged: list[_Judged] = []
    n_survived = 0
    try:
        for number, sample in enumerate(part.samples, start=part.first):
            if part.left_s is not None and time.perf_counter() - started > part.left_s:
                return judged, Limit.TIME
            verdict = repair.judge(tuple(sorted(sample)))

            # Repaired schedules number 0, 1, 2, 4, 8, ... go through the verifier.
            is_power_of_two = n_survived.bit_count() <= 1
            if verdict.outcome == "survived" and is_power_of_two:
                problem = part.solution.problem
                broken_fabric = Faulty.of(problem.fabric, sample)
                matchings = np.asarray(verdict.matchings)
                cell_states = np.asarray(verdict.states)

                # An all-to-all is checked as a whole; of other problems each matching by itself.
                claims: list[tuple[Any, Schedule]] = []
                if isinstance(problem, AllToAll):
                    schedule = Schedule(
                        matchings=matchings,
                        durations_s=np.full(len(matchings), problem.slot_s),
                        cell_states=cell_states,
                    )
                    whole_problem = replace(problem, fabric=broken_fabric, delay_s=0.0)
                    claims.append((whole_problem, schedule))
                else:
                    for matching, states in zip(matchings, cell_states, strict=True):
                        schedule = Schedule(
                            matchings=matching[None],
                            durations_s=np.ones(1),
                            cell_states=states[None],
                        )
                        claims.append((Routing(broken_fabric, matching), schedule))

                for question, schedule in claims:
                    report = verify(question, schedule)
                    if not report.valid:
                        raise VerificationError(f"a repaired schedule: {report.complaint}")

            # Each fault is also judged alone, which tells whether it would be enough.
            outcomes_alone = [repair.judge((fault,)).outcome for fault in sample]
            n_survived += verdict.outcome == "survived"
            judged.append(_Judged(sample, verdict.outcome, verdict.how, outcomes_alone))
            on_event(Tick("samples", number + 1, part.total))
    except KeyboardInterrupt:
        return judged, Limit.INTERRUPTED
    return judged, None


@lru_cache(maxsize=8)
def _prepare_repair(solution: Solution, fixed: bool, thread: int) -> Any:
    """Prepare to repair a schedule; a cache keeps an object for each thread."""
    from optmatch.solvers.all_to_all.repair import Repair  # compiled kernels

    assert solution.schedule is not None
    return Repair(solution.problem, solution.schedule, fixed=fixed)


CellFault = Literal["stuck-bar", "stuck-cross", "dead-cell"]
"""A fault that is drawn: a dead port takes part in no circuit, so it breaks none."""
CELL_FAULTS: tuple[FaultKind, ...] = get_args(CellFault)

_NORMAL_95 = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""

_CODE_OF_OUTCOME = {"survived": 1, "failed": 0, "unrepaired": -1}
"""How `YieldStudy.alone` states what a fault does alone."""
_WORD_OF_ALONE = {1: "survives", 0: "fails", -1: None}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class YieldStudy(Value, Study):
    """The outcome of a schedule under random faults.

    Parameters
    ----------
    fabric
        The fabric whose cells were broken.
    n_faults
        How many different cells were broken in each sample.
    slots
        The slots that the schedule has, and may have after repair.
    survived, failed, unrepaired
        Samples that were repaired, that are proved to be lost, and that are neither.
    broken, lost, open_
        ``[cell, kind]``: samples in which the cell was broken so; those of them that are proved to
        be lost, and those that are neither repaired nor proved; int64.
    alone
        ``[cell, kind]``: what this fault does alone: 1 survived, 0 proved to be lost, -1 open or
        never drawn; int8.
    how
        How many samples were decided by what.
    limit
        Why it has fewer samples than asked for; None if it has all.
    """

    fabric: Fabric
    n_faults: int
    kinds: tuple[FaultKind, ...]
    slots: int
    survived: int
    failed: int
    unrepaired: int
    broken: NDArray[np.int64]
    lost: NDArray[np.int64]
    open_: NDArray[np.int64]
    alone: NDArray[np.int8]
    how: Mapping[str, int]
    seed: int
    limit: Limit | None = None
    time_s: float = 0.0

    def __post_init__(self) -> None:
        self._set(
            broken=frozen("broken", self.broken, 2, np.int64),
            lost=frozen("lost", self.lost, 2, np.int64),
            open_=frozen("open_", self.open_, 2, np.int64),
            alone=frozen("alone", self.alone, 2, np.int8),
            how=FrozenMap(self.how),
        )

    @property
    def name(self) -> str:
        """What was studied: "yield"."""
        return "yield"

    @property
    def tables(self) -> dict[str, list[Row]]:
        """How many samples ended in which way, and what cells have to do with it.

        Table "samples" has a row for each outcome. Table "cells" has a row for each cell that a
        sample has broken and each kind of fault, in the order of `ranking`.
        """
        samples = []
        for outcome in ("survived", "failed", "unrepaired"):
            n_samples = getattr(self, outcome)
            share = n_samples / max(1, self.samples)
            samples.append({"outcome": outcome, "samples": n_samples, "share": share})

        cells = []
        for cell in self._broken_cells():
            label = self.cell_name(cell)
            for kind, figures in self._count_kinds(cell).items():
                cells.append({"cell": cell if label is None else label, "kind": kind, **figures})
        return {"samples": samples, "cells": cells}

    @property
    def complete(self) -> bool:
        """Whether it has all samples that were asked for."""
        return self.limit is None

    @property
    def samples(self) -> int:
        """The number of samples."""
        return self.survived + self.failed + self.unrepaired

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the yield; samples that stay open count both ways."""
        low, _ = wilson(self.survived, self.samples)
        _, high = wilson(self.survived + self.unrepaired, self.samples)
        return low, high

    def share_lost(self) -> NDArray[np.float64]:
        """``share[cell]``: of samples with this cell broken those not repaired; NaN if none."""
        n_broken = self.broken.sum(axis=1)
        n_not_repaired = (self.lost + self.open_).sum(axis=1)
        with np.errstate(invalid="ignore"):
            share: NDArray[np.float64] = n_not_repaired / np.where(n_broken == 0, np.nan, n_broken)
        return share

    def ranking(self) -> list[int]:
        """Order the cells by how certainly the schedule is lost with them broken, the worst first.

        Cells are compared by the lower end of the confidence interval of their share of lost
        samples, so that one unlucky sample makes no cell critical.

        Returns
        -------
        list of int
            All cells by their numbers. Ties go to the cell lost more often, then to the smaller
            number.
        """
        n_broken = self.broken.sum(axis=1)
        n_not_repaired = (self.lost + self.open_).sum(axis=1)
        pairs = zip(n_not_repaired.tolist(), n_broken.tolist(), strict=True)
        lower_ends = [wilson(n_lost, n_samples)[0] for n_lost, n_samples in pairs]
        # The last key counts first, and equal cells keep their order.
        order: list[int] = np.lexsort([-n_not_repaired, -np.array(lower_ends)]).tolist()
        return order

    def cell_name(self, cell: int) -> str | None:
        """Return the name of a cell of a netlist; None where cells have only numbers.

        Parameters
        ----------
        cell
            The number of the cell.
        """
        graph = self.fabric.graph
        if graph is None or graph.names is None:
            return None
        return self.fabric.cell_names[cell]

    def to_object(self) -> dict[str, Any]:
        """Return the study as an object for JSON.

        The study breaks random cells again and again, and counts how often a schedule survives.

        Returns
        -------
        dict
            The options of the study, and

            - ``samples``, ``survived``, ``failed``, ``unrepaired``: numbers of samples;
            - ``yield_low``, ``yield_high``: the 95 % interval of the part that survives;
            - ``cells``: for each cell that some sample has broken, the most critical first, its
              number, the part of these samples that was not repaired, counts by kind of fault,
              and its name if it has one.
        """
        low, high = self.interval
        share_lost = self.share_lost().tolist()

        # An entry for each cell that was broken, with its name where cells have names.
        cells = []
        for cell in self._broken_cells():
            entry = {
                "cell": cell,
                "share_lost": share_lost[cell],
                "kinds": self._count_kinds(cell),
            }
            label = self.cell_name(cell)
            if label is not None:
                entry["name"] = label
            cells.append(entry)
        return {
            "faults": self.n_faults,
            "kinds": list(self.kinds),
            "slots": self.slots,
            "samples": self.samples,
            "survived": self.survived,
            "failed": self.failed,
            "unrepaired": self.unrepaired,
            "yield_low": low,
            "yield_high": high,
            "confidence": 0.95,
            "how": dict(self.how),
            "seed": self.seed,
            "limit": None if self.limit is None else self.limit.value,
            "time_s": self.time_s,
            "cells": cells,
        }

    def plot(self, *, fig: Figure | None = None, ax: Axes | None = None) -> Figure:
        """Draw the chip, each cell in the colour of the share of samples that are lost with it.

        Parameters
        ----------
        fig
            An empty figure to draw in; None makes a new one.
        ax
            Axes to draw in instead.

        Returns
        -------
        Figure
            The figure.
        """
        from optmatch.plotting import plot_heat
        from optmatch.plotting.drawing import axes_within, figure_of

        label = "share of samples lost with this cell broken"
        drawn = plot_heat(self.fabric, self.share_lost(), label=label, ax=axes_within(fig, ax))
        return figure_of(drawn)

    def _broken_cells(self) -> list[int]:
        """Return the cells that a sample has broken, in the order of their ranking."""
        return [cell for cell in self.ranking() if self.broken[cell].any()]

    def _count_kinds(self, cell: int) -> dict[str, dict[str, int | str | None]]:
        """Count the samples of each kind of fault of a cell; `alone` is None if unknown."""
        figures_of_kind: dict[str, dict[str, int | str | None]] = {}
        for k, kind in enumerate(self.kinds):
            figures_of_kind[kind] = {
                "broken": int(self.broken[cell, k]),
                "failed": int(self.lost[cell, k]),
                "unrepaired": int(self.open_[cell, k]),
                "alone": _WORD_OF_ALONE[int(self.alone[cell, k])],
            }
        return figures_of_kind


def wilson(successes: int, samples: int) -> tuple[float, float]:
    """Estimate a probability of successes as a 95 % interval, by Wilson's score [1]_.

    Without samples the interval is from 0 to 1.

    References
    ----------
    .. [1] Wilson (1927). Probable inference, the law of succession, and statistical inference.
       *JASA* 22, 209. https://doi.org/10.1080/01621459.1927.10502953
    """
    if not samples:
        return 0.0, 1.0

    # With p for the share, n for the samples and z = 1.96 the interval is (p + z^2 / 2 n +- z
    # sqrt(p (1 - p) / n + z^2 / 4 n^2)) / (1 + z^2 / n); `spread` is z^2 / n.
    share = successes / samples
    spread = _NORMAL_95**2 / samples
    middle = share + spread / 2
    half = _NORMAL_95 * math.sqrt(share * (1 - share) / samples + spread / (4 * samples))
    low = 0.0 if successes == 0 else max(0.0, (middle - half) / (1 + spread))
    high = 1.0 if successes == samples else min(1.0, (middle + half) / (1 + spread))
    return low, high


def study_yield(
    subject: Any,
    faults: int = 1,
    *,
    kinds: Sequence[FaultKind] = CELL_FAULTS,
    samples: int = 1000,
    seed: int | None = None,
    fixed: bool = False,
    time_limit_s: float | None = None,
    executor: Submits | None = None,
    on_event: OnEvent = ignore,
) -> YieldStudy:
    """Estimate how likely a schedule can be repaired after random faults of cells.

    Each sample breaks `faults` different cells, all equally likely, each in one of `kinds`, all
    equally likely. It survives if as many slots as before can hold all pairs (or, if matchings
    are fixed, each matching) on the cells that are left.

    Parameters
    ----------
    subject
        A solution with a schedule, or an `AllToAll` or `Routing` problem, which is solved first.
    faults
        How many cells break.
    kinds
        ``"stuck-bar"``, ``"stuck-cross"`` and ``"dead-cell"``.
    samples
        How many times.
    seed
        Seed of the random numbers; None draws one.
    fixed
        Whether each matching must stay as it is. Otherwise pairs of an all-to-all may move from
        slot to slot; matchings of other problems always stay.
    time_limit_s
        Stop after so many seconds.
    executor
        An executor of `concurrent.futures`, or the like, that judges samples; None for this
        process.
    on_event
        Called with a `Tick` after each sample, or each so many of an executor. Ctrl-C returns what
        was done.

    Returns
    -------
    YieldStudy
        A lost sample is proved to be lost: by a dead pair, a cut, prices of links, or search. What
        survives has a repaired schedule; some, ever more rarely, go through `verify`.

    Raises
    ------
    InputError
        If there are no cells, fewer than `faults`, or faults already; if there is no schedule.
    VerificationError
        If a repaired schedule does not pass `verify`: a defect.

    Notes
    -----
    The result is a function of subject, numbers and seed, on any executor; a study that was
    stopped is the first part of the whole one. Time is dominated by samples that no quick repair
    helps.

    Examples
    --------
    >>> import optmatch as om
    >>> mesh = om.HexMesh(3, 3, ports=4)
    >>> study = study_yield(om.AllToAll(mesh), faults=2, samples=50, seed=1)
    >>> study.samples, study.survived + study.failed
    (50, 50)
    """
    solution = _solve_subject(subject, seed)
    n_cells = solution.problem.fabric.n_cells
    faults = integer("faults", faults, at_least=0)
    samples = integer("samples", samples, at_least=0)
    if faults > n_cells:
        raise InputError(f"faults = {faults}: the fabric has {n_cells} cells", where="faults")
    kinds = form_of(Sequence[CellFault]).check("kinds", kinds)
    if not kinds or len(set(kinds)) < len(kinds):
        raise InputError("kinds: at least one, each once", where="kinds")
    time_limit_s = form_of(Amount | None).check("time_limit_s", time_limit_s)

    # Samples depend on the seed alone; one that was not given is drawn, and is in the result.
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
    assert solution.schedule is not None
    kinds = tuple(kinds)
    started = time.perf_counter()
    limit = None

    # A part is some samples in a row, which one call judges here or in another process.
    def draw_parts() -> Iterator[Part]:
        """Draw the samples, always in the same order, and hand them out in parts."""
        rng = np.random.default_rng(seed)
        for first in range(0, samples, PART):
            n_samples = min(PART, samples - first)
            drawn = []
            for _ in range(n_samples):
                places = rng.choice(n_cells, size=faults, replace=False).tolist()
                numbers = rng.integers(len(kinds), size=faults).tolist()
                pairs = zip(numbers, places, strict=True)
                drawn.append(tuple(Fault(kinds[number], place) for number, place in pairs))
            left_s = None
            if time_limit_s is not None:
                left_s = started + time_limit_s - time.perf_counter()
            yield Part(solution, fixed, kinds, drawn, first, samples, left_s)

    # Parts come back in their order, hence a study that stops early is the first part of it.
    judged: list[_Judged] = []
    try:
        for judged_part, limit in in_order(_judge_part, draw_parts(), executor, on_event=on_event):
            judged += judged_part
            if limit is not None:
                break
            on_event(Tick("samples", len(judged), samples))
    except KeyboardInterrupt:
        limit = Limit.INTERRUPTED

    # By cell and kind of fault: samples with it, those that are lost or open, and what it does
    # alone.
    broken, lost, open_ = np.zeros((3, n_cells, len(kinds)), dtype=np.int64)
    alone = np.full((n_cells, len(kinds)), -1, dtype=np.int8)
    for sample, outcome, _, outcomes_alone in judged:
        for fault, outcome_alone in zip(sample, outcomes_alone, strict=True):
            place = (fault.place, kinds.index(fault.kind))
            broken[place] += 1
            lost[place] += outcome == "failed"
            open_[place] += outcome == "unrepaired"
            alone[place] = _CODE_OF_OUTCOME[outcome_alone]
    counts = Counter(one.outcome for one in judged)
    how = Counter(one.how for one in judged)
    return YieldStudy(
        fabric=solution.problem.fabric,
        n_faults=faults,
        slots=solution.schedule.n_slots,
        seed=seed,
        limit=limit,
        time_s=time.perf_counter() - started,
        kinds=kinds,
        survived=counts["survived"],
        failed=counts["failed"],
        unrepaired=counts["unrepaired"],
        broken=broken,
        lost=lost,
        open_=open_,
        alone=alone,
        how=dict(sorted(how.items())),
    )


def _solve_subject(subject: Any, seed: int | None) -> Solution:
    """Return a verified solution whose schedule states the cells of a fabric without faults.

    `subject` is a solution, or a problem, which is solved first with this `seed`.
    """
    problem = subject
    if isinstance(subject, Solution):
        report = verify(subject.problem, subject)
        if not report.valid:
            raise VerificationError(f"the schedule is wrong: {report.complaint}")
        problem = subject.problem
    elif not isinstance(subject, (AllToAll, Routing)):
        raise InputError(
            f"{type(subject).__name__}: a solution, or an all-to-all or routing problem",
            where="subject",
        )
    if isinstance(problem.fabric, Faulty):
        raise InputError(
            "the fabric has faults already: the study wants one without",
            where="fabric",
        )

    # Ctrl-C during the solve ends the study before its first sample.
    solution: Solution = subject
    if problem is subject:
        solution = solve(subject, seed=seed)
        if solution.limit is Limit.INTERRUPTED:
            raise KeyboardInterrupt
    if schedule_of(solution).cell_states is None:
        raise InputError("a switch without cells has no cells that break", where="fabric")
    return solution
