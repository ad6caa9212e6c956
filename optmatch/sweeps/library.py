"""The library of problems: each with its source, best known value and bound, in one index."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import optmatch
from optmatch.entrances import verify
from optmatch.io import load, problem_digest
from optmatch.io.fields import from_object, to_object
from optmatch.io.text import layout, parse_json, plain
from optmatch.model import (
    FormatError,
    InputError,
    Problem,
    Score,
    Solution,
    Status,
    VerificationError,
    check_fields,
    is_known,
    naming,
    write_score,
)
from optmatch.model.errors import nearest_name
from optmatch.model.files import locked, replace_file

_INDEX_FORMAT = "optmatch/instances/1"
_INDEX = "index.json"
FOLDER = "OPTMATCH_INSTANCES"
"""The variable of the environment that names another folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The best known value of a problem, and its source.

    Parameters
    ----------
    status
        Of `Status`: what is proved.
    objective, lower_bound
        The best of each, which different methods may have found; None if unknown.
    proof
        The proof of status and bound, as in `Solution`.
    method, seed, time_s
        Of the answer or, without one, of the proof that there is none.
    bound_by
        The method that found the bound.
    """

    status: str
    objective: Score | None
    lower_bound: Score | None
    proof: str | None
    method: str
    seed: int | None
    time_s: float
    bound_by: str

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A problem of the library.

    Parameters
    ----------
    name
        Its file, from the folder of the library and without ``.json``.
    question, source
        The question of the instance, and its origin: a publication, or the command that made it.
    best
        The best known value; None if there is none.
    """

    name: str
    kind: str
    unit: str
    problem_sha256: str
    question: str
    source: str
    best: Record | None = None


