"""Which tests need not be traced: ``python -m tests.helpers.untraced .coverage times.xml``.

The two files come from a run of all tests with ``--cov-context=test --junitxml=times.xml``, after
`tests/untraced.txt` was emptied so that all are traced. The list is written there; a test that it
does not name is traced, so it is made anew only when tests have become slow.
"""

from __future__ import annotations

import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Set
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

Arc = tuple[int, int, int]
LIST = Path(__file__).resolve().parents[1] / "untraced.txt"
QUICK_S = 0.3
"""A test that takes less is traced in any case."""


def read_arcs(path: Path) -> dict[str, set[Arc]]:
    """Return the branches that a test reaches and that no import or fixture does."""
    everywhere, reached = set[Arc](), defaultdict[str, set[Arc]](set)
    columns = "context, file_id, fromno, tono"
    query = f"select {columns} from arc join context on context_id = context.id"
    with closing(sqlite3.connect(path)) as file:
        for context, *arc in file.execute(query):
            test, _, phase = context.rpartition("|")
            (reached[test] if phase == "run" else everywhere).add((arc[0], arc[1], arc[2]))
    return {test: arcs - everywhere for test, arcs in reached.items()}


def read_times(path: Path, tests: Set[str]) -> dict[str, float]:
    """Return the seconds of each test; the file joins modules and classes by dots."""
    by_key = {_key(test.replace(".py::", ".", 1)): test for test in tests}
    found = dict.fromkeys(tests, 0.0)
    for case in ElementTree.parse(path).iter("testcase"):
        key = _key(f"{case.get('classname')}.{case.get('name')}")
        if key in by_key:
            found[by_key[key]] = float(case.get("time", "0"))
    return found


def _key(name: str) -> str:
    return name.replace("/", ".").replace("::", ".")


def choose(reached: Mapping[str, Set[Arc]], time_s: Mapping[str, float]) -> set[str]:
    """Return tests that reach all that all reach, and take little time together."""
    left, chosen = set[Arc]().union(*reached.values()), list[str]()
    for price_s in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, float("inf")):
        for test in sorted(reached, key=lambda test: (time_s[test], test)):
            gain = len(reached[test] & left)
            if gain and time_s[test] <= price_s * gain:
                chosen.append(test)
                left -= reached[test]
    count = Counter(arc for test in chosen for arc in reached[test])
    for test in sorted(chosen, key=lambda test: -time_s[test]):
        if all(count[arc] > 1 for arc in reached[test]):
            chosen.remove(test)
            count.subtract(reached[test])
    return set(chosen)


def list_untraced(reached: Mapping[str, Set[Arc]], time_s: Mapping[str, float]) -> list[str]:
    """Name the others that are not quick; a function by itself if none of its cases is chosen."""
    chosen = choose(reached, time_s)
    functions = {test.partition("[")[0] for test in chosen}
    others = {t for t in reached if t not in chosen and time_s[t] >= QUICK_S and "\n" not in t}
    # a case by its name only where other cases of the function are traced
    return sorted({t if t.partition("[")[0] in functions else t.partition("[")[0] for t in others})


if __name__ == "__main__":
    arcs = read_arcs(Path(sys.argv[1]))
    names = list_untraced(arcs, read_times(Path(sys.argv[2]), arcs.keys()))
    LIST.write_text("".join(f"{name}\n" for name in names), "utf-8")
