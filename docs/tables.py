"""Make the tables of the pages from the declarations of problems, commands and methods.

``python docs/tables.py`` writes them anew between two comments of a page:
``<!-- table: options of generate demand -->`` and ``<!-- end of table -->``. What stands between
them is not edited by hand: a sentence is changed in the docstring or the option that it is from.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from optmatch import problems
from optmatch.cli import main as optmatch_command
from optmatch.commands.generate import generate
from optmatch.commands.shared.options import (
    CONDITION_NAMES,
    FABRIC_NAMES,
)
from optmatch.kinds import all_kinds
from optmatch.model import Stats
from optmatch.model.declarations import Form, Word, forms_of, meanings_of
from optmatch.problems.costs import PRICES
from optmatch.problems.rails.accelerators import ACCELERATORS
from optmatch.problems.rails.presets import PRESETS, list_inputs
from optmatch.problems.rails.published import CASES, HARDWARE

DOCS = Path(__file__).parent
PAGES = (
    *("command-line.md", "file-formats.md", "methods.md", "rails.md", "rails-figures.md"),
    "solutions.md",
)
"""The pages that have such tables."""

_TABLE = re.compile(r"(<!-- table: ([^>]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

_OF_FABRICS = {"type_", *FABRIC_NAMES, *CONDITION_NAMES}
_OF_FILES = {"output", "force"}
_OF_NETLISTS = {*CONDITION_NAMES, "tx", "rx"}


def write_table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of Markdown, whose cells are texts of one line."""
    names = list(titles)
    lines = [_write_row(names), "|" + "---|" * len(names)]
    lines += [_write_row(row) for row in rows]
    return "\n".join(lines)


def _write_row(cells: Iterable[str]) -> str:
    escaped = [cell.replace("|", "\\|") for cell in cells]
    return "| " + " | ".join(escaped) + " |"


def list_options(command_name: str) -> str:
    """Return the table of the options of a command of `generate`.

    Options of fabrics and of files are left out: all commands have them, and they have a table of
    their own, under the name ``all commands``.
    """
    is_shared = command_name == "all commands"
    command = _find_command("routing" if is_shared else command_name)
    has_fabric = any(option.name == "type_" for option in command.params)
    rows = []
    for option in command.params:
        if not isinstance(option, click.Option) or option.hidden or not option.help:
            continue
        assert option.name is not None
        is_fabric = has_fabric and option.name in _OF_FABRICS
        is_of_files = option.name in _OF_FILES or not option.expose_value  # `--quiet` of generate
        if is_shared == is_fabric and not is_of_files:
            rows.append((_write_flags(option), _describe(option)))
    return write_table(("option", "meaning"), rows)


def _find_command(name: str, group: click.Group = generate) -> click.Command:
    """Return a command of `generate`, or of another group, by its name."""
    command = group.get_command(click.Context(group), name)
    assert command is not None, name
    return command


def list_command_options(command_name: str) -> str:
    """Return the table of the options of a command that is no part of `generate`.

    Options of commands that read netlists, which are those of `generate`, are left out.
    """
    command = _find_command(command_name, optmatch_command)
    reads_netlists = any(option.name == "leave_out" for option in command.params)
    rows = []
    for option in command.params:
        if not isinstance(option, click.Option) or option.hidden or not option.help:
            continue
        if not (reads_netlists and option.name in _OF_NETLISTS):
            rows.append((_write_flags(option), _describe(option)))
    return write_table(("option", "meaning"), rows)


def _write_flags(option: click.Option) -> str:
    """Return all spellings of an option, with the name of its value."""
    value = ""
    if not option.is_flag and not isinstance(option.type, click.Choice):
        value = " " + (option.metavar or option.type.name.upper().replace(" RANGE", ""))
    flags = [*option.opts, *option.secondary_opts]
    return ", ".join(f"`{flag}{value}`" for flag in flags)


