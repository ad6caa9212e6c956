"""A field of a file may hold anything: it is read, or refused by its place."""

import functools
import json
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics import FABRICS
from optmatch.io import dumps, loads
from optmatch.problems import PROBLEMS
from tests.helpers.formats import fabrics

ROOT = Path(__file__).resolve().parents[2]
WRONG: list[Any] = [
    None, True, -1, 1.5, 10**400, 1e308, "", "x", [], [[1], [1, 2]], ["a", None], {}, {"npz": "a"},
]  # fmt: skip


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """List the places of a tree; of a list only the first entry is looked into."""
    if path:
        yield path
    if isinstance(tree, dict):
        for key, part in tree.items():
            yield from places(part, (*path, key))
    elif isinstance(tree, list) and tree:
        yield from places(tree[0], (*path, 0))


def check(tree: Any, place: tuple[Any, ...]) -> None:
    """Put wrong values into a place: the tree is read, or refused with what is wrong and where."""
    *way, key = place
    holder = functools.reduce(operator.getitem, way, tree)
    right = holder[key]
    for holder[key] in WRONG:
        try:
            loads(json.dumps(tree))
        except om.InputError as exc:
            assert exc.message
            assert exc.where
    holder[key] = right


def list_places() -> dict[Path, list[tuple[Any, ...]]]:
    """List the places of small files, each place of a kind in the first file that has it."""
    found: dict[Path, list[tuple[Any, ...]]] = {}
    seen = set[Any]()
    for path in sorted([*ROOT.glob("tests/data/good/*.json"), *ROOT.glob("instances/*/*.json")]):
        if path.stat().st_size < 6_000:
            tree = json.loads(dumps(om.load(path)))
            new = [place for place in places(tree) if (tree.get("kind"), place) not in seen]
            seen |= {(tree.get("kind"), place) for place in new}
            if new:
                found[path] = new
    return found


SMALL = list_places()


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name)
def test_every_field_of_every_file_may_be_wrong(path: Path) -> None:
    tree = json.loads(dumps(om.load(path)))
    for place in SMALL[path]:
        check(tree, place)


@pytest.mark.parametrize("text", list(fabrics()), ids=list(FABRICS))
def test_every_field_of_every_fabric_may_be_wrong(text: bytes) -> None:
    tree = json.loads(text)
    for place in places(tree):
        check(tree, place)


def test_the_files_cover_all_kinds() -> None:
    assert {json.loads(path.read_text()).get("kind") for path in SMALL} >= set(PROBLEMS)


@pytest.mark.parametrize("value", ["a", None, 3, {}, [[1, 2], [3]], [["1"]], [[1, 2]], object()])
def test_what_is_no_fabric_or_array_is_refused_in_python_too(value: Any) -> None:
    with pytest.raises(om.InputError, match="fabric"):
        om.AllToAll(value)
    with pytest.raises(om.InputError):
        om.Routing(om.IdealSwitch(3), value)
    with pytest.raises(om.InputError):
        om.Schedule(matchings=value, durations_s=np.ones(1))
