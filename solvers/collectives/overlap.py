"""Planes that set up new circuits while others send: the planes and shares of each step.

After SWOT (Wu et al. 2025, arXiv:2510.19322), with the state of each plane by itself: its released
model compares neighbouring steps only, so that planes send over circuits that they do not have.
The planes that take part in each step are found by beam search, their shares by a linear
programme. Small cases are proved by a mixed-integer programme.

Words that are used here:

- a *plane* is a switch of its own, to which each rank has some ports. Planes change their circuits
  by themselves. At first a plane may be `DARK`, without circuits, or have `ANY_CIRCUITS`: those
  that it needs first;
- a *step* is a round of an algorithm: the circuits that it needs, which are its *configuration*,
  and its bytes. A step begins when the step before has ended in all planes;
- a *share* is how long one plane sends in one step. The shares of a step add up to its work;
- a *part* is a pair of a step and a plane that takes part in it.

Example: two planes and two steps with different circuits, 4 s of work each for one plane, and a
delay of 1 s; both planes begin with the circuits of the first step. If plane 0 alone does the
first step, plane 1 can set up the circuits of the second one meanwhile: 4 s and 2.5 s, with plane
0 joining the second step 1 s late. If both planes do both steps, it is 2 s, the delay of 1 s, and
2 s, which is better here.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from optmatch.model import Clock, uncounted
from optmatch.problems import Collective
from optmatch.solvers.collectives.plans import Shares, list_circuits
from optmatch.solvers.collectives.rounds import BoolArray, FloatArray, IntArray, Rounds, ready_s

BEAM_WIDTH = 60
"""Partial schedules that the beam search keeps after each step."""
PROGRAMME_EFFORT = 5_000_000
"""Sum of the squares of sizes of linear programmes that are solved: some seconds."""
MOST_PLANES_ONE_BY_ONE = 16
"""The most planes for which every number of first planes is tried; of more, some numbers are."""
MOST_PARTS_PROVED = 24
"""Up to this number of pairs of a step and a plane the search for a proof is run to its end."""
SCHEDULES_BALANCED = 8
"""Complete schedules of the beam search that are returned."""
DARK = -1
"""The configuration of a plane without circuits."""
ANY_CIRCUITS = -2
"""The configuration of a plane that begins with the circuits that are wanted first."""


class Steps(NamedTuple):
    """The work of all planes together, in seconds of one plane."""

    configuration: IntArray
    """``configuration[step]``: the number of the circuits that the step needs."""
    work_s: FloatArray
    """``work_s[step]``: how long one plane alone would send."""
    ready_s: FloatArray
    """``ready_s[step]``: when all ranks of the step are ready; no plane begins it earlier."""
    planes: int
    """The number of planes."""
    round_s: float
    """The latency that each plane spends in each step in which it takes part."""
    delay_s: float
    """How long a plane takes to change its circuits."""
    held: IntArray
    """``held[plane]``: its first configuration, `DARK`, or `ANY_CIRCUITS`."""

    @property
    def at_least_s(self) -> float:
        """A lower bound of the time of all shares: even shares without changes of circuits."""
        dark_s = 0.0
        if (self.held == DARK).all():
            dark_s = self.delay_s
        return float((self.round_s + self.work_s / self.planes).sum()) + dark_s


def read_steps(problem: Collective, rounds: Rounds | None) -> Steps:
    """Turn the rounds of an algorithm into a list of what each of them needs from the switches.

    `rounds` are None if the problem states steps itself, as rows of a configuration and bytes. Its
    start is "free" or "dark" then, and no ranks are late: their steps may begin at 0.
    Example: three rounds over circuits A, B and A have the configurations 0, 1 and 0.
    """
    # What each plane holds at first: any circuits if the start is "free", and none if it is
    # "dark". If the start names circuits, they are compared with those of rounds below: a plane
    # without the circuits of any round stays dark here, as it has to change them in any case.
    n = problem.n_ranks
    planes = problem.planes
    held_at_first = np.full(planes, DARK)
    if isinstance(problem.start, str) and problem.start == "free":
        held_at_first = np.full(planes, ANY_CIRCUITS)

    # By step: the number of its circuits (`configuration`), the bytes of the rank that sends most,
    # and when its ranks are ready (`begin_s`).
    if rounds is None:
        configuration, busiest_bytes = np.asarray(problem.steps).T
        begin_s = np.zeros(len(configuration))
    else:
        # All lanes of a round have the same circuits, so lane 0 stands for them.
        of_lane_0 = [circuits[0] for circuits in list_circuits(problem, rounds)]
        circuits = np.array(of_lane_0, dtype=np.int64).reshape(-1, n)
        different_circuits, configuration = np.unique(circuits, axis=0, return_inverse=True)
        busiest_bytes = rounds.bytes_sent(problem).max(axis=1, initial=0.0)
        begin_s = ready_s(problem, rounds.sends, rounds.n_rounds)

        # A plane holds a configuration only if each of its ports leads every rank to the same peer
        # as this configuration, ``different_circuits[configuration, rank]``, does.
        if not isinstance(problem.start, str):
            start_of_plane = problem.start.reshape(planes, problem.ports, n)
            for plane, start_of_port in enumerate(start_of_plane):
                is_peer_same = different_circuits[:, None] == start_of_port
                for number in np.flatnonzero(is_peer_same.all(axis=(1, 2)))[:1]:
                    held_at_first[plane] = number

    return Steps(
        configuration=configuration.reshape(-1).astype(np.int64),
        work_s=busiest_bytes / (problem.ports * problem.rate_bytes_per_s),
        ready_s=begin_s,
        planes=planes,
        round_s=problem.round_s,
        delay_s=problem.delay_s,
        held=held_at_first,
    )


def share(steps: Steps, clock: Clock, *, prove: bool = True) -> tuple[Shares, float]:
    """Share the work of each step among the planes, so that the last step ends early.

    Beam search proposes which planes take part in which steps, and a linear programme finds the
    best shares for each proposal. At least the first proposal, all planes in all steps, is timed,
    however short the time of `clock` is.

    Returns the best shares and a lower bound in seconds of the time of any shares. The bound is 0
    unless `prove` asks for a mixed-integer programme and the case is small enough; it may also
    find better shares.
    """
    if not len(steps.work_s):
        nothing = np.empty((0, steps.planes))
        return Shares(nothing, nothing, nothing), 0.0

    # The first candidate is all planes in all steps. Others are tried as long as there is effort:
    # a linear programme takes effort by the square of its size, so that the sum of these squares
    # is limited by `PROGRAMME_EFFORT`.
    candidates = _search_beam(steps)
    tries = PROGRAMME_EFFORT // (candidates[0].size ** 2 + 1)
    best = _balance(steps, candidates[0])
    for used in candidates[1 : 1 + tries]:
        if clock.remaining_s <= 0.0:
            break
        candidate = _balance(steps, used)
        if candidate.time_s < best.time_s * (1 - 1e-12):
            best = candidate

    # A proof may find better shares, too. All candidates count as one iteration, so that no proof
    # begins if only one is allowed.
    bound_s = 0.0
    if prove and best.share_s.size <= MOST_PARTS_PROVED and clock.exceeded(iterations=1) is None:
        bound_s, used = _prove_bound(steps, best, clock)
        best = min(best, _balance(steps, used), key=lambda shares: shares.time_s)
        # The search counts in floats: a bound within a millionth of the time is the time.
        if bound_s >= best.time_s * (1 - 1e-6):
            bound_s = best.time_s
    return best, bound_s


class _Plane(NamedTuple):
    """The state of a plane after some steps."""

    held: int
    """The configuration of its circuits, `DARK` or `ANY_CIRCUITS`."""
    free_s: float
    """When it has ended its last step."""


class _Schedule(NamedTuple):
    """A partial schedule of the beam search; schedules are compared by their time first."""

    time_s: float
    """When its last step ends, in seconds."""
    planes: tuple[_Plane, ...]
    """The state of each plane after its last step."""
    used: tuple[tuple[int, ...], ...]
    """The planes that take part, for each step until now."""


def _search_beam(steps: Steps) -> list[BoolArray]:
    """Propose which planes take part in which steps, by beam search.

    Returns arrays ``used[step, plane]``: all True first, then those of the `SCHEDULES_BALANCED`
    fastest schedules. Step by step, each schedule of the steps until now is continued with one
    plane, with two, and so on, those that can begin first; the `BEAM_WIDTH` best schedules of all
    these stay. The other planes change their circuits meanwhile.
    """
    # Of many planes only the numbers 1, 2, 4, ... are tried, and all of them.
    counts = list(range(1, steps.planes + 1))
    if steps.planes > MOST_PLANES_ONE_BY_ONE:
        counts = [min(1 << power, steps.planes) for power in range(steps.planes.bit_length() + 1)]

    # Begin with one schedule without steps, and add one step after the other.
    idle = tuple(
        _Plane(first_configuration, free_s=0.0) for first_configuration in steps.held.tolist()
    )
    schedules = [_Schedule(time_s=0.0, planes=idle, used=())]
    for step, configuration in enumerate(steps.configuration.tolist()):
        # Schedules are in the same state if their planes hold the same circuits and equally many
        # planes take part in this step. Only the best one of a state is kept: the sum of its end
        # and of the mean time at which planes are free is least.
        best_of_state: dict[tuple[int, tuple[int, ...]], tuple[float, _Schedule]] = {}
        for schedule in schedules:
            # When each plane can begin to send: with its circuits, after the step before, and
            # when all ranks are ready. A plane has a delay unless it holds the circuits of the
            # step, or has `ANY_CIRCUITS`, which then are those of the step.
            step_s = max(schedule.time_s, float(steps.ready_s[step]))
            delays_s = [
                steps.delay_s * (plane.held not in (configuration, ANY_CIRCUITS))
                for plane in schedule.planes
            ]
            begin_s = [
                max(step_s, plane.free_s + delay_s) + steps.round_s
                for plane, delay_s in zip(schedule.planes, delays_s, strict=True)
            ]

            # Continue with the first 1, 2, ... planes that can begin.
            order = tuple(sorted(range(steps.planes), key=begin_s.__getitem__))
            for count in counts:
                extended = _extend(steps, step, schedule, order[:count], begin_s)
                circuits = tuple(sorted(plane.held for plane in extended.planes))
                state = (len(extended.used[-1]), circuits)
                mean_free_s = sum(plane.free_s for plane in extended.planes) / steps.planes
                score = extended.time_s + mean_free_s
                if state not in best_of_state or score < best_of_state[state][0]:
                    best_of_state[state] = (score, extended)
        ranked = sorted(best_of_state.values(), key=lambda scored: scored[0])
        schedules = [schedule for _, schedule in ranked[:BEAM_WIDTH]]

    # All planes in all steps, then the planes of the fastest schedules.
    everyone = np.ones((len(steps.work_s), steps.planes), dtype=np.bool_)
    candidates = [everyone]
    for schedule in sorted(schedules)[:SCHEDULES_BALANCED]:  # the first field, their time, decides
        takes_part = [np.isin(np.arange(steps.planes), planes) for planes in schedule.used]
        candidates.append(np.array(takes_part).reshape(-1, steps.planes))
    return candidates


def _extend(
    steps: Steps, step: int, schedule: _Schedule, chosen: tuple[int, ...], begin_s: list[float]
) -> _Schedule:
    """Add a step to a schedule, such that all planes that take part in it end at the same time.

    `chosen` are planes in the order in which they can begin. A plane stays out if it could begin
    only when those before it have ended.

    Example: 6 s of work, and planes that can begin at 0, 2 and 9 s. The first two end at (0 + 2 +
    6) / 2 = 4 s, and the third one stays out.

    ``begin_s[plane]`` tells when each plane can begin to send, in seconds.
    """
    # If k planes share the work and end together, each sends from its begin to the end, so that k
    # times the end is the sum of their begins and the work. One plane more takes part if it can
    # begin before that end.
    total_s = float(steps.work_s[step])
    for count in range(1, len(chosen) + 1):
        total_s += begin_s[chosen[count - 1]]
        end_s = total_s / count
        if count == len(chosen) or end_s <= begin_s[chosen[count]]:
            break
    taking_part = chosen[:count]
    planes = list(schedule.planes)
    for plane in taking_part:
        planes[plane] = _Plane(int(steps.configuration[step]), end_s)
    return _Schedule(end_s, tuple(planes), (*schedule.used, taking_part))


def _balance(steps: Steps, used: BoolArray) -> Shares:
    """Find the shares of all planes, given ``used[step, plane]``, which of them take part.

    A linear programme minimises the end of the last step. If it is too large or fails, all planes
    that take part have equal shares.
    """
    amounts = used.astype(np.float64)
    unit_s = float((steps.work_s + steps.round_s).sum())
    if 0 < used.size**2 <= PROGRAMME_EFFORT:
        solved = _solve_programme(steps, used, unit_s)
        # The columns are, for each pair of a step and a plane: whether it is used, its start, and
        # its share. Only the third group counts; starts are found anew.
        if solved.x is not None:
            parts = int(used.sum())
            amounts[used] = np.maximum(solved.x[2 * parts : 3 * parts], 0.0)

    # Shares that are mere rounding errors are none; a step without any has even ones.
    amounts[amounts < 1e-9 * amounts.max(axis=1, keepdims=True)] = 0.0
    is_empty = amounts.sum(axis=1) == 0
    amounts[is_empty] = used[is_empty]

    # In each step they add up to its work, in seconds: shares of 1 and 3 of a work of 8 s are 2 s
    # and 6 s.
    amounts *= (steps.work_s / amounts.sum(axis=1))[:, None]
    return _time_shares(steps, amounts)


def _prove_bound(steps: Steps, best: Shares, clock: Clock) -> tuple[float, BoolArray]:
    """Prove a lower bound of the time of all shares, by a mixed-integer programme.

    Returns the bound in seconds, and ``used[step, plane]``: which planes take part in the best
    shares that the programme has found; those of `best` if it has found none. Steps much shorter
    than the whole are not resolved by the programme: then the bound is 0.
    """
    # The unit of times in the programme is the time that is known to suffice.
    unit_s = best.time_s or 1.0
    used_by_best = best.share_s > 0
    if (steps.work_s < 1e-3 * unit_s).any():
        return 0.0, used_by_best

    # Each plane may take part in each step; which of them do is a choice of the programme.
    may_be_used = np.ones_like(used_by_best)
    solved = _solve_programme(steps, may_be_used, unit_s, is_choice=True, most_s=clock.remaining_s)
    if solved.status == 2:  # infeasible: nothing is better than the shares that are known
        return best.time_s, used_by_best

    # The search may end early, with a lower bound and perhaps an answer. The first columns of the
    # answer say whether each pair of a step and a plane is used.
    bound_s = max(float(solved.mip_dual_bound or 0.0), 0.0) * unit_s
    if solved.x is None:
        return bound_s, used_by_best
    return bound_s, (solved.x[: used_by_best.size] > 0.5).reshape(used_by_best.shape)


def _solve_programme(
    steps: Steps,
    used: BoolArray,
    unit_s: float,
    *,
    is_choice: bool = False,
    most_s: float = math.inf,
) -> Any:
    """Find how several planes should share the bytes of all steps, to end soonest.

    The parts are the pairs of a step and a plane that are true in ``used[step, plane]``, numbered
    by step and then by plane. All parts are used, which makes a linear programme; with `is_choice`
    the programme also chooses which of them are: it is a mixed-integer one, in which nothing lasts
    longer than one unit, and whose search may take `most_s` seconds. The unit of all times is
    `unit_s` seconds.

    Returns the result of `scipy.optimize.milp`. With p parts and s steps, the columns of its `x`,
    which is None without an answer, are

    - 0 to p - 1: whether a part is used, 0 or 1;
    - p to 2 p - 1: when a part starts;
    - 2 p to 3 p - 1: the share of a part, which is how long it sends;
    - 3 p to 3 p + s - 1: when a step ends.
    """
    with uncounted():
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

    step_of_part, plane_of_part = np.nonzero(used)
    n_parts = len(step_of_part)
    first_start = n_parts  # ``first_start + part`` is the column of the start of a part, and so on
    first_share = 2 * n_parts
    first_end = 3 * n_parts
    n_columns = first_end + len(used)
    work = steps.work_s / unit_s
    latency = steps.round_s / unit_s
    delay = steps.delay_s / unit_s

    # The planes that take part in a step do its work together. In each row the terms, columns
    # times factors, add up to a least value or more.
    least: list[float] = []  # by row
    entries: list[tuple[int, int, float]] = []  # row, column and factor of each term

    def require(at_least: float, *terms: tuple[int, float]) -> None:
        """Add a row: the `terms`, pairs of column and factor, add up to `at_least` or more."""
        entries.extend((len(least), column, factor) for column, factor in terms)
        least.append(at_least)

    for step in range(len(used)):
        # The shares of a step add up to its work.
        parts = np.flatnonzero(step_of_part == step).tolist()
        require(work[step], *((first_share + part, 1.0) for part in parts))

    for part, step in enumerate(step_of_part.tolist()):
        plane = plane_of_part[part]
        # share <= work * used: a part that is not used has no share. end of the step >= start +
        # share + latency * used. start >= end of the step before, which has the column before.
        require(0.0, (part, work[step]), (first_share + part, -1.0))
        require(
            0.0,
            (first_end + step, 1.0),
            (first_start + part, -1.0),
            (first_share + part, -1.0),
            (part, -latency),
        )
        if step:
            require(0.0, (first_start + part, 1.0), (first_end + step - 1, -1.0))

        # The first part that a plane uses waits for its first circuits: start >= first_begin *
        # (used - sum of used over the earlier parts). If an earlier part is used, the right side
        # is 0 or less, and the row says nothing. `earlier` are those of the same plane.
        earlier = np.flatnonzero(plane_of_part[:part] == plane).tolist()
        first_begin = _first_begin_s(steps, step, plane) / unit_s
        earlier_terms = [(other, first_begin) for other in earlier]
        require(0.0, (first_start + part, 1.0), (part, -first_begin), *earlier_terms)

        # After an earlier part with other circuits there is a delay. If all parts are used, only
        # the last one of the plane before this one matters; else it may be any of them. With M
        # longer than anything, and `used` 0 or 1: start >= end of the earlier part + delay
        # - M (1 - used) - M (1 - used(earlier)) - M used(each part between), where the end is
        # start, share, and latency if used. In the row all constants are in the least value.
        longest = 1.0 + delay
        candidates = range(len(earlier))
        if not is_choice:
            candidates = candidates[-1:]
        for index in candidates:
            other = earlier[index]
            other_configuration = steps.configuration[step_of_part[other]]
            if other_configuration != steps.configuration[step]:
                require(
                    delay - 2 * longest,
                    (first_start + part, 1.0),
                    (first_start + other, -1.0),
                    (first_share + other, -1.0),
                    (other, -latency - longest),
                    (part, -longest),
                    *((between, longest) for between in earlier[index + 1 :]),
                )

    # Limits of columns: whether a part is used lies between 0 and 1, and is 1 unless it is a
    # choice. No part starts, and no step ends, before its ranks are ready; with a choice both come
    # within one unit, with a margin for rounding.
    low = np.zeros(n_columns)
    low[first_start:first_share] = steps.ready_s[step_of_part] / unit_s
    low[first_end:] = steps.ready_s / unit_s
    low[:n_parts] = not is_choice
    high = np.full(n_columns, 1.0 + 1e-9 if is_choice else np.inf)
    high[:n_parts] = 1.0

    # A choice is made for a proof: the search ends without a gap between the answer and the bound,
    # or at its limits of branch-and-bound nodes and of time.
    options: dict[str, Any] = {}
    if is_choice:
        options = {"mip_rel_gap": 0.0, "node_limit": 5_000}
    if math.isfinite(most_s):
        options["time_limit"] = max(most_s, 0.01)

    # Minimise the end of the last step; only the first columns have to be whole numbers.
    row, column, factor = zip(*entries, strict=True)
    table = csr_array((factor, (row, column)), shape=(len(least), n_columns))
    goal = np.zeros(n_columns)
    goal[-1] = 1.0
    is_whole = np.zeros(n_columns)
    is_whole[:n_parts] = is_choice
    return milp(
        goal,
        constraints=LinearConstraint(table, lb=np.array(least)),
        integrality=is_whole,
        bounds=Bounds(low, high),
        options=options,
    )


def _first_begin_s(steps: Steps, step: int, plane: int) -> float:
    """Return when a plane that was not used before can take part in a step, in seconds."""
    if int(steps.held[plane]) in (ANY_CIRCUITS, int(steps.configuration[step])):
        return 0.0
    return steps.delay_s


def _time_shares(steps: Steps, amounts: FloatArray) -> Shares:
    """Start each plane in each step as early as steps and circuits allow.

    A plane changes its circuits as soon as it has ended its last step, and begins a step when that
    change and the step before have ended, and the ranks are ready.

    ``amounts[step, plane]``: seconds of sending; 0 where a plane does not take part.

    Example: with a delay of 1 s, a plane has sent in step 0 until 2 s, and step 1 needs other
    circuits. The plane begins step 1 at 3 s, or when all planes have ended step 0.
    """
    n_steps, n_planes = amounts.shape
    starts_s = np.zeros((n_steps, n_planes))
    ends_s = np.zeros((n_steps, n_planes))
    last_step = np.full(n_planes, -1)  # in which each plane took part; -1 for none until now
    step_end_s = 0.0
    for step in range(n_steps):
        begin_s = max(step_end_s, float(steps.ready_s[step]))
        step_end_s = begin_s
        for plane in np.flatnonzero(amounts[step] > 0).tolist():
            # The circuits of its last step serve if this step has the same configuration;
            # otherwise the plane has changed them since that step ended.
            start_s = begin_s
            last = last_step[plane]
            if last < 0:
                start_s = max(start_s, _first_begin_s(steps, step, plane))
            elif steps.configuration[last] != steps.configuration[step]:
                start_s = max(start_s, ends_s[last, plane] + steps.delay_s)
            starts_s[step, plane] = start_s
            ends_s[step, plane] = start_s + steps.round_s + amounts[step, plane]
            last_step[plane] = step
            step_end_s = max(step_end_s, ends_s[step, plane])
    return Shares(amounts, starts_s, ends_s)
