"""Cell states for the tools that drive a chip: SmartLight lists, and phases of every cell."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator

from optmatch.io.netlists.gdsfactory import stated_cells
from optmatch.io.text import layout
from optmatch.model import BAR, FREE, Solution

CONVENTION = (
    "T = j e^{j phi} [[sin theta, cos theta], [cos theta, -sin theta]], from (a1, a2) to (b1, b2):"
    " theta is half the difference of the phases of both arms, phi half their sum;"
    " theta = 0 is cross, theta = pi/2 is bar"
)
"""What the phases mean; `Device` computes with the same."""

_SMARTLIGHT = {0: "=", 1: "x"}
_NAMES = {0: "bar", 1: "cross"}


def write_smartlight(solution: Solution) -> str:
    """Write the set cells of each slot as the SmartLight API takes them.

    A line for each slot: a JSON list of ``[cell, "x" | "="]``, cross and bar, as for
    ``manual_circuit_configuration``. Free cells are left out. A solution without cell states is
    refused, as by `stated_cells`.
    """
    rows = (
        [[cell, _SMARTLIGHT[state]] for cell, state in enumerate(row) if state != FREE]
        for row in stated_cells(solution).tolist()
    )
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_phases_csv(solution: Solution) -> str:
    """Write slot, cell, state and both phases of every set cell, by lines."""
    text = io.StringIO()
    text.write(f"# {CONVENTION}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["slot", "cell", "state", "theta_rad", "phi_rad"])
    writer.writerows(
        [slot, cell, name, repr(theta), repr(phi)]
        for slot, cell, name, theta, phi in _phases(solution)
    )
    return text.getvalue()


def write_phases_json(solution: Solution) -> str:
    """Write the same as one JSON object with the convention."""
    slots: list[list[dict[str, object]]] = [[] for _ in stated_cells(solution)]
    for slot, cell, name, theta, phi in _phases(solution):
        slots[slot].append({"cell": cell, "state": name, "theta_rad": theta, "phi_rad": phi})
    tree = {"format": "optmatch/phases/1", "convention": CONVENTION, "slots": slots}
    return layout(tree) + "\n"


def _phases(solution: Solution) -> Iterator[tuple[int, int, str, float, float]]:
    """Yield slot, cell, state, theta and phi of every set cell."""
    for slot, row in enumerate(stated_cells(solution).tolist()):
        for cell, state in enumerate(row):
            if state != FREE:
                theta = math.pi / 2 if state == BAR else 0.0
                yield slot, cell, _NAMES[state], theta, 0.0