class Library:
    """The problems of a folder, by default of that of ``OPTMATCH_INSTANCES`` or of this package.

    Without an index there `FormatError` is raised.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        """Read the index of a library of problems, with the best known solution of each.

        Parameters
        ----------
        folder
            The folder of the index. None takes the one that the environment names, or else the one
            that is shipped.

        Raises
        ------
        FormatError
            If there is no index, or it has another format.
        """
        # The shipped folder is in the installed package; in a checkout it lies beside the package.
        package = Path(optmatch.__file__).resolve().parent
        shipped = package / "instances"
        if not shipped.is_dir():
            shipped = package.parent / "instances"
        self.folder: Path = Path(folder or os.environ.get(FOLDER) or shipped)
        path = self.folder / _INDEX
        try:
            tree = parse_json(path.read_bytes(), str(path))
        except OSError as exc:
            hint = f"no library of problems; {FOLDER} names another folder"
            raise FormatError(f"{exc.strerror}: {hint}", path=str(path)) from exc
        if not isinstance(tree, dict) or tree.get("format") != _INDEX_FORMAT:
            raise FormatError(f"format: {_INDEX_FORMAT} is expected", path=str(path))
        with naming(path):
            entries = [from_object(Entry, row, "/instances") for row in tree.get("instances", ())]
        self._entries = {entry.name: entry for entry in entries}

        # Submitted solutions that improve the index; `write` merges them into the file.
        self._improvements: list[tuple[str, Solution]] = []

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, name: str) -> Entry:
        """Return an entry of the library by its name.

        Parameters
        ----------
        name
            The name. An unknown one is an `InputError` that names the nearest one.
        """
        if name not in self._entries:
            hint = nearest_name(name, self._entries, "`optmatch instances list` lists them")
            raise InputError(f"{name!r}: no such instance; {hint}", where="name")
        return self._entries[name]

    def path(self, name: str) -> Path:
        """Return the file of an instance."""
        return self.folder / f"{self.entry(name).name}.json"

    def problem(self, name: str) -> Problem:
        """Read an instance; raise `InputError` if it is not the one of the index."""
        problem = load(self.path(name))
        assert isinstance(problem, Problem)
        if problem_digest(problem) != self.entry(name).problem_sha256:
            raise InputError("not the problem of the index: its digest differs", path=name)
        return problem

    def submit(self, solution: Solution) -> tuple[Entry, bool]:
        """Verify a solution of one of the problems, and merge it into the best known value.

        The file of the index is not changed; `write` does that.

        Parameters
        ----------
        solution
            An answer, a proof that there is none, or a bound.

        Returns
        -------
        entry : Entry
            The entry of the problem, with the better of both values.
        is_better : bool
            Whether the solution has improved it.

        Raises
        ------
        InputError
            If the problem is not in the library.
        VerificationError
            If the solution violates a rule.
        """
        sha256 = problem_digest(solution.problem)
        entry = next((e for e in self if e.problem_sha256 == sha256), None)
        if entry is None:
            raise InputError(f"problem {sha256[:12]} is not in the library", where="problem")

        # The verifier says what is proved, whatever the method has claimed.
        report = verify(solution.problem, solution)
        if not report.valid:
            raise VerificationError(f"{entry.name}: {report.complaint}")
        solution = replace(solution, proof=report.proof)

        best = _merge_best(entry.best, solution)
        is_better = best != entry.best
        merged_entry = replace(entry, best=best)
        if is_better:
            self._entries[entry.name] = merged_entry
            self._improvements.append((entry.name, solution))
        return merged_entry, is_better

    def write(self) -> None:
        """Write submitted improvements into the index, which others may have changed meanwhile.

        The index is locked, read anew, merged with the improvements, and replaced as a whole.
        """
        with locked(self.folder):
            self._entries = Library(self.folder)._entries
            for name, solution in self._improvements:
                entry = self.entry(name)
                self._entries[name] = replace(entry, best=_merge_best(entry.best, solution))
            rows = [to_object(self._entries[name]) for name in sorted(self._entries)]
            tree = {"format": _INDEX_FORMAT, "instances": rows}
            replace_file(self.folder / _INDEX, (layout(plain(tree)) + "\n").encode())

    def table(self) -> str:
        """Write all entries as a page of Markdown, with a table for each kind of problem.

        Returns
        -------
        str
            Each row has the name, the question, the best known solution and the source.
        """
        lines = []
        for kind in sorted({entry.kind for entry in self}):
            lines.append(f"\n## {kind}\n")
            lines.append("| instance | question | best known | source |")
            lines.append("|---|---|---|---|")
            for entry in self:
                if entry.kind == kind:
                    best_known = describe_best(entry)
                    is_command = entry.source.startswith("optmatch ")
                    source = f"`{entry.source}`" if is_command else entry.source
                    lines.append(
                        f"| `{entry.name}` | {entry.question} | {best_known} | {source} |"
                    )
        return "\n".join(lines) + "\n"


def describe_best(entry: Entry, *, brief: bool = False) -> str:
    """Describe the best known value and bound of an instance in one line.

    Parameters
    ----------
    entry
        The instance.
    brief
        Whether to leave out the method that found the value, its time, and the names of levels.

    Returns
    -------
    str
        As ``12 cells; at least 10 cells (`ilp`, 3 s)``; "nothing" if no value is known.
    """
    best = entry.best
    if best is None or (best.objective is None and best.status != Status.INFEASIBLE.value):
        return "nothing"

    method = "" if brief else f" (`{best.method}`, {best.time_s:.2g} s)"
    unproved = ", unproved" if best.proof == "search" else ""
    if best.objective is None:
        return f"{best.status}{unproved}{method}"

    # The unit of several levels is a list of their names.
    unit = "" if brief and isinstance(best.objective, tuple) else entry.unit
    value = write_score(best.objective, unit)
    if best.status == Status.OPTIMAL.value:
        return f"{value}, optimal{unproved}{method}"
    if best.lower_bound is None:
        return f"{value}{method}"
    return f"{value}; at least {write_score(best.lower_bound, unit)}{method}"


def _merge_best(best: Record | None, solution: Solution) -> Record | None:
    """Return the best that is known of a problem, after one more solution of it.

    Objective and lower bound are improved one by one, perhaps by different methods. For example, a
    record with the objective 10 and the bound 7 and a solution with 9 and 6 give 9 and 7.

    Parameters
    ----------
    best
        What was known before; None if nothing was. These fields are read:

        - `objective`, `lower_bound`: numbers, or None where there are none;
        - `status`: the name of a status; `infeasible` means that the problem has no answer;
        - `proof`: what proves bound or status; "search" is weaker than all else.
    solution
        A verified solution of the same problem. Its `proof` is that of the verifier.

    Returns
    -------
    Record or None
        The improved record; `best` itself where the solution improves nothing; None if nothing was
        known and the solution neither answers nor proves anything.
    """
    bound = solution.lower_bound if is_known(solution.lower_bound) else None
    if best is None:
        if solution.status is Status.UNKNOWN:
            return None
        return _make_record(solution, bound, solution.method)

    # A problem without an answer has no objective and no bound: only a stronger proof is better.
    is_infeasible = solution.status is Status.INFEASIBLE
    was_infeasible = best.status == Status.INFEASIBLE.value
    is_stronger = best.proof == "search" and solution.proof != "search"
    if is_infeasible and (is_stronger or not was_infeasible):
        return _make_record(solution, None, solution.method)
    if is_infeasible or was_infeasible:
        return best

    # A better objective keeps the bound with its proof, and a better bound keeps the objective.
    # Where they meet, the answer is optimal.
    objective, known_proof = solution.objective, best.proof
    if objective is not None and (best.objective is None or objective < best.objective):
        best = _make_record(solution, best.lower_bound, best.bound_by)
        if best.lower_bound is not None:
            best = replace(best, proof=known_proof)
    if bound is not None and (best.lower_bound is None or bound > best.lower_bound):
        best = replace(best, lower_bound=bound, bound_by=solution.method, proof=solution.proof)
    if solution.status is Status.OPTIMAL and objective == best.objective:
        best = replace(best, status=solution.status.value, proof=solution.proof)
    if best.objective is not None and best.objective == best.lower_bound:
        best = replace(best, status=Status.OPTIMAL.value)
    return best


def _make_record(solution: Solution, bound: Score | None, bound_by: str) -> Record:
    """Return the record of a solution, with a bound that another method may have found.

    Its time is rounded to two digits.
    """
    return Record(
        status=solution.status.value,
        objective=solution.objective,
        lower_bound=bound,
        proof=solution.proof,
        method=solution.method,
        seed=solution.seed,
        time_s=float(f"{solution.time_s:.2g}"),
        bound_by=bound_by,
    )
