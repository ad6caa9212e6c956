"""Types of parameters in the words of a reader: `array of int32, 2 axes`, `float >= 0 or None`.

Docstrings of this project name their parameters and leave the types to the hints. Before the
docstring of a function or class is read, `write_types` adds them, as in NumPy's own docstrings.
"""

from __future__ import annotations

import inspect
import math
import re
import types
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from optmatch.model.declarations import Axes, Range

_PARAMETERS = "Parameters"


def write_types(
    app: Any, what: str, name: str, documented: Any, options: Any, lines: list[str]
) -> None:
    """Write the type of each parameter behind its name; Sphinx calls it for each docstring.

    Parameters
    ----------
    app, name, options
        Not used.
    what
        The kind of what is documented, as ``"function"``.
    documented
        The function, method or class.
    lines
        The docstring, by lines; it is changed.
    """
    if what in ("attribute", "property") and lines:
        # What stands before a colon here would be taken for a type.
        lines[0] = lines[0].replace(": ", " -- ", 1)
        return
    words = describe_parameters(documented)
    if not words or _PARAMETERS not in lines:
        return
    place = lines.index(_PARAMETERS) + 2  # after the line below the head
    while place < len(lines):
        line = lines[place]
        is_next_section = place + 1 < len(lines) and re.fullmatch(r"-{3,}", lines[place + 1])
        if is_next_section:
            return
        is_name = line and not line.startswith(" ") and " : " not in line
        if is_name:
            said = {words.get(part.strip("* ")) for part in line.split(",")} - {None}
            if said:
                lines[place] = f"{line} : {' or '.join(sorted(map(str, said)))}"
        place += 1


def skip_fields(
    app: Any, what: str, name: str, documented: Any, is_skipped: bool, options: Any
) -> bool | None:
    """Leave out the fields of a class: its parameters describe them. Sphinx asks for each name."""
    return True if repr(documented) == "SLOTS_ATTR" else None  # how Sphinx marks a field


def describe_parameters(documented: Any) -> dict[str, str]:
    """Return the words for the type of each parameter of a function, method or class."""
    maker = documented.__init__ if inspect.isclass(documented) else documented
    try:
        parameters = inspect.signature(maker).parameters
    except (TypeError, ValueError):
        return {}
    try:
        hints = get_type_hints(maker, include_extras=True)
    except (AttributeError, NameError, TypeError):  # names that only type checkers know
        hints = {}
    words = {}
    for name, parameter in parameters.items():
        if parameter.annotation is not inspect.Parameter.empty:
            written = parameter.annotation
            text = written if isinstance(written, str) else inspect.formatannotation(written)
            words[name] = describe_type(hints.get(name), text)
    return words


def describe_type(hint: Any, text: str) -> str:
    """Return the words for a type.

    Parameters
    ----------
    hint
        The type; None if it is not known.
    text
        As its author has written it, which is what is returned where no words are better.
    """
    rules: list[Any] = []
    while get_origin(hint) is Annotated:
        hint, *more = get_args(hint)
        rules = [*more, *rules]
    if get_origin(hint) is np.ndarray:
        return _describe_array(hint, rules)
    if rules and get_origin(hint) in (Union, types.UnionType):
        parts = get_args(hint)
        known = [part for part in parts if part is not types.NoneType]
        words = [describe_type(Annotated[part, *rules], _name_of(part)) for part in known]
        return " or ".join([*words, *["None"] * (len(known) < len(parts))])
    if rules and isinstance(hint, type):
        return " ".join(filter(None, (hint.__name__, _describe_range(rules))))
    return _shorten(text)


def _shorten(text: str) -> str:
    """Return a type as it is written, without what only a type checker reads."""
    text = re.sub(r"NDArray\[(?:np\.)?(\w+?)_?\]", r"array of \1", text)
    text = text.replace("ArrayLike", "array-like").replace("np.", "")
    text = text.replace("str | os.PathLike[str]", "path")
    return text.replace(" | ", " or ")


def _name_of(hint: Any) -> str:
    """Return the name of a type."""
    return hint.__name__ if isinstance(hint, type) else str(hint)


def _describe_array(hint: Any, rules: list[Any]) -> str:
    """Return the words for an array: its numbers, its axes and its range."""
    dtype = get_args(get_args(hint)[1])
    numbers = _name_of(dtype[0]).rstrip("_") if dtype else "Any"
    words = "array" if numbers in ("Any", "typing.Any", "generic") else f"array of {numbers}"
    axes = next((rule for rule in rules if isinstance(rule, Axes)), None)
    if axes is not None:
        words += f", {axes.count} {'axis' if axes.count == 1 else 'axes'}"
    if axes is not None and axes.columns is not None:
        words += f", {axes.columns} columns"
    span = _describe_range(rules)
    return f"{words}, {span}" if span else words


def _describe_range(rules: list[Any]) -> str:
    """Return the words for a range, empty if every number is in it."""
    span = next((rule for rule in rules if isinstance(rule, Range)), Range())
    if math.isfinite(span.least) and math.isfinite(span.most):
        return f"from {span.least:g} to {span.most:g}"
    if math.isfinite(span.least):
        return f"{'>' if span.above else '>='} {span.least:g}"
    return f"<= {span.most:g}" if math.isfinite(span.most) else ""
