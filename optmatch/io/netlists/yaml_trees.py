"""Reads YAML and JSON files of netlists as trees of mappings, lists and texts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any, ClassVar

from optmatch.io.contents import read_bytes
from optmatch.io.fields import shorten
from optmatch.io.text import parse_json
from optmatch.model import FormatError, InputError, SolverUnavailable, check_size
from optmatch.model.files import path_name

_OTHER_FORMATS = {
    **dict.fromkeys((".spi", ".sp", ".spice", ".cir", ".ckt", ".scs"), "SPICE"),
    **dict.fromkeys((".gds", ".oas"), "a layout"),
}
"""Endings of files that hold no netlist with names of pins."""

_SPICE = re.compile(rb"^\s*\.subckt\b", re.IGNORECASE | re.MULTILINE)
_DEFAULT_SETTINGS = re.compile(r"^default_settings:[ \t]*\n(?:[ \t]+.*\n|[ \t]*\n)*", re.MULTILINE)
_SETTING = re.compile(r"\{\{\s*settings\.(\w+)\s*\}\}")
_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")


def read_tree(path: str | os.PathLike[str], flaws: list[str]) -> Any:
    """Read the tree of a YAML or JSON file; a template of gdsfactory gets its default settings.

    In YAML all scalars but null are texts: ``on``, ``off`` and ``1_0`` are names of parts, not
    values. Keys that are there twice, of which YAML would drop one, are added to `flaws`. A format
    without names of pins is refused with what to export instead.
    """
    content = read_bytes(path)
    name = path_name(path)
    other_format = _OTHER_FORMATS.get(PurePath(name).suffix.lower())
    if other_format or _SPICE.search(content):
        raise FormatError(
            f"{other_format or 'SPICE'}, where pins have no names: export the netlist of the"
            " layout as YAML or JSON, as gdsfactory does by component.get_netlist(recursive=True)",
            path=name,
        )
    if content.lstrip()[:1] == b"{" and not content.lstrip().startswith(b"{{"):
        return parse_json(content, name)
    try:
        import yaml
    except ImportError as exc:
        raise SolverUnavailable("YAML needs PyYAML: pip install 'optmatch[netlist]'") from exc

    # Events are checked before anything is built, since a small file with aliases may stand for a
    # huge tree.
    try:
        filled = _fill_template(content, yaml)
        loader = _text_loader(yaml)
        _check_events(yaml.parse(filled, loader), name)
        reader = loader(filled)
        node = reader.get_single_node()
        flaws += _find_repeated_keys(node)
        return None if node is None else reader.construct_document(node)
    except (InputError, MemoryError):
        raise
    except Exception as exc:  # of values that do not fit their tags PyYAML raises nearly anything
        # The message has the line, and for a template what to do.
        mark = getattr(exc, "problem_mark", None)
        place = "" if mark is None else f":{mark.line + 1}:{mark.column + 1}"
        problem = getattr(exc, "problem", None) or "a mapping is expected"
        hint = ""
        if b"{{" in content or b"{%" in content:
            hint = "; it is a template: export component.get_netlist() of what it makes"
        raise FormatError(f"{problem}: not YAML{hint}", path=f"{name}{place}") from exc


def _text_loader(yaml: Any) -> Any:
    """Make a loader of PyYAML for which all scalars but null are texts."""
    fast: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 10 times as fast

    class TextLoader(fast):  # type: ignore[misc]
        """A safe loader that guesses no types."""

        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    TextLoader.add_implicit_resolver("tag:yaml.org,2002:null", _NULL, ["~", "n", "N", ""])
    TextLoader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile("^<<$"), ["<"])

    def build_list(loader: Any, node: Any) -> Any:
        """Return a tuple as a list."""
        return loader.construct_sequence(node, deep=True)

    # `yaml.dump` of a netlist of gdsfactory writes its nets as a tuple.
    TextLoader.add_constructor("tag:yaml.org,2002:python/tuple", build_list)
    return TextLoader


def _fill_template(content: bytes, yaml: Any) -> bytes:
    """Return a file with the values of its block of default settings in their places."""
    text = content.decode("utf-8", errors="surrogateescape")
    block = _DEFAULT_SETTINGS.search(text)
    if block is None or _SETTING.search(text) is None:
        return content
    settings = yaml.load(block[0], _text_loader(yaml))["default_settings"]

    def value_of(match: re.Match[str]) -> str:
        """Return the default of a setting, or the expression if it has none that is a scalar."""
        setting = settings.get(match[1])
        value = setting.get("value") if isinstance(setting, dict) else None
        return value if isinstance(value, str) else match[0]

    body = text[: block.start()] + text[block.end() :]
    return _SETTING.sub(value_of, body).encode("utf-8", errors="surrogateescape")


def _check_events(events: Iterable[Any], path: str) -> None:
    """Refuse a YAML document that would become too large a tree, before the tree is built.

    A part may be named (an anchor, ``&a``) and repeated by its name (an alias, ``*a``): a small
    file with aliases of aliases may stand for a huge tree. Texts with half of a pair of surrogates
    are refused, too.
    """
    # The parts that are open, the innermost last: its anchor, the number of its first event, and
    # whether it is inside a part with an anchor.
    levels: list[tuple[str | None, int, bool]] = [(None, 0, False)]  # anchor, first event, inside

    # For each anchor how many events its part has, and how many events aliases have repeated.
    size_of_anchor: dict[str, int] = {}
    n_repeated = 0
    for count, event in enumerate(events):
        # A part begins, ends, or is repeated. It counts as inside an anchor if any part around it
        # has one.
        kind = type(event).__name__
        if kind == "ScalarEvent" and any("\ud800" <= letter <= "\udfff" for letter in event.value):
            message = f"{shorten(event.value)}: half of a pair of surrogates"
            raise FormatError(message, path=f"{path}:{event.start_mark.line + 1}")

        # How large each anchor is, and how much its aliases repeat.
        if kind.endswith("StartEvent"):
            anchor = getattr(event, "anchor", None)
            has_anchor = levels[-1][2] or anchor is not None
            levels.append((anchor, count, has_anchor))
            check_size("depth", len(levels), "")
        elif kind.endswith("EndEvent"):
            anchor, first, _ = levels.pop()
            size_of_anchor[anchor or ""] = count - first
        elif kind == "AliasEvent":
            if levels[-1][2]:
                message = f"*{event.anchor}: an alias within what has an anchor"
                raise FormatError(message, path=f"{path}:{event.start_mark.line + 1}")
            n_repeated += size_of_anchor.get(event.anchor, 1)
            check_size("repeats", n_repeated, "")


def _find_repeated_keys(node: Any) -> list[str]:
    """List keys that are there twice in a mapping, anywhere below a node, by their lines."""
    flaws = []
    waiting = [node]
    visited = set[int]()
    while waiting:
        # A node with an anchor is there once for each alias, and is looked at once.
        node = waiting.pop()
        if node is None or isinstance(node.value, str) or id(node) in visited:
            continue
        visited.add(id(node))

        # Keys of this mapping; the entries of a list have none.
        keys = set()
        for entry in node.value:
            key, value = entry if isinstance(entry, tuple) else (None, entry)
            waiting.append(value)
            if key is not None and isinstance(key.value, str):
                if key.value in keys:
                    flaws.append(f"{key.value} is there twice, line {key.start_mark.line + 1}")
                keys.add(key.value)
    return flaws
