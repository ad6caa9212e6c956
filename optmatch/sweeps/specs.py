"""The spec of a sweep: a TOML file that names problems, methods, seeds and limits."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from itertools import chain, product
from math import prod
from pathlib import Path
from typing import Any

from optmatch.io import load
from optmatch.io.fields import from_object
from optmatch.io.text import decode, read_bytes
from optmatch.kinds import check_method_name, default_method
from optmatch.model import FormatError, InputError, Limits, Problem, check_size, naming
from optmatch.model.files import file_path, path_name
from optmatch.problems import PROBLEMS
from optmatch.sweeps.store import Task

DEFAULT = "default"
"""Stands for the default method of a kind."""

# The keys of a spec, each with the types that it may have.
_TYPES_OF_KEY: dict[str, tuple[type, ...]] = {
    "problems": (list,),
    "generate": (list,),
    "methods": (list, dict),
    "seeds": (int, list),
    "limits": (dict,),
}
_WORD_OF_TYPE = {list: "a list", dict: "a table", int: "a whole number"}


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
        types = _TYPES_OF_KEY.get(key)
        if types is None:
            raise InputError(_unknown_name(key, list(_TYPES_OF_KEY)), where=key)
        if not isinstance(value, types):
            allowed = " or ".join(_WORD_OF_TYPE[allowed_type] for allowed_type in types)
            raise InputError(f"{key} = {value!r}: {allowed} is expected", where=key)

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
            raise InputError(_unknown_name(kind, list(PROBLEMS)), where=f"methods/{kind}")
        where = "methods" if kind is None else f"methods/{kind}"
        if not isinstance(names, list):
            raise InputError(f"{names!r}: a list is expected", where=where)
        for name in names:
            if name != DEFAULT:
                check_method_name(str(name), kind, where)


def _unknown_name(name: str, allowed: list[str]) -> str:
    """Return a message about a name that does not exist, with the nearest one that does."""
    close = get_close_matches(name, allowed, n=1)
    hint = f"perhaps {close[0]!r}" if close else f"known are {', '.join(allowed)}"
    return f"{name}: no such name; {hint}"


def _read_files(patterns: list[Any], folder: Path) -> Iterator[tuple[str, Problem]]:
    """Yield the problems of all files that patterns such as ``mesh/*.json`` name.

    A problem has the path from the folder of the spec as its name, without the ending.
    """
    for k, pattern in enumerate(patterns):
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
