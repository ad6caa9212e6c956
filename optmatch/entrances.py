"""The two entrances: `solve` by a method, and `verify` by code that no method shares."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, Generic, overload

import numpy as np

from optmatch.kinds import default_method, find_method, kind_of, proving_methods
from optmatch.model import (
    Clock,
    Event,
    FrozenMap,
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
from optmatch.model.limits import own_stopwatch
from optmatch.model.problem import Answer
from optmatch.verify.bounds import check_stated_proof
from optmatch.verify.report import Findings, Report

if TYPE_CHECKING:
    from optmatch.solvers.method import Method
    from optmatch.solvers.params import Params

_LONG_ENOUGH_FOR_PROOFS_S = 1.0
"""From so long a time limit on, a part of the time is for methods that may prove something."""

_SHARE_OF_FIRST_METHOD = 0.5
"""The part of the time that the first method gets, where others follow."""


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
        open. If the default fails or has a wrong answer, this is logged as a defect, and the best
        answer of the other methods of the kind is taken.
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
        If the answer does not pass `verify`, of a method that was asked for by name, or of the
        last method of a kind: a defect in the method.

    Examples
    --------
    >>> import optmatch as om
    >>> solution = om.solve(om.AllToAll(om.HexMesh(4, 4, ports=8)), seed=0)
    >>> solution.status, solution.schedule.n_slots
    (<Status.OPTIMAL: 'optimal'>, 7)
    """
    with own_stopwatch():
        # Check the arguments, each by the form that the signature declares.
        if limits is not None and time_limit_s is not None:
            raise InputError("either limits or time_limit_s", where="time_limit_s")
        time_limit_s = form_of(Amount | None).check("time_limit_s", time_limit_s)
        limits = form_of(Limits | None).check("limits", limits) or Limits(time_s=time_limit_s)
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        seed = integer("seed", seed, at_least=0)
        method_or_name: Any = method
        if hasattr(method_or_name, "load"):
            name = getattr(method_or_name, "name", method_or_name)
            raise InputError(f"a method is given by its name: {name!r}", where="method")
        method = form_of(str | None).check("method", method)

        # The clock starts before the methods are looked up, which loads modules that do not count.
        clock = limits.start()
        compiled_before_s = _compiling_s()
        with uncounted():
            first_method = find_method(method, problem) if method else default_method(problem)
            followers = () if method else proving_methods(problem)
        params = form_of(Mapping[str, float] | None).check("params", params)
        form_of(Callable).check("on_event", on_event)
        start = form_of(Solution | None).check("start", start)
        if start is not None and start.problem.kind != problem.kind:
            raise InputError(
                f"a solution of {start.problem.kind}, not {problem.kind}", where="start"
            )
        if start is not None and start.problem.fabric is not None and problem.fabric is not None:
            n_ports = start.problem.fabric.n_ports
            if n_ports != problem.fabric.n_ports:
                raise InputError(
                    f"a solution on {n_ports} ports, not {problem.fabric.n_ports}", where="start"
                )

        search = _MethodSequence(
            problem,
            (first_method, *followers),
            method is None,
            first_method.with_params(params),
            limits,
            clock,
            np.random.default_rng(seed),
        )
        with clock.running():
            solution = search.run(start, on_event)
        try:
            return _check(problem, _describe_run(solution, seed, clock, params, compiled_before_s))
        except VerificationError as error:
            if method is not None:
                raise
            search.note_failure(solution.method, error)

        # A wrong answer of the default method is passed over.
        with clock.running():
            solution = search.run_others(on_event)
        return _check(problem, _describe_run(solution, seed, clock, params, compiled_before_s))


def _describe_run(
    solution: Solution[Answer],
    seed: int,
    clock: Clock,
    params: Mapping[str, float] | None,
    compiled_before_s: float,
) -> Solution[Answer]:
    """Add to a solution what is known of the run itself: seed, times, parameters, and a stop."""
    # If somebody stopped the clock, a method may have named another limit.
    if clock.stopped and solution.limit is not None:
        solution = replace(solution, limit=Limit.INTERRUPTED)
    stats = dict(solution.stats)
    if params:
        stats["params"] = dict(params)
    compile_s = _compiling_s() - compiled_before_s
    if compile_s > 0:
        stats["compile_s"] = compile_s
    return replace(solution, seed=seed, time_s=clock.elapsed_s, stats=stats)


def _compiling_s() -> float:
    """Return the seconds that this solve has spent on compiling kernels until now."""
    return uncounted_s().get("compiling", 0.0)


