"""What a kind of problem still lacks: `python -m tests.helpers.lacking [KIND ...]`.

The list at the end of `docs/adding-a-kind.md`, looked up place by place. Without a name all kinds
are looked at. Prints a line for each place that lacks something, and ends with 1 if there is one.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from optmatch.commands.shared.examples import EXAMPLES
from optmatch.kinds import Kind, all_kinds
from tests.helpers.answers import PROBLEMS
from tests.helpers.kinds import folder_of

ROOT = Path(__file__).resolve().parents[2]


def _text(path: str) -> str:
    """Return the text of a file of the checkout, empty if there is none."""
    file = ROOT / path
    return file.read_text("utf-8") if file.exists() else ""


def _has_schema(kind: Kind) -> bool:
    return f'"const": "{kind.problem.kind}"' in _text("optmatch/io/schema/problem.schema.json")


def _has_answer(kind: Kind) -> bool:
    return kind.problem.kind in PROBLEMS


def _has_smoke_case(kind: Kind) -> bool:
    return f'    "{kind.problem.kind}' in _text("tests/smoke/test_smoke.py")


def _has_good_file(kind: Kind) -> bool:
    files = [
        file
        for folder in ("good", "answers")
        for file in (ROOT / "tests/data" / folder).glob("*.json")
    ]
    spelling = re.compile(rf'"kind":\s*"{kind.problem.kind}"')
    return any(spelling.search(file.read_text("utf-8")) for file in files)


def _has_rule_rows(kind: Kind) -> bool:
    rows = ROOT / "tests/verify/rules"
    names_kind = any(
        kind.problem.__name__ in file.read_text("utf-8") for file in rows.glob("*.py")
    )
    return names_kind or (rows / f"{folder_of(kind)}.py").exists()


def _has_contract(kind: Kind) -> bool:
    spelling = f'"{kind.problem.kind}"'
    files = (ROOT / "tests/solvers").rglob("test_*contract*.py")
    return any(spelling in file.read_text("utf-8") for file in files)


def _has_tutorial(kind: Kind) -> bool:
    page = f"tutorials/{kind.problem.kind}.md"
    return (ROOT / "docs" / page).exists() and page in _text("docs/tutorials.md")


def _has_tables(kind: Kind) -> bool:
    tables = (
        f"<!-- table: keys of {kind.problem.__name__} -->",
        f"<!-- table: methods of {kind.problem.kind} -->",
        f"<!-- table: options of generate {kind.problem.kind} -->",
    )
    pages = (
        _text("docs/file-formats.md") + _text("docs/methods.md") + _text("docs/command-line.md")
    )
    return all(table in pages for table in tables)


def _has_row_in_readme(kind: Kind) -> bool:
    return f"| `{kind.problem.__name__}` |" in _text("README.md")


def _has_instance(kind: Kind) -> bool:
    entries = json.loads(_text("instances/index.json"))["instances"]
    return any(entry["kind"] == kind.problem.kind for entry in entries)


def _has_example(kind: Kind) -> bool:
    return f"generate {kind.problem.kind}" in EXAMPLES


def _has_page(kind: Kind) -> bool:
    """Tell whether an answer that is no schedule has a page of its own."""
    return kind.problem.answer_class is None or kind.view().page is not None


PLACES: tuple[tuple[str, Callable[[Kind], bool]], ...] = (
    ("JSON Schemas: run `python -m optmatch.io.schemas`", _has_schema),
    ("a small answer in tests/helpers/answers.py", _has_answer),
    ("a case of its command in tests/smoke/test_smoke.py", _has_smoke_case),
    ("a good file in tests/data/good or tests/data/answers", _has_good_file),
    ("rows of rules in tests/verify/rules", _has_rule_rows),
    ("the contract of its methods in tests/solvers/FOLDER/test_contract.py", _has_contract),
    ("a tutorial docs/tutorials/KIND.md, and its line in docs/tutorials.md", _has_tutorial),
    (
        "its tables in docs/file-formats.md, methods.md and command-line.md, which"
        " `python docs/tables.py` fills",
        _has_tables,
    ),
    ("a row in the table of questions of README.md", _has_row_in_readme),
    ("an instance in instances/", _has_instance),
    ("an example in optmatch/commands/shared/examples.py", _has_example),
    ("the page of an answer that is no schedule, in its view", _has_page),
)


def list_lacking(kind: Kind) -> list[str]:
    """List what a kind lacks, in the order of the page."""
    folder = folder_of(kind)
    return [
        place.replace("KIND", kind.problem.kind).replace("FOLDER", folder)
        for place, is_there in PLACES
        if not is_there(kind)
    ]


def main() -> None:
    """Print what the kinds that are named lack."""
    kinds = {kind.problem.kind: kind for kind in all_kinds()}
    names = sys.argv[1:] or sorted(kinds)
    for name in set(names) - set(kinds):
        sys.exit(f"{name}: no kind; those of optmatch/kinds.py are {', '.join(sorted(kinds))}")
    lacking = [(name, place) for name in names for place in list_lacking(kinds[name])]
    for name, place in lacking:
        print(f"{name}: {place}")
    sys.exit(bool(lacking))


if __name__ == "__main__":
    main()
