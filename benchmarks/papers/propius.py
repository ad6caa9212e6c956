"""Propius (arXiv 2510.19617) and Venn (arXiv 2312.08298): what policies assign of the optimum.

    python -m benchmarks.papers.propius

The papers state utilisation and completion times of pools of phones that come and go, which are no
question of a switch. Their policies, and the optimum beside them, share the same 200 resources.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import optmatch as om
from benchmarks.papers.figures import Table, show
from optmatch.sweeps import Library

POLICIES = {"irs": "Venn", "srsf": "Propius", "fifo": "Propius", "random": "Propius"}
INSTANCES = ("sharing/devices-200",)


def count_assigned(problem: Any, method: str) -> int:
    """Return how many resources serve a job."""
    answer: Any = om.solve(problem, method, seed=0).answer
    return int((answer.job_of >= 0).sum())


def tables() -> Iterator[Table]:
    """Yield the table of the page."""
    rows = []
    for name in INSTANCES:
        problem = Library().problem(name)
        most = count_assigned(problem, "max-flow")
        for policy, paper in POLICIES.items():
            n_assigned = count_assigned(problem, policy)
            share = f"{100 * n_assigned / most:.1f} %"
            rows.append((f"`{policy}`", paper, str(n_assigned), str(most), share))
    yield Table(("policy", "paper", "assigned", "optimum", "of the optimum"), rows)


if __name__ == "__main__":
    show(tables())
