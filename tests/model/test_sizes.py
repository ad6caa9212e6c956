"""The table of largest sizes."""

import re
from pathlib import Path

from optmatch.model import SIZES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "file-formats.md"


def test_the_page_has_every_row() -> None:
    rows = re.findall(r"\| ([\d,]+) \| `OPTMATCH_MAX_(\w+)` \|", PAGE.read_text())
    assert {name.lower(): int(size.replace(",", "")) for size, name in rows} == SIZES
