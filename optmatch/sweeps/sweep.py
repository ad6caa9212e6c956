"""Solve many problems by many methods, on any executor; keep and verify each row as it comes.

A spec of a sweep is a TOML file that names problems, methods, seeds and limits.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain, product
from math import prod
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, Literal, NamedTuple

from optmatch.entrances import solve, verify
from optmatch.io import load
from optmatch.io.fields import from_object
from optmatch.io.files import problem_digest
from optmatch.io.text import decode, read_bytes
from optmatch.kinds import check_method_name, default_method
from optmatch.model import (
    FormatError,
    InputError,
    Limit,
    Limits,
    OnEvent,
    OptMatchError,
    Problem,
    SolverUnavailable,
    Tick,
    check_size,
    ignore,
    naming,
)
from optmatch.model.declarations import form_of
from optmatch.model.errors import nearest_name
from optmatch.model.files import file_path, path_name
from optmatch.problems import PROBLEMS
from optmatch.sweeps.processes import Processes, Submits, WorkerDied, stream
from optmatch.sweeps.store import (
    DAMAGED,
    FAILED,
    REFUSED,
    Row,
    Store,
    StoreError,
    Task,
    empty_row,
    key_of,
    row_of,
)

GRACE_S = 300.0
"""Seconds beyond twice its time limit after which a task is ended from outside.

