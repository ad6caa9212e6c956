"""The events of one trace of PyTorch's profiler, whose values are checked where they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optmatch.io.contents import check_content
from optmatch.io.fields import check_object, shorten
from optmatch.io.rails.chakra.messages import LARGEST
from optmatch.io.rails.chakra.traces import MISSING
from optmatch.model import FormatError

KINDS = {
    "allreduce": "ALL_REDUCE",
    "allgather": "ALL_GATHER",
    "alltoall": "ALL_TO_ALL",
    "reducescatter": "REDUCE_SCATTER",
    "broadcast": "BROADCAST",
    "barrier": "BARRIER",
    "reduce": "REDUCE",
    "gather": "GATHER",
    "scatter": "SCATTER",
    "send": "SEND",
    "recv": "RECV",
}
"""Chakra's names, by how those of PyTorch begin without ``_`` and capitals."""
_WIDTHS = {
    1: ("byte", "char", "bool", "unsigned char", "signed char"),
    2: ("half", "bfloat16", "short", "short int"),
    4: ("float", "int"),
    8: ("double", "long", "long int", "complexfloat", "complex<float>"),
    16: ("complexdouble", "complex<double>"),
}
_WIDTH_OF = {name: width for width, names in _WIDTHS.items() for name in names}

Span = tuple[float, float, int]
"""Begin and end in us, and the place of an event."""


