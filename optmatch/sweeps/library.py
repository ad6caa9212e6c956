"""The library of problems: each with its source, best known value and bound, in one index."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import optmatch
from optmatch.entrances import verify
from optmatch.io import load
from optmatch.io.fields import from_object, to_object
from optmatch.io.problems import problem_digest
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
from optmatch.model.files import locked, replace_file

INDEX_FORMAT = "optmatch/instances/1"
INDEX = "index.json"
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
        self.folder: Path = Path(folder or os.environ.get(FOLDER) or _shipped())
        path = self.folder / INDEX
        try:
            tree = parse_json(path.read_bytes(), str(path))
        except OSError as exc:
            hint = f"no library of problems; {FOLDER} names another folder"
            raise FormatError(f"{exc.strerror}: {hint}", path=str(path)) from exc
        if not isinstance(tree, dict) or tree.get("format") != INDEX_FORMAT:
            raise FormatError(f"format: {INDEX_FORMAT} is expected", path=str(path))
        with naming(path):
            found = [from_object(Entry, row, "/instances") for row in tree.get("instances", ())]
        self._entries = {entry.name: entry for entry in found}
        self._better: list[tuple[str, Solution]] = []

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, name: str) -> Entry:
        """Return an entry by its name; raise `InputError` if there is none."""
        if name not in self._entries:
            from difflib import get_close_matches

            close = get_close_matches(name, self._entries, n=1)
            hint = f", perhaps {close[0]!r}" if close else " (see `optmatch instances list`)"
            raise InputError(f"{name!r}: no such instance{hint}", where="name")
        return self._entries[name]

    def path(self, name: str) -> Path:
        """Return the file of an instance."""
        return self.folder / f"{self.entry(name).name}.json"

    def problem(self, name: str) -> Problem:
        """Read an instance; raise `InputError` if it is not the one of the index."""
        found = load(self.path(name))
        assert isinstance(found, Problem)
        if problem_digest(found) != self.entry(name).problem_sha256:
            raise InputError("not the problem of the index: its digest differs", path=name)
        return found

    def submit(self, solution: Solution) -> tuple[Entry, bool]:
        """Return the entry of the problem as it is with this answer, and whether that is better.

        The index is not changed; `write` does that. `InputError` says that the problem is not in
        the library, `VerificationError` that the answer is not accepted.
        """
        sha256 = problem_digest(solution.problem)
        entry = next((e for e in self if e.problem_sha256 == sha256), None)
        if entry is None:
            raise InputError(f"problem {sha256[:12]} is not in the library", where="problem")
        report = verify(solution.problem, solution)
        if not report.valid:
            raise VerificationError(f"{entry.name}: {report.complaint}")
        solution = replace(solution, proof=report.proof)
        best = _better(entry.best, solution)
        better = replace(entry, best=best)
        if best != entry.best:
            self._entries[entry.name] = better
            self._better.append((entry.name, solution))
        return better, best != entry.best

    def write(self) -> None:
        """Write what is better into the index, which others may have changed meanwhile."""
        with locked(self.folder):
            self._entries = Library(self.folder)._entries
            for name, solution in self._better:
                entry = self.entry(name)
                self._entries[name] = replace(entry, best=_better(entry.best, solution))
            rows = [to_object(self._entries[name]) for name in sorted(self._entries)]
            tree = {"format": INDEX_FORMAT, "instances": rows}
            replace_file(self.folder / INDEX, (layout(plain(tree)) + "\n").encode())

    def table(self) -> str:
        """Return all entries as a page of Markdown."""
        lines = []
        for kind in sorted({entry.kind for entry in self}):
            lines += [f"\n## {kind}\n", "| instance | question | best known | source |"]
            lines.append("|---|---|---|---|")
            lines += [
                f"| `{e.name}` | {e.question} | {told(e)} | {_code(e.source)} |"
                for e in self
                if e.kind == kind
            ]
        return "\n".join(lines) + "\n"


def _shipped() -> Path:
    """Return the folder in the installed package; in a checkout it lies beside the package."""
    package = Path(optmatch.__file__).resolve().parent
    inside = package / "instances"
    return inside if inside.is_dir() else package.parent / "instances"


def told(entry: Entry, *, brief: bool = False) -> str:
    """Return a line with the known values of an instance.

    Parameters
    ----------
    entry
        The instance.
    brief
        Whether to leave out the method that found the value, its time, and the names of levels.
    """
    best = entry.best
    if best is None or (best.objective is None and best.status != Status.INFEASIBLE.value):
        return "nothing"

    found_by = f" (`{best.method}`, {best.time_s:.2g} s)" if not brief else ""
    unproved = ", unproved" if best.proof == "search" else ""
    if best.objective is None:
        return f"{best.status}{unproved}{found_by}"

    unit = "" if brief and isinstance(best.objective, tuple) else entry.unit
    value = write_score(best.objective, unit)
    if best.status == Status.OPTIMAL.value:
        return f"{value}, optimal{unproved}{found_by}"
    if best.lower_bound is None:
        return f"{value}{found_by}"
    return f"{value}; at least {write_score(best.lower_bound, unit)}{found_by}"


def _better(known: Record | None, found: Solution) -> Record | None:
    """Return the better of the known value and the one found now."""
    bound = found.lower_bound if is_known(found.lower_bound) else None
    if known is None:
        if found.status is Status.UNKNOWN:
            return None
        return _record(found, bound, found.method)
    if known.status == Status.INFEASIBLE.value or found.status is Status.INFEASIBLE:
        stronger = found.status is Status.INFEASIBLE and (
            known.status != found.status.value
            or (known.proof == "search" and found.proof != "search")
        )
        return _record(found, None, found.method) if stronger else known
    objective = found.objective
    if objective is not None and (known.objective is None or objective < known.objective):
        known = _record(found, known.lower_bound, known.bound_by)
    if bound is not None and (known.lower_bound is None or bound > known.lower_bound):
        known = replace(known, lower_bound=bound, bound_by=found.method, proof=found.proof)
        if bound == known.objective:
            known = replace(known, status=Status.OPTIMAL.value)
    if found.status is Status.OPTIMAL and objective == known.objective:
        known = replace(known, status=found.status.value, proof=found.proof)
    return known


def _record(found: Solution, bound: Score | None, bound_by: str) -> Record:
    return Record(
        status=found.status.value,
        objective=found.objective,
        lower_bound=bound,
        proof=found.proof,
        method=found.method,
        seed=found.seed,
        time_s=float(f"{found.time_s:.2g}"),
        bound_by=bound_by,
    )


def _code(source: str) -> str:
    return f"`{source}`" if source.startswith("optmatch ") else source