The time limit of a task does not count the compiling of kernels, for which these seconds are."""


class ExecutorLost(OptMatchError):
    """The executor has given up tasks that it had taken; finished rows are kept."""


def sweep(
    tasks: Iterable[Task],
    executor: Submits | None = None,
    *,
    store: str | os.PathLike[str] | None = None,
    n_workers: int | None = None,
    retry: bool = False,
    on_event: OnEvent = ignore,
) -> Iterator[Row]:
    """Solve many problems in parallel, and keep the results in a file.

    A task is a problem with a method and a seed. After a crash, a sweep with the same file goes
    on: at most the tasks that were under way are lost.

    Parameters
    ----------
    tasks
        The tasks. Those of the same problem, method, seed and limits count once.
    executor
        An object with a method `submit`, such as a client of Dask; None for processes of this
        machine.
    store
        The file that keeps the rows; tasks that it has are not run again. None keeps nothing.
    n_workers
        Without an executor: how many processes; all cores if None. With 0, tasks run in this
        process, one after another.
    retry
        Whether tasks are run again that were refused or failed before.
    on_event
        Hears a `Tick` after each task, and what methods say that run in this process.

    Yields
    ------
    Row
        The rows, one for each task: those that the store has first, then each as it is done.
        Nothing runs before the first is asked for. A task that fails is a row with its error.

    Raises
    ------
    StoreError
        If the store cannot be read or written. Rows that the store has stay.
    ExecutorLost
        If the executor breaks or is closed. Run it again with the same store to go on.

    Notes
    -----
    Each row is written when it comes, before it is yielded. In processes of its own, a script
    needs ``if __name__ == "__main__":``, as for all of `multiprocessing`.

    Examples
    --------
    >>> import optmatch as om
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> mesh = om.AllToAll(om.HexMesh(3, 3, ports=4))
    >>> tasks = [om.Task(mesh, seed=seed) for seed in range(2)]
    >>> with ThreadPoolExecutor(1) as executor:
    ...     [(row.seed, row.status, row.objective) for row in om.sweep(tasks, executor)]
    [(0, 'optimal', 50.0), (1, 'optimal', 50.0)]
    """
    # Tasks by their keys, digests of all that determines the result. Neighbours often have the
    # same problem, whose digest is computed once.
    task_of_key: dict[str, Task] = {}
    last_problem: Problem | None = None
    problem_sha256 = ""
    for task in tasks:
        form_of(Task).check("tasks", task)
        if task.problem is not last_problem:
            last_problem = task.problem
            problem_sha256 = problem_digest(task.problem)
        task_of_key.setdefault(task.key(problem_sha256), task)

    open_store = None if store is None else Store(store)
    n_done = 0
    try:
        # Rows of the store come first, and their tasks are not run again; damaged ones always are.
        if open_store is not None:
            for key in [row.key for row in open_store.rows() if row.key in task_of_key]:
                row = open_store.row(key)
                is_settled = row.done or (row.status in (REFUSED, FAILED) and not retry)
                if is_settled:
                    del task_of_key[key]
                    n_done += 1
                    yield row

        total = n_done + len(task_of_key)
        on_event(Tick("tasks", n_done, total))
        for row in _run_tasks(task_of_key, executor, n_workers, open_store, on_event):
            n_done += 1
            yield row
            on_event(Tick("tasks", n_done, total))
    finally:
        if open_store is not None:
            open_store.close()


def _run_tasks(
    task_of_key: dict[str, Task],
    executor: Submits | None,
    n_workers: int | None,
    store: Store | None,
    on_event: OnEvent,
) -> Iterator[Row]:
    """Run the tasks of a sweep, and write each result into a store before it is yielded.

    `task_of_key` has the tasks that are to be run, by the digest that a row is found by; without a
    store (None) nothing is kept. The store keeps a row under the key of its task; several sweeps
    may use one store at the same time, and rows that another sweep has done meanwhile come last.
    Without an executor, `n_workers` processes of this machine run the tasks, and end with the
    iterator; if that is 0, this process does.
    """
    keys_done_by_others: list[str] = []

    def missing_tasks() -> Iterator[Task]:
        """Yield the tasks that the store has no row of yet."""
        # Another sweep on the same store may have done a task since this one began.
        for key, task in task_of_key.items():
            if store is not None and store.has(key):
                keys_done_by_others.append(key)
            else:
                yield task

    pool = None
    if executor is None and n_workers != 0:
        pool = Processes(n_workers, patience=_seconds_until_killed)
    try:
        for _, task, outcome in stream(
            run_task, missing_tasks(), executor or pool, on_event=on_event
        ):
            row = _row_of_outcome(task, outcome)
            if store is not None:
                store.add(row, task.problem)
            yield row

        # Rows that other sweeps have written meanwhile are read from the store.
        for key in keys_done_by_others:
            assert store is not None
            yield store.row(key)
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)


def _row_of_outcome(task: Task, outcome: Callable[[], Row]) -> Row:
    """Return the row of a call that has ended; errors that concern the task alone become a row.

    Its status is `FAILED`, with the reason, if the worker died, memory was too little, or the call
    raised another error. `ExecutorLost` says that other tasks would fail too.
    """
    try:
        return outcome()
    except WorkerDied as exc:
        return empty_row(task, FAILED, str(exc))
    except MemoryError as exc:
        return empty_row(task, FAILED, f"out of memory {exc}".rstrip())
    except (BrokenExecutor, CancelledError) as exc:
        raise ExecutorLost(
            f"the executor has lost tasks ({type(exc).__name__}): run again"
        ) from exc
    except OSError as exc:  # the way to a scheduler
        raise ExecutorLost(f"the executor cannot be reached: {exc}") from exc
    except Exception as exc:  # as Dask's KilledWorker
        return empty_row(task, FAILED, f"{type(exc).__name__}: {exc}")


def _seconds_until_killed(task: Task) -> float | None:
    """Return after how many seconds a task is ended from outside, None for never.

    A method should keep its limit of time by itself; twice of it, and some grace, are too much.
    """
    time_limit_s = task.limits.time_s
    if time_limit_s is None:
        return None
    return 2 * time_limit_s + GRACE_S


def run_task(task: Task, on_event: OnEvent = ignore) -> Row:
    """Solve one task, wherever this runs, and return its row: the answer, or why there is none.

    `KeyboardInterrupt` is raised if the task was interrupted, and so is not done; `MemoryError` if
    this process should take no further ones. Under a limit of memory any unexpected error counts
    as lack of it, since libraries fail in ways of their own then.
    """
    try:
        with _memory_limit(task.limits.memory_bytes):
            solution = solve(
                task.problem, task.method, seed=task.seed, limits=task.limits, on_event=on_event
            )
            if solution.limit is not Limit.INTERRUPTED:
                return row_of(task, solution)
    except (InputError, SolverUnavailable) as exc:
        return empty_row(task, REFUSED, str(exc))
    except MemoryError:
        raise
    except (Exception, SystemExit) as exc:  # a method that exits loses its task
        if task.limits.memory_bytes is not None:
            raise MemoryError(f"or {type(exc).__name__}: {exc}") from exc
        return empty_row(task, FAILED, f"{type(exc).__name__}: {exc}")
    raise KeyboardInterrupt


@contextmanager
def _memory_limit(max_growth_bytes: int | None) -> Iterator[None]:
    """Limit how much the data segment of this process may grow within this context, in bytes.

    Nothing is limited in the process that a user has started, nor on systems other than Linux.
    """
    status_file = Path("/proc/self/status")
    if max_growth_bytes is None or parent_process() is None or not status_file.exists():
        yield
        return
    import resource

    # A line of the file reads `VmData:    12345 kB`, of 1024 bytes each.
    data_kib = re.findall(r"^VmData:\s*(\d+)", status_file.read_text(), re.MULTILINE)
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_DATA)
    new_limit = sum(map(int, data_kib)) * 1024 + max_growth_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (new_limit, hard_limit))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft_limit, hard_limit))


# Columns of a row that repeat a field of the solution.
_REPEATED_FIELDS = "objective", "lower_bound", "method", "seed"

Verdict = Literal["ok", "unproved", "violated", "damaged", "none"]


class Checked(NamedTuple):
    """The result of checking one row.

    Parameters
    ----------
    row
        The row as the store has it.
    verdict
        ``"ok"``; ``"unproved"``: nothing is violated, but a claim lacks a proof; ``"violated"``;
        ``"damaged"``: the row and its answer contradict each other; ``"none"``: there is no
        answer.
    complaint
        Why the verdict is not ``"ok"``; else empty.
    """

    row: Row
    verdict: Verdict
    complaint: str


def check_store(store: Store) -> Iterator[Checked]:
    """Verify each answer of a store, and that its row describes this answer.

    Parameters
    ----------
    store
        An open store.

    Yields
    ------
    Checked
        One for each row, in the order of the store.
    """
    # Neighbouring rows often have the same problem: it is read once for all of them.
    read_problem = lru_cache(1)(store.problem)

    for row in store.rows(answers=True):
        if row.answer is None:
            yield Checked(row, "damaged" if row.status == DAMAGED else "none", row.error)
            continue
        try:
            verdict, complaint = _check_row(row, read_problem(row.problem_sha256))
        except (StoreError, InputError) as exc:
            yield Checked(row, "damaged", str(exc))
        else:
            yield Checked(row, verdict, complaint)


def _check_row(row: Row, problem: Problem) -> tuple[Verdict, str]:
    """Check one row of a store that has an answer.

    Parameters
    ----------
    row
        The row, with its packed answer.
    problem
        The problem of its task.

    Returns
    -------
    verdict : str
        "ok"; "damaged" if columns disagree with the answer; "violated" if the answer breaks a
        rule; "unproved" if a claim could not be checked.
    complaint : str
        The reason; empty if nothing is wrong.
    """
    # The key must be the digest of the columns that identify the task.
    if row.key != key_of(row.problem_sha256, row.method, row.seed, row.options, row.version):
        return "damaged", "its key is not that of its task"

    # Columns that repeat the answer must agree with it.
    solution = row.solution(problem)
    fields = {name: getattr(solution, name) for name in _REPEATED_FIELDS}
    fields["status"] = solution.status.value
    for name, value in fields.items():
        if getattr(row, name) != value:
            return "damaged", f"{name} is not that of its answer"

    report = verify(problem, solution)
    if not report.valid:
        return "violated", report.complaint
    if not report.ok:
        return "unproved", "; ".join(map(str, report.unproved))
    return "ok", ""


DEFAULT = "default"
"""Stands for the default method of a kind."""

# The keys of a spec, each with what it may hold.
_FORM_OF_KEY = {
    "problems": form_of(Sequence[Any]),
    "generate": form_of(Sequence[Any]),
    "methods": form_of(Sequence[Any] | Mapping[str, Any]),
    "seeds": form_of(int | Sequence[int]),
    "limits": form_of(Mapping[str, Any]),
}


def read_spec(path: str | os.PathLike[str], generate: Callable[[str], Problem]) -> list[Task]:
    """Read the tasks of a sweep: problems x methods x seeds.

    ``problems`` lists patterns of problem files, from the folder of the file. Each table
    ``[[generate]]`` has a ``command``, as behind `optmatch generate`, in which ``{size}`` stands
    for each value of its list ``size``. ``methods`` is a list, or a table with one for each kind.
    ``seeds`` is a list, or how many. ``[limits]`` has the fields of `Limits`.

    Parameters
    ----------
    path
        The TOML file.
    generate
        Makes a problem of the words behind `optmatch generate`.

    Raises
    ------
    InputError
        Names the file, the place and the rule.
    """
    name = path_name(path)
    text = decode(read_bytes(path), name)
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as exc:
        raise FormatError(f"{exc}: not TOML", path=name) from exc
    with naming(name):
        return list(_read_tasks(tree, file_path(path).parent, generate))


def _read_tasks(
    tree: dict[str, Any], folder: Path, generate: Callable[[str], Problem]
) -> Iterator[Task]:
    """Yield a task for each combination of the problems, methods and seeds of a spec.

    `tree` is the parsed TOML file, with the keys `methods` (names, perhaps by kind of problem;
    `DEFAULT` stands for the default one), `seeds` (a list, or their number), `limits` (fields of
    `Limits`), and those that name the problems, whose patterns start from `folder`. `generate`
    makes a problem from a command.

    Example: two problems with three methods and the seeds 0 and 1 are twelve tasks.
    """
    # Everything is checked before the first problem is read, which may take long: first that the
    # keys are known and their values of the right types.
    for key, value in tree.items():
        if key not in _FORM_OF_KEY:
            raise InputError(f"{key}: no such name; {nearest_name(key, _FORM_OF_KEY)}", where=key)
        _FORM_OF_KEY[key].check(key, value)

    methods = tree.get("methods", [DEFAULT])
    _check_methods(methods)
    limits = from_object(Limits, tree.get("limits", {}), "limits")

    # A list holds the seeds; a number says how many there are, and may be too large for `len`.
    seeds = tree.get("seeds", 1)
    if isinstance(seeds, int):
        n_seeds = max(0, seeds)
        seeds = range(n_seeds)
    else:
        n_seeds = len(seeds)

    # All methods and seeds of a problem come before the next problem is read.
    n_tasks = 0
    problems = chain(
        _read_files(tree.get("problems", []), folder),
        *(
            _generate_problems(block, f"generate[{k}]", generate)
            for k, block in enumerate(tree.get("generate", []))
        ),
    )
    for name, problem in problems:
        methods_of_kind = methods
        if isinstance(methods, dict):
            methods_of_kind = methods.get(problem.kind, [DEFAULT])
        n_tasks += len(methods_of_kind) * n_seeds
        check_size("tasks", n_tasks, "seeds")

        # Each method with each seed.
        for method in methods_of_kind:
            method_name = str(method)
            if method == DEFAULT:
                method_name = default_method(problem).name
            for seed in seeds:
                yield Task(problem, method_name, seed=seed, limits=limits, name=name)
    if n_tasks == 0:
        raise InputError("no tasks: problems, methods or seeds are empty", where="problems")


def _check_methods(methods: Any) -> None:
    """Refuse kinds and methods that do not exist, before the first problem is made."""
    by_kind: dict[str | None, Any] = methods if isinstance(methods, dict) else {None: methods}
    for kind, names in by_kind.items():
        if kind is not None and kind not in PROBLEMS:
            hint = nearest_name(kind, PROBLEMS)
            raise InputError(f"{kind}: no such name; {hint}", where=f"methods/{kind}")
        where = "methods" if kind is None else f"methods/{kind}"
        if not isinstance(names, list):
            raise InputError(f"{names!r}: a list is expected", where=where)
        for name in names:
            if name != DEFAULT:
                check_method_name(str(name), kind, where)


def _read_files(patterns: list[Any], folder: Path) -> Iterator[tuple[str, Problem]]:
    """Yield the problems of all files that patterns such as ``mesh/*.json`` name.

    A file whose name is the pattern is that one alone, also with brackets in it, as ``d[6].json``.
    A problem has the path from the folder of the spec as its name, without the ending.
    """
    for k, pattern in enumerate(patterns):
        try:
            files = [folder / str(pattern)]
            if not files[0].is_file():
                files = sorted(folder.glob(str(pattern)))
        except (OSError, ValueError, NotImplementedError, IndexError) as exc:
            raise InputError(
                f"{pattern!r}: a pattern such as problems/*.json, from the folder of the spec",
                where=f"problems[{k}]",
            ) from exc
        if not files:
            raise InputError(f"{pattern!r}: no such file", where=f"problems[{k}]")
        for file in files:
            problem = load(file)
            if not isinstance(problem, Problem):
                raise InputError(
                    "a schedule file; a problem file is expected here", path=str(file)
                )
            yield os.path.relpath(file, folder).removesuffix(".json"), problem


def _generate_problems(
    block: Any, where: str, generate: Callable[[str], Problem]
) -> Iterator[tuple[str, Problem]]:
    """Yield the problems of a table ``[[generate]]``: one for each combination of its lists.

    There is a list for each placeholder of ``command``; the name of a problem is the template
    ``name`` (or the command) with its placeholders filled in. `block` is the table, `where` its
    place in the file, and `generate` makes a problem from a command. The command ``"demand --model
    solstice --size {n} --delay 0"`` with ``n = [8, 16]`` makes two problems.
    """
    if not isinstance(block, dict) or not isinstance(block.get("command"), str):
        raise InputError("a table with a command is expected", where=where)
    command_template = block["command"]
    name_template = str(block.get("name", command_template))

    # All other keys are placeholders of the command, each with the list of its values.
    value_lists = {key: value for key, value in block.items() if key not in ("command", "name")}
    for key, values in value_lists.items():
        if not isinstance(values, list) or "{" + key + "}" not in command_template:
            raise InputError(f"a list, for {{{key}}} in the command", where=f"{where}.{key}")
    check_size("tasks", prod(map(len, value_lists.values())), where)

    for combination in product(*value_lists.values()):
        value_of_key = dict(zip(value_lists, combination, strict=True))
        command = _fill_placeholders(command_template, value_of_key, where)
        name = _fill_placeholders(name_template, value_of_key, where)
        yield name, generate(command)


def _fill_placeholders(template: str, value_of_key: dict[str, Any], where: str) -> str:
    """Replace each ``{key}`` of a text by its value; a key without a value is an error."""

    def replacement(placeholder: re.Match[str]) -> str:
        """Return the value of one placeholder as text."""
        key = placeholder[1]
        if key not in value_of_key:
            raise InputError(f"{placeholder[0]} has no list of values", where=where)
        return str(value_of_key[key])

    return re.sub(r"\{(.*?)\}", replacement, template)
