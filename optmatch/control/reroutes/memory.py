"""What a controller remembers, as a file."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

from optmatch.control.reroutes.failed_parts import FailedParts, Record, list_parts
from optmatch.io.contents import read_bytes
from optmatch.io.problems import check_format, problem_from_tree, problem_to_tree
from optmatch.io.text import layout, parse
from optmatch.model import FormatError, InputError, integer
from optmatch.model.files import check_target, replace_file
from optmatch.problems import Reroute

_FORMAT = "optmatch/rerouter/1"


def write_memory(path: str | os.PathLike[str], memories: list[Record]) -> None:
    """Write them, the present last, in place of what is there."""
    tree = {
        "format": _FORMAT,
        "memories": [
            {
                "state": problem_to_tree(memory.state),
                "homes": [list(pair) for pair in memory.homes],
                "refused": [
                    {name: list(numbers) for name, numbers in parts._asdict().items() if numbers}
                    for parts in memory.refused
                ],
            }
            for memory in memories
        ],
    }
    replace_file(check_target(path, force=True), (layout(tree) + "\n").encode())


def add_line(journal: Path, what: str, parts: FailedParts, stand_ins: dict[int, int]) -> None:
    """Add what was done to a journal, as a whole line of JSON, or raise an `OSError`."""
    named = {name: list(numbers) for name, numbers in parts._asdict().items() if numbers}
    line = {"what": what, **named, "stand_ins": list(map(list, stand_ins.items()))}
    text = (json.dumps(line) + "\n").encode()
    with journal.open("ab", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            if file.write(text) < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as exc:
            exc.filename = os.fspath(journal)
            if journal.is_file():
                file.truncate(size)
            raise


def read_memory(path: str | os.PathLike[str]) -> list[Record]:
    """Read the files that `write_memory` has written."""
    name = os.fspath(path)
    tree = parse(read_bytes(path), name)
    try:
        check_format(tree, "", _FORMAT)
        found = [_read(entry, f"/memories/{k}") for k, entry in enumerate(tree["memories"])]
        if not found:
            raise FormatError("no state in it", where="/memories")
    except InputError as exc:
        exc.path = name
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise FormatError(f"is no memory of a controller: {exc!r}", path=name) from exc
    return found


def _read(entry: Any, where: str) -> Record:
    state = problem_from_tree(entry["state"], f"{where}/state")
    if not isinstance(state, Reroute):
        raise FormatError(f"kind {state.kind!r}: a reroute is expected", where=f"{where}/state")
    pairs = [[integer("homes", unit, at_least=0) for unit in pair] for pair in entry["homes"]]
    homes = tuple((stand_in, home) for stand_in, home in pairs)
    refused = tuple(
        FailedParts(**{field: list_parts(field, parts) for field, parts in failure.items()})
        for failure in entry["refused"]
    )
    return Record(state, homes, refused)
