"""Solve a problem by a method, and let nothing out that the verifier refuses."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from optmatch.model import (
    InputError,
    Limits,
    OnEvent,
    Problem,
    Solution,
    VerificationError,
    ignore,
)
from optmatch.verify import verify


def solve(
    problem: Problem,
    method: str | None = None,
    *,
    seed: int | None = None,
    time_limit_s: float | None = None,
    limits: Limits | None = None,
    on_event: OnEvent = ignore,
) -> Solution:
    """Solve a problem.

    Parameters
    ----------
    problem
        What to solve.
    method
        The name of a method that accepts such problems; None for the default of its kind.
    seed
        Seed of the random numbers; None draws one, which the solution then states.
    time_limit_s
        Wall-clock limit in seconds; short for ``limits=Limits(time_s=...)``.
    limits
        All limits; excludes `time_limit_s`.
    on_event
        Called with `Tick`, `NewBest` and `Bound` events while the method runs.

    Returns
    -------
    Solution
        Also where nothing was found: the outcome is in ``status`` and ``limit``. Ctrl-C returns
        the best so far with ``Limit.INTERRUPTED``.

    Raises
    ------
    InputError
        If the method is unknown or does not accept the problem.
    VerificationError
        If the method's answer does not pass `verify`: a defect in the method.

    Examples
    --------
    >>> import optmatch as om
    >>> solution = om.solve(om.AllToAll(om.HexMesh(4, 4, ports=8)), seed=0)
    >>> solution.status, solution.schedule.n_slots
    (<Status.OPTIMAL: 'optimal'>, 7)
    """
    from optmatch.solvers import default_method, find_method  # to check an answer needs no solver

    if limits is not None and time_limit_s is not None:
        raise InputError("either limits or time_limit_s", where="time_limit_s")
    limits = limits or Limits(time_s=time_limit_s)
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
    chosen = find_method(method or default_method(problem), problem)
    started = time.perf_counter()
    solution = chosen.run(problem, limits, np.random.default_rng(seed), on_event)
    solution = replace(
        solution, method=chosen.name, seed=seed, time_s=time.perf_counter() - started
    )
    report = verify(problem, solution)
    if not report.ok:
        raise VerificationError(f"method {chosen.name}: {report.violations[0]}")
    return solution
