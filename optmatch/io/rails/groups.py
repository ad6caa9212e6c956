"""Communicator groups: which ranks are members of which, as JSON beside a trace."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from optmatch.io.contents import check_content, read_bytes
from optmatch.io.fields import check_object, shorten
from optmatch.io.recognition import describe_tree
from optmatch.io.text import layout, parse_json, pointer
from optmatch.model import FormatError, naming
from optmatch.model.files import path_name

Groups = dict[str, tuple[int, ...]]


def read_groups(path: str | os.PathLike[str], *, n_ranks: int | None = None) -> Groups:
    """Read a file of communicator groups: ranks by name, in the order of the ring.

    The file is JSON such as ``{"1": [0, 1], "2": [2, 3]}``, by the names that the attribute
    `pg_name` of traces has. `n_ranks` is None if it is not known.
    """
    file = path_name(path)
    with naming(file):
        return _checked(parse_json(read_bytes(path), file), n_ranks)


def groups_text(groups: Mapping[str, Sequence[int]]) -> str:
    """Write groups as JSON."""
    return layout({name: [int(rank) for rank in ranks] for name, ranks in groups.items()}) + "\n"


def _checked(tree: object, n_ranks: int | None) -> Groups:
    """Return the groups of a file, if each is a list of different ranks of the job."""
    check_object(tree, "")
    groups: Groups = {}
    for name, members in tree.items():  # type: ignore[attr-defined]
        where = pointer("", name)
        if not isinstance(members, list) or not members:
            rule = f"{shorten(members)}: a list of ranks is expected{describe_tree(tree)}"
            raise FormatError(rule, where=where)

        # Ranks are whole numbers of the job, each once.
        seen = set[int]()
        for place, rank in enumerate(members):
            if type(rank) is not int or rank < 0 or (n_ranks is not None and rank >= n_ranks):
                allowed = "whole numbers >= 0" if n_ranks is None else f"0 .. {n_ranks - 1}"
                raise FormatError(
                    f"group {name}: rank {shorten(rank)}: ranks are {allowed}",
                    where=pointer(where, place),
                )
            if rank in seen:
                raise FormatError(
                    f"group {name}: rank {rank} is a member twice", where=pointer(where, place)
                )
            check_content("ranks", rank + 1, "")
            seen.add(rank)
        groups[name] = tuple(members)
    return groups