def _describe(option: click.Option) -> str:
    """Return the help of an option, with its words and its default."""
    text, has_default, default = (option.help or "").partition("  [default: ")
    default = default.removesuffix("]")
    is_shown = option.show_default is not False and not option.is_flag and not option.required
    if not has_default and isinstance(option.show_default, str):
        has_default = "default"
        default = option.show_default.strip("()")
    elif not has_default and is_shown and isinstance(option.default, (int, float, str)):
        has_default = "default"
        default = str(option.default)
    if isinstance(option.type, click.Choice):
        words = [f"`{choice}`" for choice in option.type.choices]
        text += f" One of {', '.join(words)}."
    if option.required:
        text += " Required."
    if not text.endswith((".", ")")):
        text += "."
    if option.multiple and "repeatable" not in text and "once for each" not in text:
        text += " May be given several times."
    if has_default:
        text += f" Default: {default}."
    return text


def list_keys(class_name: str) -> str:
    """Return the table of the keys of a data class in a file."""
    cls = getattr(problems, class_name)
    meanings = meanings_of(cls)
    forms = forms_of(cls)
    rows = []
    for field in fields(cls):
        text = meanings[field.name].replace("``", "`").replace("None", "null")
        rows.append(
            (f"`{field.name}`", text + _list_words(forms[field.name], text), _default_of(field))
        )
    return write_table(("key", "meaning", "default"), rows)


def _list_words(form: Form, text: str) -> str:
    """Return the words that a field may hold, where its meaning does not name them all."""
    if not isinstance(form, Word) or all(word in text for word in form.options):
        return ""
    return " One of " + ", ".join(f"`{word}`" for word in form.options) + "."


def _default_of(field: Any) -> str:
    """Return the default of a field as JSON; empty where a file has to state it."""
    if field.default is not MISSING:
        default = field.default
    elif field.default_factory is not MISSING:
        default = field.default_factory()
    else:
        return ""
    if isinstance(default, float):
        return f"{default:g}"
    if isinstance(default, Mapping):
        default = dict(default)
    elif not isinstance(default, str | int | tuple | None):
        return "as above"  # an object, whose keys have defaults of their own
    return f"`{json.dumps(default)}`"


def list_methods(kind_name: str) -> str:
    """Return the table of the methods of a kind of problem."""
    kind = next(kind for kind in all_kinds() if kind.problem.kind == kind_name)
    default = next(method.name for method in kind.methods if method.suits is None)
    rows = []
    is_before_default = True
    for method in kind.methods:
        mark = ""
        if method.name == default:
            mark = " (default)"
            is_before_default = False
        elif is_before_default:
            mark = " (default where it fits)"
        rows.append((f"`{method.name}`{mark}", "yes" if method.exact else "no", method.summary))
    return write_table(("method", "exact", "what it does"), rows)


_WORD_OF_TYPE = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "list[str]": "list of text",
    "list[list[int]]": "list of pairs of ports",
}
_UNITS = {"_s": ", seconds", "_centidb": ", 0.01 dB", "_db": ", dB"}


def list_stats(class_name: str) -> str:
    """Return the table of the statistics of a solution.

    The sentence below each name of the class says of which kinds of problem it is, and after a
    colon what it means.
    """
    assert class_name == "Stats"
    (body,) = [
        node.body
        for node in ast.parse(inspect.getsource(sys.modules[Stats.__module__])).body
        if isinstance(node, ast.ClassDef) and node.name == class_name
    ]
    rows = []
    for field, sentence in pairwise(body):
        if not isinstance(field, ast.AnnAssign):
            continue
        key = ast.unparse(field.target)
        assert isinstance(sentence, ast.Expr)
        text = " ".join(ast.literal_eval(sentence.value).split()).replace("``", "`")
        kinds, _, meaning = text.partition(": ")
        type_name = _WORD_OF_TYPE[ast.unparse(field.annotation)]
        unit = next((unit for ending, unit in _UNITS.items() if key.endswith(ending)), "")
        kinds = kinds[0].lower() + kinds[1:].removesuffix(" kinds")
        rows.append((f"`{key}`", type_name + unit, kinds, meaning.removesuffix(".")))
    return write_table(("key", "type", "of", "meaning"), rows)


