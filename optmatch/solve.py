"""Solve a problem by a method, and let nothing out that the verifier refuses."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    Device,
    InputError,
    Limits,
    OnEvent,
    Problem,
    Schedule,
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


def settle_free_cells(
    problem: Problem, subject: Schedule | Solution, device: Device | str
) -> NDArray[np.int8]:
    """Choose a state for every free cell, such that circuits disturb each other least.

    Parameters
    ----------
    problem
        The problem, of which only the fabric matters.
    subject
        A schedule with cell states, or a solution that has one.
    device
        What cells do to light, or the name of a preset.

    Returns
    -------
    NDArray
        ``states[slot, cell]``: 0 bar, 1 cross, int8; as given where a cell is not free. It is what
        `measure_optics` takes as `idle`.

    Raises
    ------
    InputError
        If the fabric has no cells, or there are no cell states.

    Notes
    -----
    Descents from all in cross, all in bar and a few random states, in a model that adds powers:
    each round flips the free cells that promise to lower the sum of the fourth powers of all
    crosstalk-to-signal ratios, which the worst one dominates, or half of them, or a quarter, until
    the sum falls. It ends near the sum that free cells would leave if they swallowed all light,
    which is a lower bound. No choice changes what leaks from one lit way into another in one cell:
    where circuits share cells, as on meshes, the gain is small. A round takes two sparse solutions
    for each circuit of a slot.

    Examples
    --------
    >>> import optmatch as om
    >>> problem = om.Routing(om.SwitchAndSelect(8), [4, 5, 6, 7, 0, 1, 2, 3])
    >>> solution = om.solve(problem, "negotiated", seed=0)
    >>> settled = om.settle_free_cells(problem, solution, "smartlight")
    >>> for idle in ("cross", settled):
    ...     optics = om.measure_optics(problem, solution, "smartlight", idle=idle)
    ...     print(f"{optics.figures['worst_signal_to_crosstalk_db']:.0f} dB")
    65 dB
    77 dB
    """
    from optmatch.solvers.routing.idle import settle  # to measure needs no solver

    return settle(problem, subject, device)
