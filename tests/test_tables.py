"""The tables of the pages are those that the declarations make."""

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"


MAKER: Any = SimpleNamespace(**runpy.run_path(str(DOCS / "tables.py")))


@pytest.mark.parametrize("page", MAKER.PAGES)
def test_the_tables_of_a_page_are_made_anew(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    assert "<!-- table: " in text
    is_new = MAKER.renew(text) == text
    assert is_new, f"docs/{page} is older than a declaration: run `python docs/tables.py`"


def test_a_page_that_is_older_than_a_declaration_is_noticed() -> None:
    page = "<!-- table: keys of AllToAll -->\n| `slot_s` | an old row |\n<!-- end of table -->\n"
    renewed = MAKER.renew(page)
    assert "an old row" not in renewed
    assert "| `slot_s` | How long each matching is held, in seconds. | 1 |" in renewed
    with pytest.raises(ValueError, match="no table is called 'rows of AllToAll'"):
        MAKER.make_table("rows of AllToAll")


def test_options_have_rows() -> None:
    assert "`--leave-out" not in MAKER.make_table("options of info")
    assert "`--device-cells FILE`" in MAKER.make_table("options of verify")


def test_a_statistic_has_the_sentence_of_its_declaration() -> None:
    rows = MAKER.make_table("statistics of Stats")
    assert "| `compile_s` | number, seconds | all | time to compile or load" in rows
    assert (
        "| `worst_route_cells` | whole number | routing, all-to-all | cells on the longest" in rows
    )
