"""The spec of a sweep: a TOML file that names problems, methods, seeds and limits."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from optmatch.io import load
from optmatch.io.contents import decode, read_bytes
from optmatch.io.fields import from_object
from optmatch.kinds import check_method_name, default_method
from optmatch.model import FormatError, InputError, Limits, Problem, check_size, naming
from optmatch.model.files import path_name
from optmatch.problems import PROBLEMS
from optmatch.sweeps.tasks import Task

DEFAULT = "default"
"""Stands for the default method of a kind."""

_KEYS = {"problems": list, "generate": list, "methods": (list, dict), "seeds": (int, list)}


def read_spec(path: str | os.PathLike[str], generate: Callable[[str], Problem]) -> list[Task]:
    """Read the tasks of a sweep: problems x methods x seeds.

    ``problems`` lists patterns of problem files, from the folder of the file. Each table
    ``[[generate]]`` has a ``command``, as behind `optmatch generate`, in which ``{size}`` stands
    for each value of its list ``size``; `generate` makes a problem of it. ``methods`` is a list,
    or a table with one for each kind. ``seeds`` is a list, or how many. ``[limits]`` has the
    fields of `Limits`. An `InputError` names the file, the place and the rule.
    """
    name = path_name(path)
    text = decode(read_bytes(path), name)
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as exc:
        raise FormatError(f"{exc}: not TOML", path=name) from exc
    with naming(name):
        return list(_tasks(tree, Path(path).parent, generate))


def _tasks(
    tree: dict[str, Any], folder: Path, generate: Callable[[str], Problem]
) -> Iterator[Task]:
    for key, value in tree.items():
        expected = _KEYS.get(key, dict if key == "limits" else None)
        if expected is None:
            raise InputError(_unknown(key, [*_KEYS, "limits"]), where=key)
        if not isinstance(value, expected):  # type: ignore[arg-type]
            words = {list: "a list", dict: "a table", int: "a whole number"}
            kinds = expected if isinstance(expected, tuple) else (expected,)
            allowed = " or ".join(words[kind] for kind in kinds)
            raise InputError(f"{key} = {value!r}: {allowed} is expected", where=key)
    _check_methods(tree.get("methods", [DEFAULT]))
    limits = from_object(Limits, tree.get("limits", {}), "limits")
    seeds = tree.get("seeds", 1)
    n_seeds = max(0, seeds) if isinstance(seeds, int) else len(seeds)
    methods = tree.get("methods", [DEFAULT])
    found = 0
    for name, problem in _problems(tree, folder, generate):
        fitting = methods
        if isinstance(methods, dict):
            fitting = methods.get(problem.kind, [DEFAULT])
        found += len(fitting) * n_seeds
        check_size("tasks", found, "seeds")
        for method in fitting:
            chosen = default_method(problem).name if method == DEFAULT else str(method)
            for seed in range(n_seeds) if isinstance(seeds, int) else seeds:
                yield Task(problem, chosen, seed=seed, limits=limits, name=name)
    if not found:
        raise InputError("no tasks: problems, methods or seeds are empty", where="problems")


def _check_methods(methods: Any) -> None:
    """Refuse kinds and methods that do not exist, before the first problem is made.

    Parameters
    ----------
    methods
        A list of names, for all kinds; or a table of such lists, by kind.
    """
    by_kind: dict[str | None, Any] = methods if isinstance(methods, dict) else {None: methods}
    for kind, names in by_kind.items():
        if kind is not None and kind not in PROBLEMS:
            raise InputError(_unknown(kind, list(PROBLEMS)), where=f"methods/{kind}")
        where = "methods" if kind is None else f"methods/{kind}"
        if not isinstance(names, list):
            raise InputError(f"{names!r}: a list is expected", where=where)
        for name in names:
            if name != DEFAULT:
                check_method_name(str(name), kind, where)


def _unknown(name: str, known: list[str]) -> str:
    """Return a message about a name that does not exist, with the nearest one that does."""
    close = get_close_matches(name, known, n=1)
    hint = f"perhaps {close[0]!r}" if close else f"known are {', '.join(known)}"
    return f"{name}: no such name; {hint}"


def _problems(
    tree: dict[str, Any], folder: Path, generate: Callable[[str], Problem]
) -> Iterator[tuple[str, Problem]]:
    """Yield names and problems: of files, then of commands."""
    for k, pattern in enumerate(tree.get("problems", [])):
        try:
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
    for k, block in enumerate(tree.get("generate", [])):
        where = f"generate[{k}]"
        if not isinstance(block, dict) or not isinstance(block.get("command"), str):
            raise InputError("a table with a command is expected", where=where)
        rest = {key: value for key, value in block.items() if key not in ("command", "name")}
        for key, values in rest.items():
            if not isinstance(values, list) or "{" + key + "}" not in block["command"]:
                raise InputError(f"a list, for {{{key}}} in the command", where=f"{where}.{key}")
        check_size("tasks", prod(map(len, rest.values())), where)
        for values in product(*rest.values()):
            chosen = dict(zip(rest, values, strict=True))
            command = _fill(block["command"], chosen, where)
            yield _fill(str(block.get("name", block["command"])), chosen, where), generate(command)


def _fill(text: str, chosen: dict[str, Any], where: str) -> str:
    """Put values in place of their names in braces."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in chosen:
            raise InputError(f"{found[0]} has no list of values", where=where)
        return str(chosen[found[1]])

    return re.sub(r"\{(.*?)\}", value, text)
