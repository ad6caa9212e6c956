"""JSON Schemas of our files, made from the declarations that check their fields.

``python -m optmatch.io.schemas`` writes them beside this module, in ``schema/``; a test compares.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from optmatch.fabrics import FABRICS, Fabric
from optmatch.io.exports import EXPORTERS
from optmatch.io.files import (
    CERTIFICATES,
    DEVICE_FORMAT,
    PROBLEM_FORMAT,
    SCHEDULE_FORMAT,
    Prices,
)
from optmatch.io.text import layout
from optmatch.model import Device, Schedule, Solution
from optmatch.model.declarations import (
    Array,
    Choice,
    Form,
    Instance,
    Listed,
    Mapped,
    Plain,
    Range,
    Word,
    forms_of,
    meanings_of,
)
from optmatch.problems import PROBLEMS, RoutingProof

Tree = dict[str, Any]

_NULL = {"type": "null"}
_DIGEST = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_NPZ = {
    "description": "An array in the file beside this one.",
    "type": "object",
    "required": ["npz"],
    "properties": {"npz": {"type": "string"}},
    "additionalProperties": False,
}
_ARRAYS = {
    "description": 'The file beside this one that holds the arrays referred to by {"npz": name}.',
    "type": "object",
    "required": ["file", "sha256"],
    "properties": {
        "file": {"type": "string", "pattern": "^[^/\\\\]+\\.npz$"},
        "sha256": _DIGEST,
    },
    "additionalProperties": False,
}
_BESIDE = {"problem_sha256": _DIGEST, "arrays": _ARRAYS}


class _Definitions:
    """The records of one schema, by name; each is described once.

    `trees` has the JSON Schemas under ``$defs``, to which ``{"$ref": "#/$defs/name"}`` refers.
    """

    def __init__(self) -> None:
        self.trees: Tree = {"npz": _NPZ}

    def refer(self, name: str, make: Callable[[], Tree]) -> Tree:
        """Return a reference to a definition, which is made at its first use."""
        if name not in self.trees:
            # An empty definition stands for it meanwhile, as it may refer to itself.
            self.trees[name] = {}
            self.trees[name] = make()
        return {"$ref": f"#/$defs/{name}"}

    def record(self, cls: Any, tags: Mapping[str, Any] = {}, **special: Tree) -> Tree:
        """Describe a data class as a JSON Schema, by its fields and what their docstring says.

        `tags` are entries in front of the fields, such as ``kind``, with their schemas; `special`
        has those of single fields.
        """
        # What the docstring says of each field, in words of JSON.
        meanings = {
            name: meaning.replace("``", "").replace("None", "null")
            for name, meaning in meanings_of(cls).items()
        }
        forms = forms_of(cls)
        properties = {}
        for name, form in forms.items():
            tree = special.get(name) or self.describe(form)
            properties[name] = (
                {"description": meanings[name], **tree} if name in meanings else tree
            )
        required = [f.name for f in fields(cls) if f.default is f.default_factory is MISSING]
        return {
            "description": (inspect.getdoc(cls) or "").partition("\n")[0],
            "type": "object",
            "required": [*(key for key in tags if key != "arrays"), *required],
            "properties": {**tags, **properties},
            "additionalProperties": False,
        }

    def tagged(self, key: str, classes: Mapping[str, Any], **other_tags: Any) -> Tree:
        """Describe an object of one of several classes, which its tag names, as a JSON Schema.

        There is a condition for each class: if the tag is this one, the fields are those of the
        class.
        """
        cases = []
        for name, cls in classes.items():
            tag = {key: {"const": name}}
            schema = self.refer(name, partial(self.record, cls, {**tag, **other_tags}))
            cases.append({"if": {"properties": tag, "required": [key]}, "then": schema})
        return {
            "type": "object",
            "required": [key],
            "properties": {key: {"enum": list(classes)}},
            "allOf": cases,
        }

    def describe(self, form: Form) -> Tree:
        """Describe the values that a field may hold, by the declaration that its class checks.

        The result is a JSON Schema. An array may also be a reference to the file beside this one.
        """
        match form:
            case Plain(kind, span, has_names):
                return _plain(kind, span, has_names)
            case Word(options):
                return {"enum": list(options)}
            case Array(dtype, axes, span, has_names):
                tree = _plain(int if issubclass(dtype, np.integer) else float, span, has_names)
                for axis in range(axes.count):
                    sides = {"minItems": axes.columns, "maxItems": axes.columns}
                    fixed = axis == 0 and axes.columns is not None
                    tree = {"type": "array", "items": tree, **(sides if fixed else {})}
                return {"anyOf": [tree, {"$ref": "#/$defs/npz"}]}
            case Listed(part, length):
                sides = {} if length is None else {"minItems": length, "maxItems": length}
                return {"type": "array", "items": self.describe(part), **sides}
            case Mapped(part):
                return {"type": "object", "additionalProperties": self.describe(part)}
            case Choice(parts, optional):
                choices = [self.describe(part) for part in parts]
                return {"anyOf": [*choices, _NULL] if optional else choices}
            case Instance(cls):
                return self.instance(cls)

    def instance(self, cls: Any) -> Tree:
        """Describe an object of a class as a JSON Schema: a list of members, or a reference.

        An enumeration is the list of its values, a base class of fabrics any of its classes, told
        apart by their key ``type``; anything else is a record with a name of its own.
        """
        if cls is object:
            return {}
        if issubclass(cls, Enum):
            return {"enum": [member.value for member in cls]}
        if issubclass(cls, Fabric):
            classes = {name: entry for name, entry in FABRICS.items() if issubclass(entry, cls)}
            if len(classes) > 1:
                return self.refer("fabric", lambda: self.tagged("type", classes))
            (name,) = classes
            return self.refer(name, lambda: self.record(cls, {"type": {"const": name}}))
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()
        if cls in PROBLEMS.values():
            # A problem inside another one has neither a format nor a kind of its own.
            name = f"{name}-inside"
        return self.refer(name, lambda: self.record(cls))


def make_schema(name: str) -> Tree:
    """Return the JSON Schema of a kind of file, with its definitions in ``$defs``."""
    defs = _Definitions()
    tree = SCHEMAS[name](defs)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:optmatch:schema:{name}:1",
        "title": f"optmatch {name} file, version 1",
        **tree,
        "$defs": defs.trees,
    }


def _problem(defs: _Definitions) -> Tree:
    """Describe a problem file of any kind."""
    format_tag = {"const": PROBLEM_FORMAT}
    tree = defs.tagged("kind", PROBLEMS, format=format_tag, arrays=_ARRAYS)
    return {**tree, "required": ["format", "kind"]}


def _document(record: type[Any], name: str, defs: _Definitions) -> Tree:
    return defs.record(record, {"format": {"const": name}, **_BESIDE})


def _schedule(defs: _Definitions) -> Tree:
    """Describe a file with a solution: its problem, its answer, and its certificate."""
    routing = partial(defs.record, RoutingProof, prices=defs.instance(Prices))
    proofs = [
        defs.refer("proof", lambda: defs.tagged("proof", CERTIFICATES)),
        defs.refer("routing-proof", routing),
    ]
    listed = {"type": "array", "items": {"anyOf": [proofs[1], _NULL]}}
    answers = dict.fromkeys(getattr(cls, "answer_class", None) for cls in PROBLEMS.values())
    answers.pop(None, None)
    return defs.record(
        Solution,
        {"format": {"const": SCHEDULE_FORMAT}, **_BESIDE},
        problem={"$ref": "urn:optmatch:schema:problem:1"},
        schedule={"anyOf": [defs.instance(Schedule), _NULL]},
        answer={"anyOf": [*(defs.instance(cls) for cls in answers), _NULL]},
        certificate={"anyOf": [*proofs, listed, _NULL]},
    )


SCHEMAS: dict[str, Callable[[_Definitions], Tree]] = {
    "problem": _problem,
    "schedule": _schedule,
    "device": lambda defs: defs.record(Device, {"format": {"const": DEVICE_FORMAT}}),
    **{
        name: partial(_document, *exporter.record)
        for name, exporter in EXPORTERS.items()
        if exporter.record is not None
    },
}
"""The makers of the schemas."""


def _plain(kind: type, span: Range, has_names: bool) -> Tree:
    """Describe a number, a text or a boolean as a JSON Schema, with the span that is allowed.

    With `has_names` the name of a port or a cell may stand in place of a number.
    """
    tree: Tree = {"type": {int: "integer", float: "number", str: "string", bool: "boolean"}[kind]}
    if math.isfinite(span.least):
        tree["exclusiveMinimum" if span.above else "minimum"] = span.least
    if math.isfinite(span.most):
        tree["maximum"] = span.most
    if has_names:
        return {"anyOf": [tree, {"type": "string"}]}
    return {"anyOf": [tree, {"enum": ["inf", "-inf"]}]} if span.infinite else tree


def main() -> None:
    """Write the schemas."""
    for name in SCHEMAS:
        path = Path(__file__).parent / "schema" / f"{name}.schema.json"
        path.write_text(layout(make_schema(name)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
