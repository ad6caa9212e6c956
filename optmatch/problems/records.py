"""Figures from papers, data sheets and price lists, in TOML files beside their sources.

Each file of `optmatch/problems/data` has a table for each record. Its schema is the data class of
the record: keys are its fields, and values are checked as those of its constructor.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from optmatch.model import InputError
from optmatch.model.declarations import Choice, Instance, forms_of

T = TypeVar("T")

FOLDER = Path(__file__).parent / "data"


def read_tables(file_name: str) -> dict[str, Any]:
    """Return the tables of a file of `optmatch/problems/data`, such as ``presets.toml``."""
    text = (FOLDER / file_name).read_text("utf-8")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise InputError(str(exc), path=file_name) from exc


def build_records(cls: type[T], tables: Mapping[str, Any]) -> Mapping[str, T]:
    """Build a record of a data class from each table, in their order, by name.

    Examples
    --------
    >>> from optmatch.problems import RailNetwork
    >>> build_records(RailNetwork, {"small": {"gpus_per_server": 2}})["small"].gpus_per_server
    2
    """
    return MappingProxyType(
        {name: build_record(cls, table, name) for name, table in tables.items()}
    )


def build_record(cls: type[T], table: Mapping[str, Any], where: str) -> T:
    """Build a record of a data class from one table of a file.

    A field that is a data class is a table itself: ``{"layers": 61, "model": {...}}``. `where` is
    the place of the table in messages, such as ``presets.deepseek-v3``. A key that is no field, a
    missing field, and a value that the class refuses are an `InputError` with their place.
    """
    # The keys of the table are fields of the class, and fields without a default are there.
    declared: Any = cls
    forms = forms_of(declared)
    if not isinstance(table, Mapping):
        raise InputError(f"{table!r}: a table is expected", where=where)
    for key in table:
        if key not in forms:
            raise InputError(
                f"unknown key {key!r}; {cls.__name__} has {', '.join(forms)}", where=where
            )
    for field in fields(declared):
        if field.name not in table and field.default is field.default_factory is MISSING:
            raise InputError(f"key {field.name!r} is missing", where=where)

    # Fields that are data classes, perhaps or None, are built first.
    values = {}
    for key, value in table.items():
        form = forms[key]
        for part in form.parts if isinstance(form, Choice) else (form,):
            if isinstance(part, Instance) and is_dataclass(part.cls):
                value = build_record(part.cls, value, f"{where}.{key}")
                break
        values[key] = value
    try:
        return cls(**values)
    except InputError as exc:
        place = f"{where}.{exc.where}" if exc.where else where
        raise InputError(exc.message, where=place) from exc
