"""The two entrances: `solve` by a method, and `verify` by code that no method shares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from optmatch.kinds import default_method, find_method, kind_of
from optmatch.model import (
    InputError,
    Limit,
    Limits,
    OnEvent,
    Problem,
    Schedule,
    Solution,
    Status,
    TimeUp,
    Value,
    VerificationError,
    ignore,
    integer,
    is_known,
    uncounted,
    uncounted_s,
    unlimited,
)
from optmatch.model.declarations import Amount, form_of
from optmatch.model.problem import Answer
from optmatch.verify.report import Findings, Report


def solve(
    problem: Problem[Answer],
    method: str | None = None,
    *,
    seed: int | None = None,
    time_limit_s: float | None = None,
    limits: Limits | None = None,
    on_event: OnEvent = ignore,
) -> Solution[Answer]:
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
        A solution also where nothing was found: the outcome is in ``status`` and ``limit``.
        ``proof`` says what the claim rests on: a claim from a search without a certificate is
        marked, not refused. Ctrl-C returns the best so far with ``Limit.INTERRUPTED``.

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
    if limits is not None and time_limit_s is not None:
        raise InputError("either limits or time_limit_s", where="time_limit_s")
    time_limit_s = form_of(Amount | None).check("time_limit_s", time_limit_s)
    limits = form_of(Limits | None).check("limits", limits) or Limits(time_s=time_limit_s)
    if seed is not None:
        seed = integer("seed", seed, at_least=0)
    else:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
    clock, before = limits.start(), uncounted_s()
    with uncounted():  # the methods of this kind are imported
        chosen = find_method(method, problem) if method else default_method(problem)
    with clock.running():
        try:
            solution = chosen.run(problem, limits, np.random.default_rng(seed), on_event)
        except (TimeUp, KeyboardInterrupt) as exc:  # before the method had anything to keep
            limit = Limit.TIME if isinstance(exc, TimeUp) else Limit.INTERRUPTED
            solution = Solution(
                problem=problem, status=Status.UNKNOWN, limit=limit, method=chosen.name
            )
    if clock.stopped and solution.limit is not None:
        solution = replace(solution, limit=Limit.INTERRUPTED)
    solution = replace(solution, method=chosen.name, seed=seed, time_s=clock.elapsed_s)
    compile_s = uncounted_s().get("compiling", 0.0) - before.get("compiling", 0.0)
    if compile_s > 0:
        solution = replace(solution, stats={**solution.stats, "compile_s": compile_s})
    cut = solution.limit in (Limit.TIME, Limit.INTERRUPTED)
    if cut and solution.status is Status.UNKNOWN and not is_known(solution.lower_bound):
        return solution  # the answer claims nothing, and to recount a bound takes time
    with uncounted("checking"):
        report = verify(problem, solution)
    if not report.valid:
        raise VerificationError(f"method {chosen.name}: {report.complaint}")
    return replace(solution, proof=report.proof)


def verify(problem: Problem, subject: Schedule | Value | Solution) -> Report:
    """Check an answer by replaying it, with code that no method shares.

    Parameters
    ----------
    problem
        The question.
    subject
        A schedule, an answer of the problem's own kind (a `PlaneSchedules` of a `Demand`), or a
        solution with all that it claims.

    Returns
    -------
    Report
        Violations by rule and place, recomputed figures, notes, what could not be checked, and
        what is unproved. A wrong answer is never an exception. ``valid`` where nothing is violated
        or skipped; ``ok`` where moreover nothing is unproved.

    Raises
    ------
    InputError
        If the problem is of a kind unknown here, or `subject` is no schedule or solution.

    Notes
    -----
    Of a schedule: each slot is a matching; the wanted pairs meet, each once; the light of each
    circuit, traced through the stated cells, reaches the partner and comes back; no link carries
    two circuits. A cell without light may be in any state; toggles are counted on what is stated.
    Slots last `slot_s`, with the delay of the problem; that of a `Routing`, which has no times of
    its own, 1 s without delay. Of a `Demand`: slots last whole ticks, the light of each circuit
    reaches its partner, and all is carried.

    Of a solution moreover: objective, lower bound, status, and every statistic of which there is a
    recomputed figure. A bound is supported if counting or the certificate shows it. One from a
    search without a certificate (``stats["bound_by"]``) is unproved, as is "infeasible" from a
    search; the figure ``lower_bound_checked`` has what could be shown.

    Examples
    --------
    >>> import optmatch as om
    >>> problem = om.AllToAll(om.IdealSwitch(2), slot_s=1.0)
    >>> om.verify(problem, om.Schedule(matchings=[[1, 0]], durations_s=[1.0])).ok
    True
    >>> wrong = om.Schedule(matchings=[[1, 0]], durations_s=[2.0])
    >>> print(om.verify(problem, wrong).violations[0])
    durations_s[0]: a slot lasts slot_s: got 2.0, expected 1.0
    """
    kind = kind_of(problem)
    answer = problem.answer_class
    forms = (Schedule, Solution) if answer is None else (Schedule, answer, Solution)
    if not isinstance(subject, forms):
        raise InputError(
            f"subject of type {type(subject).__name__}:"
            f" {' or '.join(form.__name__ for form in forms)} is expected",
            where="subject",
        )
    findings = Findings()
    try:
        with unlimited():
            kind.verify(problem, subject, findings)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as exc:
        got = f"{type(exc).__name__}: {exc}"  # no rule has named what does not fit
        findings.refuse("an answer can be replayed to its end", "subject", got, "a whole replay")
    return findings.report()