def list_figures(name: str) -> str:
    """Return the table of the records of a file of figures, with their sources."""
    if name == "accelerators":
        return write_table(
            ("`--accelerator`", "dense bf16", "memory", "efficiency", "source"),
            [
                (
                    accelerator,
                    f"{figures.peak_flops_per_s / 1e12:,g} Tflop/s",
                    f"{figures.memory_bytes_per_s / 1e12:g} TB/s",
                    f"{figures.efficiency:g}",
                    figures.source,
                )
                for accelerator, figures in ACCELERATORS.items()
            ],
        )
    if name == "presets":
        titles = ("preset", "degrees of a replica", "batch of a replica", "source")
        return write_table(titles, [_describe_preset(preset) for preset in PRESETS])
    if name == "prices":
        return write_table(("`--hardware`", "part", "dollars", "W", "source"), _describe_prices())
    rows = []
    for case, published in CASES.items():
        hardware = HARDWARE[published.hardware]
        servers = f"{hardware.tp} GPUs, {hardware.scale_up_gigabytes_per_s:g} GB/s"
        rate = f"{published.port_gigabytes_per_s:g} GB/s"
        rows.append((f"`{case}`", str(published.dp), rate, servers, hardware.source.strip()))
    return write_table(("case", "dp", "port", "server", "source of the hardware"), rows)


def _describe_prices() -> list[tuple[str, str, str, str, str]]:
    """Return a row for each part of each generation of hardware."""
    rows = []
    for hardware, prices in PRICES.items():
        for noun in ("transceiver", "switch port", "ocs port"):
            part = getattr(prices, noun.replace(" ", "_"))
            rows.append((hardware, noun, f"{part.usd:.2f}", f"{part.watts:.4g}", part.source))
    return rows


def _describe_preset(name: str) -> tuple[str, str, str, str]:
    """Return the row of a preset: the degrees that differ from 1, its batch, and the source."""
    preset = PRESETS[name]
    degrees = []
    for degree in ("dp", "tp", "pp", "cp", "ep", "zero_stage", "shard"):
        value = getattr(preset.parallelism, degree)
        if value not in (None, 0, 1) or (degree == "zero_stage" and value):
            degrees.append(f"{degree} {value}")
    return f"`{name}`", ", ".join(degrees), f"{preset.batch:,}", preset.source


def list_inputs_of_presets(as_run: str) -> str:
    """Return the table of the inputs of presets: those of the paper, fitted, and chosen."""
    assert as_run == "presets"
    rows = []
    for name in PRESETS:
        origin_of_input = list_inputs(name)
        cells = []
        for origin in ("paper", "fitted", "chosen"):
            own = [f"`{one}`" for one, kind in origin_of_input.items() if kind == origin]
            cells.append(", ".join(own) or "none")
        rows.append((f"`{name}`", *cells))
    return write_table(("preset", "paper", "fitted", "chosen"), rows)


MAKERS: dict[str, Callable[[str], str]] = {
    "options of generate ": list_options,
    "options of ": list_command_options,
    "keys of ": list_keys,
    "methods of ": list_methods,
    "figures of ": list_figures,
    "inputs of ": list_inputs_of_presets,
    "statistics of ": list_stats,
}
"""What makes a table, by how its name begins; it is called with the rest of the name."""


def make_table(name: str) -> str:
    """Return a table by its name in a page, as ``keys of Demand``."""
    for beginning, make in MAKERS.items():
        if name.startswith(beginning):
            return make(name.removeprefix(beginning))
    raise ValueError(f"no table is called {name!r}; a name begins with {', '.join(MAKERS)}")


def renew(text: str) -> str:
    """Return the text of a page with all of its tables made anew."""
    return _TABLE.sub(lambda match: f"{match[1]}\n{make_table(match[2])}\n\n{match[3]}", text)


def main() -> None:
    """Write the tables of all pages anew."""
    for name in PAGES:
        page = DOCS / name
        text = page.read_text("utf-8")
        new = renew(text)
        if new != text:
            page.write_text(new, "utf-8")
        print(f"docs/{name}: {'written' if new != text else 'as it was'}")


if __name__ == "__main__":
    main()
