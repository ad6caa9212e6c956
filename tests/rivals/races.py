"""What a race between a solver and its rivals found, and the table of the races that were lost."""

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np

from optmatch.fabrics import Fabric

TOLERANCE = 0.01
"""A rival that is better by more than this part wins."""


class Race(NamedTuple):
    """The result of one cell: objectives are in the unit of the question, less is better."""

    cell: str
    """The problem, in words that suffice to draw it again."""
    ours: float
    rival: float
    """The best objective of all rivals; infinite if none of them takes the problem."""
    rival_name: str
    cpu_s: float
    """What our solver took, of its own process."""

    @property
    def loss(self) -> float:
        """By which part of the rival's objective ours is worse; negative where ours is better."""
        if self.ours == self.rival:
            return 0.0
        return self.ours / self.rival - 1.0 if self.rival > 0 else float("inf")


def describe(cell: Any) -> str:
    """Name all that a problem, or a cell that holds one, says beyond its defaults.

    Of an array only the shape is named: who draws the cell again has its numbers.
    """
    return ", ".join(_words_of(cell))


def _words_of(record: Any) -> Iterator[str]:
    defaults = getattr(record, "_field_defaults", {})
    if is_dataclass(record):
        defaults = {field.name: field.default for field in fields(record) if field.init}
    names = getattr(record, "_fields", defaults)
    for name in names:
        value, default = getattr(record, name), defaults.get(name, MISSING)
        if isinstance(value, np.ndarray):
            yield f"{name} {'x'.join(map(str, value.shape))}"
        elif isinstance(value, Fabric):
            yield f"{value.title} of {value.n_ports} ports"
        elif is_dataclass(value):
            yield from _words_of(value)
        elif value != default:
            yield f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"


def tabulate(races: Sequence[Race]) -> str:
    """List the races that a rival won, worst first, after a line that counts them."""
    lost = sorted((race for race in races if race.loss > TOLERANCE), key=lambda race: -race.loss)
    much = sum(race.loss > 5 * TOLERANCE for race in lost)
    lines = [
        f"{len(races)} cells: a rival is over 1 % better in {len(lost)}, over 5 % in {much};"
        f" {sum(race.cpu_s for race in races):.0f} s of CPU,"
        f" {max((race.cpu_s for race in races), default=0.0):.1f} s at most for a cell"
    ]
    lines += [
        f"{race.loss:9.1%}  ours {race.ours:.6g}, {race.rival_name} {race.rival:.6g},"
        f" {race.cpu_s:.1f} s: {race.cell}"
        for race in lost
    ]
    return "\n".join(lines)