def _check(problem: Problem[Answer], solution: Solution[Answer]) -> Solution[Answer]:
    """Verify what a method found for a problem, and add what its claims rest on, field ``proof``.

    A solution without an answer or a bound, after the time was up, claims nothing and is not
    checked: to recount a bound may take far longer than the limit. A `VerificationError` says that
    the solution does not pass `verify`, a defect in the method.
    """
    was_cut = solution.limit in (Limit.TIME, Limit.INTERRUPTED)
    claims_nothing = solution.status is Status.UNKNOWN and not is_known(solution.lower_bound)
    if was_cut and claims_nothing:
        return solution
    with uncounted("checking"):
        report = verify(problem, solution)
    if not report.valid:
        raise VerificationError(f"method {solution.method}: {report.complaint}")
    return replace(solution, proof=report.proof)


class _MethodSequence(Generic[Answer]):
    """The methods of one solve, one after the other.

    The first method has all the time of a short solve. In a longer one it gets a part, and methods
    that may prove what it leaves open follow. If the first method was cut short, and can begin
    with an answer, it gets the time that is left.

    Parameters
    ----------
    problem
        The problem to solve.
    methods
        The first method, then those that may prove something.
    may_fail
        Whether a method that fails is passed over, since the user has asked for none by name.
    params
        The parameters of the first method; None for those by default.
    limits
        The limits of the whole solve.
    clock
        The clock of these limits, which is running.
    rng
        The random numbers of all methods.
    """

    def __init__(
        self,
        problem: Problem[Answer],
        methods: tuple[Method, ...],
        may_fail: bool,
        params: Params | None,
        limits: Limits,
        clock: Clock,
        rng: np.random.Generator,
    ) -> None:
        """Take the methods; nothing runs yet."""
        self.problem = problem
        self.methods = methods
        self.may_fail = may_fail
        self.params = params
        self.limits = limits
        self.clock = clock
        self.rng = rng
        self.solutions: list[Solution[Answer]] = []  # of each method that has run, as it made it
        self.failure: Exception | None = None  # the last one of a method

    def run(self, start: Solution | None, on_event: OnEvent) -> Solution[Answer]:
        """Run the methods in turn, others if they fail; the result is never worse than `start`.

        Parameters
        ----------
        start
            A former solution of this problem, or of another one of the kind; None if there is
            none.
        on_event
            Called with events of all methods.

        Returns
        -------
        Solution
            The best answer with the highest bound of all methods.
        """
        with uncounted():
            from optmatch.solvers.frame import only_better, unite

        # A former answer that fits this problem is the best so far, and perhaps the last word.
        first_method, *followers = self.methods
        best = None if start is None else take_up(self.problem, start, first_method.name)
        if best is not None and best.status is Status.OPTIMAL:
            return best
        if start is not None and start.problem == self.problem:
            start = best  # an answer that is wrong for its own problem helps nobody

        # An error of the listener is the user's, and no failure of a method.
        on_event = self._guard(on_event)

        # Methods for proofs follow only in a time limit that leaves them time: a limit of
        # iterations is meant for one method.
        has_time_for_proofs = (
            self.limits.time_s or 0.0
        ) >= _LONG_ENOUGH_FOR_PROOFS_S and self.limits.iterations is None
        if not has_time_for_proofs:
            followers = []
        if start is not None or followers:
            on_event = only_better(on_event)

        # The first method, with a part of the time if others follow.
        limits = self.limits
        if followers:
            limits = self._share_of_time(_SHARE_OF_FIRST_METHOD)
        first = self._run_method(first_method, limits, best, start, on_event, is_first=True)
        best = unite(best, first)
        limit = first.limit

        # The methods for proofs, each with all the time that is left.
        for method in followers:
            if self._is_over(limit):
                break
            solution = self._run_method(method, self._share_of_time(1.0), best, start, on_event)
            limit = solution.limit
            best = unite(best, solution)

        # The first method again, from the best answer, if the time had cut it short.
        can_go_on = first.limit is Limit.TIME and first_method.warm
        if followers and can_go_on and not self._is_over(limit):
            left = self._share_of_time(1.0)
            best = unite(best, self._run_method(first_method, left, best, start, on_event))
        if self.failure is not None and best.status is Status.UNKNOWN:
            return self.run_others(on_event)
        return best

    def note_failure(self, name: str, failure: Exception) -> None:
        """Log that a method has failed, by its name, and remember how; once for each failure."""
        from optmatch.solvers.frame import log_defect

        if str(failure) != str(self.failure):
            log_defect(name, failure)
        self.failure = failure

    def run_others(self, on_event: OnEvent) -> Solution[Answer]:
        """Return the best right answer of the methods that have run; without one, run the others.

        Searches that may take long to prove something are run only if no other method has an
        answer. If all fail, the last failure is raised.
        """
        from optmatch.solvers.frame import unite

        on_event = self._guard(on_event)
        best: Solution[Answer] | None = None
        for solution in self.solutions:
            if self._passes(solution):
                best = unite(best, solution)
        others = [
            method
            for method in kind_of(self.problem).methods
            if method not in self.methods and method.takes(self.problem)
        ]
        has_answer = best is not None and best.status is not Status.UNKNOWN

        # Quick methods come first, and exact ones only as long as there is no answer.
        for method in [] if has_answer else sorted(others, key=lambda method: method.exact):
            has_answer = best is not None and best.status is not Status.UNKNOWN
            if has_answer and (method.exact or self.clock.remaining_s <= 0.0):
                break

            # A method that fails adds no solution; a wrong answer is passed over.
            n_before = len(self.solutions)
            solution = self._run_method(method, self._share_of_time(1.0), best, None, on_event)
            has_run = len(self.solutions) > n_before
            if has_run and self._passes(solution):
                best = unite(best, solution)
            if best is not None and best.status is Status.OPTIMAL:
                break
        if best is None:
            assert self.failure is not None
            raise self.failure
        return best

    def _passes(self, solution: Solution[Answer]) -> bool:
        """Tell whether a solution passes `verify`; a wrong one is noted as a failure."""
        try:
            _check(self.problem, solution)
        except VerificationError as error:
            self.note_failure(solution.method, error)
            return False
        return True

    def _guard(self, on_event: OnEvent) -> OnEvent:
        """Make a listener after whose errors no other method runs."""

        def tell(event: Event) -> None:
            try:
                on_event(event)
            except Exception:
                self.may_fail = False
                raise

        return tell

    def _is_over(self, limit: Limit | None) -> bool:
        """Tell whether nothing is left to do after a method that ended with this limit."""
        return limit in (None, Limit.INTERRUPTED, Limit.GAP) or self.clock.remaining_s <= 0.0

    def _share_of_time(self, share: float) -> Limits:
        """Return the limits of a method that gets a share of the time that is left, if limited."""
        if self.limits.time_s is None:
            return self.limits
        return replace(self.limits, time_s=self.clock.remaining_s * share)

    def _run_method(
        self,
        method: Method,
        limits: Limits,
        best: Solution | None,
        start: Solution | None,
        on_event: OnEvent,
        *,
        is_first: bool = False,
    ) -> Solution[Answer]:
        """Run one method, from the best answer so far if there is one.

        `start` is an answer to another problem of the kind, for methods that repair it. The
        listener of the first method of all is told of `best` before. If the method is stopped
        before it has an answer, the solution has none, and is of unknown status.
        """
        params = self.params if method is self.methods[0] else None
        try:
            if best is not None and is_first:
                on_event(NewBest(best.objective))
            solution = method.run(self.problem, limits, self.rng, on_event, best or start, params)
        except KeyboardInterrupt:
            solution = self._nothing(Limit.INTERRUPTED)
        except TimeUp:
            solution = self._nothing(Limit.TIME)
        except Exception as error:
            with uncounted():
                from optmatch.solvers.frame import is_defect

            if not (self.may_fail and is_defect(error, self.problem)):
                raise
            self.note_failure(method.name, error)
            return replace(self._nothing(Limit.EXHAUSTED), method=method.name)
        solution = replace(solution, method=method.name)
        self.solutions.append(solution)
        return solution

    def _nothing(self, limit: Limit) -> Solution[Answer]:
        """Return a solution without an answer or a bound, and why there is none."""
        return Solution(problem=self.problem, status=Status.UNKNOWN, limit=limit, method="")


