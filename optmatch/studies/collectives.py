"""When new circuits pay: time against delay for all methods, the map of winners, break-even."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from optmatch.entrances import solve
from optmatch.kinds import kind_of
from optmatch.model import InputError, Limit, LimitReached, OnEvent, Tick, ignore
from optmatch.problems import Collective
from optmatch.studies.outcome import Row, Study
from optmatch.sweeps.streams import Submits, in_order

__path__: list[str] = []  # so that the former name below this module is looked up

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
) -> Study:
    """Compare methods over delays and sizes.

    Parameters
    ----------
    problem
        The collective; its delay and size are replaced.
    delays_s
        Delays to try.
    sizes_bytes
        Sizes of the map of winners; a hundredth, once and 100 times that of the problem if empty.
    methods
        The methods to compare; if empty, all that fit but `ilp`.
    executor
        The executor of the solves, as for `optmatch.sweep`; None for this process.
    on_event
        Hears a `Tick` for each delay.

    Returns
    -------
    Study
        Tables ``times`` (with the bound as a method), ``winners``, and ``break-even``: up to which
        delay a method is faster than all that never change circuits.

    Examples
    --------
    >>> problem = Collective("all-gather", 8, 8e5, alpha_s=1e-6)
    >>> study = study_collectives(problem, delays_s=[1e-7, 1e-3], methods=["ring", "bruck"])
    >>> rows = study.tables["winners"]
    >>> [(row["delay_s"], row["winner"]) for row in rows if row["size_bytes"] == 8e5]
    [(1e-07, 'bruck'), (0.001, 'ring')]
    """
    fitting = [m.name for m in kind_of(problem).methods if m.takes(problem) and m.name != "best"]
    chosen = list(methods) or [name for name in fitting if name != "ilp"]  # which may take long
    for name in chosen:
        if name not in fitting:
            raise InputError(f"method {name!r}: these fit: {', '.join(fitting)}", where="methods")
    sizes = sorted({*sizes_bytes} or {problem.size_bytes * factor for factor in (0.01, 1, 100)})
    tables: dict[str, list[Row]] = {"times": [], "winners": [], "break-even": []}
    complete = True
    try:
        heres = [replace(problem, delay_s=delay_s) for delay_s in delays_s]
        questions = [
            (replace(here, size_bytes=size), name)
            for here in heres
            for size in (problem.size_bytes, *(s for s in sizes if s != problem.size_bytes))
            for name in chosen
        ]
        answers = in_order(_time, questions, executor)
        for k, here in enumerate(heres):
            on_event(Tick("delays", k, len(delays_s)))
            times = {name: next(answers) for name in chosen}
            for name, time_s in (*times.items(), ("bound", here.lower_bound())):
                tables["times"].append({"method": name, "delay_s": here.delay_s, "time_s": time_s})
            found = {
                size: {name: next(answers) for name in chosen}
                for size in sizes
                if size != problem.size_bytes
            } | {problem.size_bytes: times}
            for size in sizes:
                winner = min(found[size], key=found[size].__getitem__)
                row = {"size_bytes": size, "delay_s": here.delay_s, "winner": winner}
                tables["winners"].append(row | {"time_s": found[size][winner]})
        others = [name for name in chosen if name != "ring"] if "ring" in chosen else []
        delays = in_order(_break_even, [(problem, name) for name in others], executor)
        for name, delay_s in zip(others, delays, strict=True):
            tables["break-even"].append({"method": name, "delay_s": delay_s})
    except (KeyboardInterrupt, LimitReached):
        complete = False
    return Study("collectives", tables, complete)


def _time(question: tuple[Collective, str], on_event: OnEvent = ignore) -> float:
    return time_of(*question)


def _break_even(question: tuple[Collective, str], on_event: OnEvent = ignore) -> float:
    return break_even_delay(*question, "ring")


def time_of(problem: Collective, method: str) -> float:
    """Return the time of the verified plan of a method; infinite if it finds none.

    `LimitReached` is raised if the search was interrupted.
    """
    solution = solve(problem, method, seed=0)
    if solution.limit is Limit.INTERRUPTED:
        raise LimitReached("interrupted: the best so far is no result")
    return math.inf if solution.objective is None else solution.objective


def break_even_delay(problem: Collective, method: str, other: str = "ring") -> float:
    """Find up to which delay a method is faster than another, which changes circuits less often.

    In seconds; 0 if it never is faster, infinite if it always is.
    """

    def leads(delay_s: float) -> bool:
        here = replace(problem, delay_s=delay_s)
        return time_of(here, method) < time_of(here, other)

    low = 1e-9
    high = 1e3
    if leads(high):
        return math.inf
    if not leads(low):
        return 0.0
    while high / low > 1 + DIGITS:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if leads(middle) else (low, middle)
    return low


def late_speed_up(
    problem: Collective, rank: int, method: str = "stragglar", other: str = "ring"
) -> float:
    """Return how much faster a method is than another, from when a late rank is ready.

    The rank is so late that the other ranks have done all that they can.

    Examples
    --------
    >>> rate = 450 * 2.0**30
    >>> problem = Collective("all-reduce", 8, 2.0**30, alpha_s=3e-6, rate_bytes_per_s=rate)
    >>> round(late_speed_up(problem, 7), 3)
    1.363
    """
    late_s = 10 * time_of(replace(problem, late_s={}), other)
    here = replace(problem, late_s={str(rank): late_s})
    return (time_of(here, other) - late_s) / (time_of(here, method) - late_s)
