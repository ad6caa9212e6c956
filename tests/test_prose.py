"""Numbers in the prose of pages are those of today: each is computed and must stand there.

`tests/test_docs.py` compares what tutorials print. Here are sentences and tables that nobody runs.
"""

import re
from pathlib import Path
from typing import Any

import pytest

import optmatch as om
from optmatch.problems.routing import PRICE_UNITS
from optmatch.solvers.demands import small_meshes
from optmatch.solvers.feedforward import loop_search
from optmatch.solvers.sharing import completion
from optmatch.sweeps import Library
from tests.helpers.command import INSTANCES

ROOT = Path(__file__).resolve().parent.parent
WORDS = {7: "seven", 8: "eight", 9: "nine"}


def says(page: str, sentence: str) -> bool:
    """Tell whether a page has these words, wherever its lines end."""
    text = " ".join((ROOT / page).read_text("utf-8").split())
    return sentence in text


def test_the_example_of_the_readme() -> None:
    mesh = om.HexMesh(4, 4, ports=8)
    solution = om.solve(om.AllToAll(mesh), seed=0)
    assert says("README.md", f"which states of the {mesh.n_cells} cells make each matching?")
    n_slots = WORDS[solution.schedule.n_slots]
    n_others = WORDS[mesh.n_ports - 1]
    assert says(
        "README.md",
        f"has {n_slots} slots, because each port has to be connected to {n_others} others",
    )
    objective = f"an objective of {solution.objective:.0f} cells, which equals the lower bound"
    assert says("README.md", objective)
    assert solution.objective == solution.lower_bound


def test_the_number_of_instances() -> None:
    n_files = len(list(INSTANCES.glob("*/*.json")))
    assert says("README.md", f"{n_files} problems with their best known answers")


def test_limits_that_pages_state() -> None:
    """Constants of methods, each with the sentence that names it."""
    sentences = {
        "docs/concepts.md": f"whole numbers in units of 1/{PRICE_UNITS:,} of a cell",
        "docs/sharing.md": f"of up to {completion.MOST:,} kinds of resources times jobs",
        "docs/feed-forward.md": f"exact up to {loop_search.EXACT} ports",
        "docs/demand.md": f"bidirectional ports and {small_meshes._CELLS} cells",
    }
    missing = {page: text for page, text in sentences.items() if not says(page, text)}
    assert missing == {}


@pytest.mark.parametrize("entry", list(Library()), ids=lambda entry: entry.name)
def test_what_the_table_of_instances_says_of_their_size(entry: Any) -> None:
    """Ports and cells in the question of an instance are those of its fabric."""
    problem: Any = Library().problem(entry.name)
    fabric = getattr(problem, "fabric", None)
    if fabric is None:
        return
    for number, noun in re.findall(r"([\d,]+) (ports|cells)\b", entry.question):
        count = int(number.replace(",", ""))
        if noun == "cells" and fabric.n_cells:
            assert count == fabric.n_cells
        elif noun == "ports" and entry.kind == "all-to-all":
            assert count == fabric.n_ports