def take_up(
    problem: Problem[Answer], start: Solution[Any], method: str
) -> Solution[Answer] | None:
    """Return a former answer as a solution of this problem, if it answers it unchanged.

    Parameters
    ----------
    problem
        The problem to solve now.
    start
        A solution of it, or of another problem of the kind.
    method
        The name of the method that the result is attributed to.

    Returns
    -------
    Solution or None
        None if the answer does not pass `verify` for this problem, or if there is none.
    """
    from optmatch.solvers.frame import conclude

    if start.objective is None:
        return None
    with uncounted("checking"), unlimited():
        if start.problem == problem and verify(problem, start).ok:
            return start  # with what it proves

        # The objective is measured by a replay, since the former one is that of another problem.
        parts: dict[str, Any] = {"schedule": start.schedule, "answer": start.answer}
        unmeasured: Solution[Any] = Solution(
            problem=problem,
            method=method,
            status=Status.FEASIBLE,
            limit=Limit.EXHAUSTED,
            objective=0.0,
            **parts,
        )
        objective = verify(problem, unmeasured).figures.get("objective")
        bound = problem.lower_bound()
        if not is_known(objective) or bound == np.inf:
            return None
        taken_up = conclude(problem, method, objective, bound, **parts)
        return taken_up if verify(problem, taken_up).valid else None


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
    # A solution alone is checked against its own problem.
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

    # A class of somebody's own could say anything of its parts, such as how many there are.
    findings = Findings()
    for where, part in _list_parts(subject):
        if not _is_own(type(part)):
            findings.refuse(
                "an answer is of its class, not of one that is derived from it",
                where or "answer",
                type(part).__name__,
                type(part).__mro__[1].__name__,
            )

    # The verifier of the kind adds what it finds. An exception that is no rule of a verifier says
    # that the answer does not even have the form that its rules are about.
    try:
        if isinstance(subject, Solution) and subject.problem is not problem:
            _check_problem(problem, subject.problem, findings)
        with unlimited():
            kind.verify(problem, subject, findings)
        if isinstance(subject, Solution):
            check_stated_proof(subject, findings)
    except _NO_RULES as exc:
        where, got = _find_misfit(subject) or ("subject", f"{type(exc).__name__}: {exc}")
        findings.refuse("an answer can be replayed to its end", where, got, "a whole replay")
    return findings.report()


