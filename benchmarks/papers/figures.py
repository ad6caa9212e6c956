"""Tables of published figures beside ours, as the page `docs/papers.md` has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

Row = Sequence[str]


class Table(NamedTuple):
    """A table of a page: titles of columns, and rows of texts."""

    titles: Row
    rows: list[Row]

    def lines(self) -> list[str]:
        """Return the lines of the table in Markdown."""
        lines = [f"| {' | '.join(row)} |" for row in (self.titles, *self.rows)]
        return [lines[0], "|" + "---|" * len(self.titles), *lines[1:]]


def show(tables: Iterable[Table]) -> None:
    """Print tables in Markdown, each as soon as it is there."""
    from benchmarks import defects  # noqa: F401 - they end the run

    for table in tables:
        print("\n".join(table.lines()), flush=True)
        print()
