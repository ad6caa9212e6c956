"""PipSwitch (arXiv 2501.18136): all-to-all over the 32 ports of a hexagonal mesh of 9 x 9.

python -m benchmarks.papers.pipswitch
"""

from __future__ import annotations

from collections.abc import Iterator

import optmatch as om
from benchmarks.papers.figures import Table, show


def tables(side: int = 9, ports: int = 32) -> Iterator[Table]:
    """Yield the table of the page; the paper has 32 ports on 9 x 9 hexagons."""
    problem = om.AllToAll(om.HexMesh(side, side, ports=ports))
    solution = om.solve(problem, seed=0)
    assert solution.schedule is not None
    fewest_slots = solution.stats["slots_lower_bound"]
    rows = [
        ("cells of the mesh", '"hundreds"', str(problem.fabric.n_cells)),
        ("ports", "32", str(ports)),
        ("slots", "-", f"{solution.schedule.n_slots}; no fewer than {fewest_slots}"),
        (
            "cells that all circuits pass",
            "-",
            f"{solution.objective:.0f}; no fewer than {solution.lower_bound:.0f}",
        ),
    ]
    yield Table(("", "published", "ours"), rows)


if __name__ == "__main__":
    show(tables())
