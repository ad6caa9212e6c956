"""When new circuits pay: time against delay for all methods, the map of winners, break-even."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from optmatch.entrances import solve
from optmatch.kinds import kind_of
from optmatch.model import InputError, Limit, LimitReached, OnEvent, Tick, ignore
from optmatch.problems import Collective
from optmatch.studies.outcome import Row, TableStudy
from optmatch.sweeps.streams import Submits, in_order

DELAYS_S = tuple(10.0**exponent for exponent in range(-7, 0))
DIGITS = 1e-4
"""Break-even points are found up to this part of themselves."""


def study_collectives(
    problem: Collective,
    *,
    delays_s: Sequence[float] = DELAYS_S,
    sizes_bytes: Sequence[float] = (),
    methods: Sequence[str] = (),
    executor: Submits | None = None,
    on_event: OnEvent = ignore,
) -> TableStudy:
    """Compare methods for a collective operation, such as an all-gather of many GPUs.

    A method is an algorithm that plans who sends what to whom, and over which circuits. A change
    of circuits takes a delay. For each delay, and each size of the data, all methods are asked how
    long the operation takes.

    Parameters
    ----------
    problem
        The collective operation; its delay and size are replaced.
    delays_s
        The delays to try, in seconds.
    sizes_bytes
        The sizes for which winners are found; if empty, 0.01, 1 and 100 times that of `problem`.
    methods
        The names of methods to compare; if empty, all that fit but `ilp`.
    executor
        An executor of `concurrent.futures`, or the like, that runs the solves; None for this
        process.
    on_event
        Hears a `Tick` for each delay.

    Returns
    -------
    TableStudy
        Three tables with times in seconds:

        - ``times``: by method and delay, for the size of `problem`; also the lower bound, under
          the name "bound";
        - ``winners``: the fastest method for each size and delay;
        - ``break-even``: up to which delay a method is faster than all that never change circuits.

    Examples
    --------
    >>> problem = Collective("all-gather", 8, 8e5, alpha_s=1e-6)
    >>> study = study_collectives(problem, delays_s=[1e-7, 1e-3], methods=["ring", "bruck"])
    >>> rows = study.tables["winners"]
    >>> [(row["delay_s"], row["winner"]) for row in rows if row["size_bytes"] == 8e5]
    [(1e-07, 'bruck'), (0.001, 'ring')]
    """
    compared_methods = _choose_methods(problem, methods)
    sizes = set(sizes_bytes)
    if not sizes:
        sizes = {problem.size_bytes * factor for factor in (0.01, 1, 100)}
    sorted_sizes = sorted(sizes)

    # All problems of a delay come together: first the size of the problem itself, for the curves.
    other_sizes = [size for size in sorted_sizes if size != problem.size_bytes]
    problem_of_delay = [replace(problem, delay_s=delay_s) for delay_s in delays_s]
    questions = []
    for slower_problem in problem_of_delay:
        for size_bytes in (problem.size_bytes, *other_sizes):
            question = replace(slower_problem, size_bytes=size_bytes)
            questions += [(question, name) for name in compared_methods]

    # Answers come in the order of the questions: by delay, then by size, then by method.
    tables: dict[str, list[Row]] = {"times": [], "winners": [], "break-even": []}
    complete = True
    try:
        answers = in_order(_solve_for_time, questions, executor)
        for k, slower_problem in enumerate(problem_of_delay):
            delay_s = slower_problem.delay_s
            on_event(Tick("delays", k, len(delays_s)))

            # Take the next answers, in the order in which the questions were put.
            time_of_size = {}
            for size_bytes in (problem.size_bytes, *other_sizes):
                time_of_size[size_bytes] = {name: next(answers) for name in compared_methods}

            # The curves of all methods, and the lower bound, for the size of the problem itself.
            for name, time_s in time_of_size[problem.size_bytes].items():
                tables["times"].append({"method": name, "delay_s": delay_s, "time_s": time_s})
            bound_s = slower_problem.lower_bound()
            tables["times"].append({"method": "bound", "delay_s": delay_s, "time_s": bound_s})

            # The fastest method for each size.
            for size_bytes in sorted_sizes:
                times = time_of_size[size_bytes]
                winner = min(times, key=times.__getitem__)
                row = {
                    "size_bytes": size_bytes,
                    "delay_s": delay_s,
                    "winner": winner,
                    "time_s": times[winner],
                }
                tables["winners"].append(row)

        # The ring never changes its circuits, so no delay slows it down.
        if "ring" in compared_methods:
            other_methods = [name for name in compared_methods if name != "ring"]
            pairs = [(problem, name) for name in other_methods]
            break_even_delays = in_order(_find_break_even, pairs, executor)
            for name, delay_s in zip(other_methods, break_even_delays, strict=True):
                tables["break-even"].append({"method": name, "delay_s": delay_s})
    except (KeyboardInterrupt, LimitReached):
        complete = False
    return TableStudy("collectives", tables, complete)


def _choose_methods(problem: Collective, methods: Sequence[str]) -> list[str]:
    """Return the names of the methods to compare for a collective.

    Parameters
    ----------
    problem
        The collective.
    methods
        Names. Without any these are all that take the problem, but the exact one ("ilp"), which
        may take long, and "best", which chooses among the others.

    Raises
    ------
    InputError
        If a method does not take the problem.
    """
    fitting_methods = [
        method.name
        for method in kind_of(problem).methods
        if method.takes(problem) and method.name != "best"
    ]
    for name in methods:
        if name not in fitting_methods:
            fitting = ", ".join(fitting_methods)
            raise InputError(f"method {name!r}: these fit: {fitting}", where="methods")
    return list(methods) or [name for name in fitting_methods if name != "ilp"]


def _solve_for_time(question: tuple[Collective, str], on_event: OnEvent = ignore) -> float:
    """Return the time of a problem by a method, wherever this runs."""
    problem, method = question
    return time_of(problem, method)


def _find_break_even(question: tuple[Collective, str], on_event: OnEvent = ignore) -> float:
    """Return up to which delay a method is faster than the ring, wherever this runs."""
    problem, method = question
    return break_even_delay(problem, method, "ring")


def time_of(problem: Collective, method: str) -> float:
    """Return the time of the verified plan that a method finds.

    Parameters
    ----------
    problem
        The collective.
    method
        The name of the method.

    Returns
    -------
    float
        Seconds; infinite if it finds no plan.

    Raises
    ------
    LimitReached
        If the search was interrupted.
    """
    solution = solve(problem, method, seed=0)
    if solution.limit is Limit.INTERRUPTED:
        raise LimitReached("interrupted: the best so far is no result")
    return math.inf if solution.objective is None else solution.objective


def break_even_delay(problem: Collective, method: str, other: str = "ring") -> float:
    """Find up to which delay a method is faster than another, which changes circuits less often.

    Bisection on a logarithmic scale between a nanosecond and a thousand seconds.

    Parameters
    ----------
    problem
        The collective; its own delay of circuits does not matter.
    method, other
        The names of the method and of the one that it is compared with.

    Returns
    -------
    float
        In seconds; 0 if the method never is faster, infinite if it always is.
    """

    def is_faster(delay_s: float) -> bool:
        """Tell whether the method is faster than the other one with this delay in seconds."""
        question = replace(problem, delay_s=delay_s)
        return time_of(question, method) < time_of(question, other)

    low_s = 1e-9
    high_s = 1e3
    if is_faster(high_s):
        return math.inf
    if not is_faster(low_s):
        return 0.0
    while high_s / low_s > 1 + DIGITS:
        middle_s = math.sqrt(low_s * high_s)
        if is_faster(middle_s):
            low_s = middle_s
        else:
            high_s = middle_s
    return low_s


def late_speed_up(
    problem: Collective, rank: int, method: str = "stragglar", other: str = "ring"
) -> float:
    """Return how much faster a method is than another, counted from when a late rank is ready.

    The rank is so late that the other ranks have done all that they can.

    Parameters
    ----------
    problem
        The collective.
    rank
        The rank that is late.
    method, other
        The names of the method and of the one that it is compared with.

    Returns
    -------
    float
        The time of the other method over that of the method; above 1 if the method is faster.

    Examples
    --------
    >>> rate = 450 * 2.0**30
    >>> problem = Collective("all-reduce", 8, 2.0**30, alpha_s=3e-6, rate_bytes_per_s=rate)
    >>> round(late_speed_up(problem, 7), 3)
    1.363
    """
    # Ten times the whole collective is later than all that others could wait for.
    late_s = 10 * time_of(replace(problem, late_s={}), other)
    question = replace(problem, late_s={str(rank): late_s})
    time_after_rank_s = time_of(question, method) - late_s
    other_time_after_rank_s = time_of(question, other) - late_s
    return other_time_after_rank_s / time_after_rank_s