_NO_RULES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Exceptions of a replay, or of a class, where an answer does not even have the form of one."""


def _is_own(cls: type) -> bool:
    """Tell whether a class is of Python, NumPy or this library, and not only says so of itself."""
    package = cls.__module__.partition(".")[0]
    stands_there = getattr(sys.modules.get(cls.__module__), cls.__name__, None)
    is_there = stands_there is cls or cls in (NoneType, MappingProxyType)
    # Arrays of derived classes, such as masked ones, compare in ways of their own.
    return (
        package in ("optmatch", "numpy", "builtins")
        and is_there
        and np.ndarray not in cls.__mro__[1:]
    )


def _list_parts(answer: Any) -> list[tuple[str, Any]]:
    """List an answer and all parts of it, those inside a part before it, each with its place.

    A place is such as ``"answer.rails[2]"``; that of the whole is empty. The problem of a solution
    is no part of its answer.
    """
    parts: list[tuple[str, Any]] = [("", answer)]
    for where, value in parts:  # the list grows while it is walked
        if isinstance(value, tuple):
            parts += [(f"{where}[{number}]", part) for number, part in enumerate(value)]
        elif type(value) is FrozenMap:
            parts += [(f"{where}[{key!r}]", part) for key, part in value.items()]
        elif is_dataclass(value):
            input_fields = [
                field for field in fields(value) if field.init and field.name != "problem"
            ]
            parts += [
                (f"{where}.{f.name}".lstrip("."), getattr(value, f.name)) for f in input_fields
            ]
    return parts[::-1]


def _check_problem(problem: Any, stated: Any, findings: Findings) -> None:
    """Check that the problem that a solution states is equal to the one that is asked.

    All parts have the same classes, since one of somebody's own could say that it is equal.
    """
    is_same = _list_classes(stated) == _list_classes(problem) and stated == problem
    findings.expect("the solution is one of this problem", "problem", is_same, True)


def _list_classes(problem: Any) -> list[tuple[str, type]]:
    """List the classes of a problem and of its parts, each with its place.

    Numbers and texts of Python and NumPy are left out: equal ones may be of different classes.
    """
    return [
        (where, type(part))
        for where, part in _list_parts(problem)
        if is_dataclass(part) or not _is_own(type(part))
    ]


def _find_misfit(subject: Any) -> tuple[str, str] | None:
    """Find a part of an answer that its class refuses, and why; None if there is none.

    Each part is made anew, those inside it first.
    """
    for where, part in _list_parts(subject):
        if not is_dataclass(part):
            continue
        try:
            replace(part)  # type: ignore[type-var]  # a value, no class
        except InputError as exc:
            return f"{where}.{exc.where}".strip(".") or "subject", exc.message
        except _NO_RULES as exc:
            return where or "subject", f"{type(exc).__name__}: {exc}"
    return None