class Events:
    """The events of a file; methods take the place of an event in ``traceEvents``.

    `given` are the ranks of groups that the file does not tell, or cuts.
    """

    def __init__(self, tree: Any, given: Mapping[str, Sequence[int]]) -> None:
        check_object(tree, "")
        self.events, self.given = tree.get("traceEvents"), given
        if not isinstance(self.events, list):
            text = f"{shorten(self.events)}: a trace of PyTorch's profiler has a list of events"
            raise FormatError(text, where="/traceEvents")
        for k, event in enumerate(self.events):
            check_object(event, f"/traceEvents/{k}")
        about = tree.get("distributedInfo", {})
        check_object(about, "/distributedInfo")
        self.rank, self.world = (_about(about, name) for name in ("rank", "world_size"))
        listed = about.get("pg_config", [])
        listed = [one for one in listed if isinstance(one, dict)] if type(listed) is list else []
        self.told = {str(one.get("pg_name")): one.get("ranks") for one in listed}

    def span(self, k: int) -> Span:
        """Return begin, end and place."""
        start, lasts = (self._time(k, name) for name in ("ts", "dur"))
        if lasts < 0:
            raise self.flaw(k, "dur", lasts, "a duration is >= 0")
        return start, start + lasts, k

    def _time(self, k: int, name: str) -> float:
        value = self.events[k].get(name)
        if type(value) not in (int, float) or not -LARGEST < value < LARGEST:
            raise self.flaw(k, name, value, "a number below 2**63")
        return float(value)

    def text(self, k: int, name: str) -> str:
        """Return the name or category; nothing if it is no text."""
        value = self.events[k].get(name)
        return value if isinstance(value, str) else ""

    def thread(self, k: int) -> str:
        """Return process and thread."""
        return f"{self.events[k].get('pid')} {self.events[k].get('tid')}"

    def args(self, k: int) -> dict[str, Any]:
        """Return the arguments."""
        args = self.events[k].get("args", {})
        check_object(args, f"/traceEvents/{k}/args")
        return args  # type: ignore[no-any-return]

    def number(self, k: int, name: str) -> int | None:
        """Return the argument that joins a kernel to what launched it; None if there is none."""
        value = self.args(k).get(name)
        return value if isinstance(value, int) else None

    def kind(self, k: int, name: object, where: str) -> str:
        """Return the kind of communication that a name means."""
        short = name.replace("_", "").lower() if isinstance(name, str) else ""
        for begin, kind in KINDS.items():
            if short.startswith(begin):
                return kind
        raise self.flaw(k, where, name, f"begins with one of {', '.join(KINDS)}")

    def size_bytes(self, k: int, where: str, count: object, dtype: object) -> int:
        """Return the bytes of so many elements of a type."""
        short = dtype.lower().removeprefix("c10::") if isinstance(dtype, str) else ""
        width = 1 if short.startswith("float8") else _WIDTH_OF.get(short)
        if width is None:
            raise self.flaw(k, "args/dtype", dtype, f"one of {', '.join(_WIDTH_OF)}")
        if type(count) is not int or not 0 <= count * width < LARGEST:
            raise self.flaw(k, where, count, "a whole number >= 0 of less than 2**63 bytes")
        return count * width

    def tensors_bytes(self, k: int) -> int:
        """Return the bytes of the tensors that an event tells."""
        shapes, types = (self.items(k, name) for name in ("Input Dims", "Input type"))
        total = 0
        for place, (shape, dtype) in enumerate(zip(shapes, types, strict=False)):
            count, where = 1, f"args/Input Dims/{place}"
            for side in shape if isinstance(shape, list) else [shape]:
                if type(side) is not int or not 0 <= count * side < LARGEST:
                    raise self.flaw(k, where, shape, "whole numbers >= 0, of less than 2**63")
                count *= side
            total += self.size_bytes(k, where, count, dtype)
        return total

    def items(self, k: int, name: str) -> list[Any]:
        """Return an argument that is a list."""
        value = self.args(k).get(name, [])
        if not isinstance(value, list):
            raise self.flaw(k, f"args/{name}", value, "a list")
        return value

    def members(self, k: int, group: str) -> tuple[int, ...]:
        """Return the ranks of the group of a call, from wherever all of them are told."""
        args = self.args(k)
        size, start, step = (
            args[name] if type(args.get(name)) is int else MISSING
            for name in ("Group size", "Global rank start", "Global rank stride")
        )
        where, listed = (
            f"/traceEvents/{k}/args/Process Group Ranks",
            args.get("Process Group Ranks"),
        )
        if isinstance(listed, str):
            parts = [part.strip() for part in listed.strip("[]").split(",") if part.strip()]
            listed = [_plain(part) for part in parts]
        ways: list[Any] = [self.given.get(group), listed]
        if step > 0:
            check_content("ranks", size, "")
            ways.append([start + step * place for place in range(size)])
        for ranks in (*ways, self.told.get(group)):
            if isinstance(ranks, list | tuple) and ranks and "..." not in ranks:
                break
        else:
            raise FormatError(f"group {group}: its ranks are not told; tell --groups", where=where)
        for rank in ranks:
            if type(rank) is not int or rank < 0:
                text = f"group {group}: rank {shorten(rank)}: ranks are whole numbers >= 0"
                raise FormatError(text, where=where)
            check_content("ranks", rank + 1, "")
        if len({*ranks}) != len(ranks) or size not in (MISSING, len(ranks)):
            text = f"group {group}: ranks {shorten(ranks)}: {size} different ones are expected"
            raise FormatError(text, where=where)
        return tuple(ranks)

    def member(self, k: int, group: str, place: object, where: str) -> int:
        """Return the rank of a member by its place in the group."""
        place = _plain(place)
        ranks = self.members(k, group)
        if type(place) is not int or not 0 <= place < len(ranks):
            raise self.flaw(k, where, place, f"a place in group {group} of {len(ranks)}")
        return ranks[place]

    def flaw(self, k: int, name: str, value: object, rule: str) -> FormatError:
        """Return an error about a value of an event."""
        return FormatError(f"{shorten(value)}: {rule}", where=f"/traceEvents/{k}/{name}")


def _plain(told: object) -> object:
    """Return the number that a text of a few digits tells, or what else it is."""
    digits = isinstance(told, str) and told.isascii() and told.isdigit() and len(told) < 20
    return int(str(told)) if digits else told


def _about(about: Mapping[str, Any], name: str) -> int:
    """Return a rank or the number of ranks; MISSING if it is not told."""
    value = about.get(name, MISSING)
    if type(value) is not int or value < MISSING:
        text = f"{shorten(value)}: a whole number >= 0 is expected"
        raise FormatError(text, where=f"/distributedInfo/{name}")
    check_content("ranks", value, "")
    return value
