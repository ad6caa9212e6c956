"""The two entrances: `solve` by a method, and `verify` by code that no method shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from optmatch.kinds import default_method, find_method, kind_of, proving_methods
from optmatch.model import (
    Clock,
    InputError,
    Limit,
    Limits,
    NewBest,
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

if TYPE_CHECKING:
    from optmatch.solvers.method import Method
    from optmatch.solvers.params import Params

_WHILE_S = 1.0  # from so much time on, a part of it is for proofs
_FIRST = 0.5  # the part of it that the first method gets


def solve(
    problem: Problem[Answer],
    method: str | None = None,
    *,
    seed: int | None = None,
    time_limit_s: float | None = None,
    limits: Limits | None = None,
    start: Solution | None = None,
    params: Mapping[str, float] | None = None,
    on_event: OnEvent = ignore,
) -> Solution[Answer]:
    """Solve a problem.

    Parameters
    ----------
    problem
        What to solve.
    method
        The name of a method that accepts such problems; None for the default of its kind. With a
        second or more of time, the default is followed by a method that may prove what it leaves
        open.
    seed
        Seed of the random numbers; None draws one, which the solution then states.
    time_limit_s
        Wall-clock limit in seconds; short for ``limits=Limits(time_s=...)``.
    limits
        All limits; excludes `time_limit_s`.
    start
        A former solution, of this problem or of one that differs a little. The result is never
        worse than it, as it is where it fits, or repaired by the method.
    params
        Parameters of the method by name, as ``{"starts": 8}``; `optmatch methods NAME` lists them.
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
        If the method is unknown, does not accept the problem, or has no such parameter.
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
        followers = () if method else proving_methods(problem)
    tuned = chosen.with_params(form_of(Mapping[str, float] | None).check("params", params))
    start = form_of(Solution | None).check("start", start)
    if start is not None and start.problem.kind != problem.kind:
        raise InputError(f"a solution of {start.problem.kind}, not {problem.kind}", where="start")
    with clock.running():
        rng = np.random.default_rng(seed)
        methods = (chosen, *followers)
        solution = _search(problem, methods, limits, clock, rng, start, on_event, tuned)
    if clock.stopped and solution.limit is not None:
        solution = replace(solution, limit=Limit.INTERRUPTED)
    if params:
        solution = replace(solution, stats={**solution.stats, "params": dict(params)})
    solution = replace(solution, seed=seed, time_s=clock.elapsed_s)
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


def _search(
    problem: Problem,
    methods: tuple[Method, ...],
    limits: Limits,
    clock: Clock,
    rng: np.random.Generator,
    start: Solution | None,
    on_event: OnEvent,
    params: Params | None,
) -> Solution:
    """Run the first method; in a longer time those that prove, and it again in what is left."""
    with uncounted():
        from optmatch.solvers.frame import only_better, unite

    known = None if start is None else _take_up(problem, start, methods[0].name)
    if known is not None and known.status is Status.OPTIMAL:
        return known
    if start is not None and start.problem == problem:
        start = known  # what does not answer its own problem helps nobody
    turns = methods[:1]
    if len(methods) > 1 and (limits.time_s or 0.0) >= _WHILE_S and limits.iterations is None:
        turns = (*methods, methods[0])
    if start is not None or len(turns) > 1:
        on_event = only_better(on_event)
    limit, cut = None, False
    for turn, method in enumerate(turns):
        over = limit in (None, Limit.INTERRUPTED, Limit.GAP) or clock.remaining_s <= 0.0
        if turn and (over or (turn == len(methods) and not cut)):
            break
        own = limits
        if len(turns) > 1:
            own = replace(limits, time_s=clock.remaining_s * (1.0 if turn else _FIRST))
        try:
            if known is not None and not turn:
                on_event(NewBest(known.objective))
            set_to = params if method is methods[0] else None
            found = method.run(problem, own, rng, on_event, known or start, set_to)
        except (TimeUp, KeyboardInterrupt) as exc:  # before the method had anything to keep
            limit = Limit.TIME if isinstance(exc, TimeUp) else Limit.INTERRUPTED
            found = Solution(problem=problem, status=Status.UNKNOWN, limit=limit, method="")
        limit = found.limit
        cut = cut or (not turn and limit is Limit.TIME and method.warm)
        known = unite(known, replace(found, method=method.name))
    assert known is not None
    return known


def _take_up(problem: Problem, start: Solution, name: str) -> Solution | None:
    """Take a former answer as it is; None if it does not answer this problem."""
    from optmatch.solvers.frame import conclude

    if start.objective is None:
        return None
    parts: dict[str, Any] = {"schedule": start.schedule, "answer": start.answer}
    rough: dict[str, Any] = {"status": Status.FEASIBLE, "limit": Limit.EXHAUSTED, "objective": 0.0}
    with uncounted("checking"), unlimited():
        if start.problem == problem and verify(problem, start).valid:
            return start  # with what it proves
        bound = problem.lower_bound()
        replayed = verify(problem, Solution(problem=problem, method=name, **rough, **parts))
        objective = replayed.figures.get("objective")
        if not is_known(objective) or bound == np.inf:
            return None
        known = conclude(problem, name, objective, bound, **parts)
        return known if verify(problem, known).valid else None


@overload
def verify(problem: Solution) -> Report: ...
@overload
def verify(problem: Problem, subject: Schedule | Value | Solution) -> Report: ...
def verify(
    problem: Problem | Solution, subject: Schedule | Value | Solution | None = None
) -> Report:
    """Check an answer by replaying it, with code that no method shares.

    Parameters
    ----------
    problem
        The question; or a solution alone, which is then checked against its own problem.
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
    >>> om.verify(om.solve(problem, seed=0)).ok
    True
    >>> wrong = om.Schedule(matchings=[[1, 0]], durations_s=[2.0])
    >>> print(om.verify(problem, wrong).violations[0])
    durations_s[0]: a slot lasts slot_s: got 2.0, expected 1.0
    """
    if isinstance(problem, Solution):
        if subject is not None:
            raise InputError("a solution is checked alone, or after its problem", where="problem")
        subject = problem
        problem = subject.problem
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
