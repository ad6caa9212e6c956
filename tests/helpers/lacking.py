"""What a kind of problem still lacks: `python -m tests.helpers.lacking [KIND ...]`.

The list at the end of `docs/adding-a-kind.md`, looked up place by place. Without a name all kinds
are looked at. Prints a line for each place that lacks something, and ends with 1 if there is one.
"""

import re
import sys
from pathlib import Path

from optmatch.kinds import Kind, all_kinds
from tests.helpers.kinds import folder_of

ROOT = Path(__file__).resolve().parents[2]


def _is_somewhere(pattern: str, words: str) -> bool:
    """Tell whether a file of the checkout has these words; spaces do not count."""
    wanted = words.replace(" ", "")
    texts = (file.read_text("utf-8") for file in ROOT.glob(pattern))
    return any(wanted in text.replace(" ", "") for text in texts)


PLACES: dict[str, tuple[tuple[str, str], ...]] = {
    "JSON Schemas: run `python -m optmatch.io.schemas`": (
        ("optmatch/io/schema/problem.schema.json", '"const": "KIND"'),
    ),
    "a small answer in tests/helpers/answers.py": (("tests/helpers/answers.py", '"KIND": '),),
    "a case of its command in tests/smoke/test_smoke.py": (
        ("tests/smoke/test_smoke.py", '"KIND": "KIND '),
    ),
    "a good file in tests/data/good or tests/data/answers": (
        ("tests/data/[ga][on]*/*.json", '"kind": "KIND"'),
    ),
    "rows of rules in tests/verify/rules": (("tests/verify/rules/*.py", "om.CLASS"),),
    "the contract of its methods in tests/solvers/FOLDER/test_contract.py": (
        ("tests/solvers/**/test_*contract*.py", '"KIND"'),
    ),
    "a tutorial docs/tutorials/KIND.md, and its line in docs/tutorials.md": (
        ("docs/tutorials/KIND.md", ""),
        ("docs/tutorials.md", "tutorials/KIND.md"),
    ),
    "its tables in docs/file-formats.md, methods.md and command-line.md, which"
    " `python docs/tables.py` fills": (
        ("docs/file-formats.md", "<!-- table: keys of CLASS -->"),
        ("docs/methods.md", "<!-- table: methods of KIND -->"),
        ("docs/command-line.md", "<!-- table: options of generate KIND -->"),
    ),
    "a row in the table of questions of README.md": (("README.md", "| `CLASS` |"),),
    "an instance in instances/": (("instances/index.json", '"kind": "KIND"'),),
    "an example in optmatch/commands/shared/examples.py": (
        ("optmatch/commands/shared/examples.py", '"generate KIND"'),
    ),
}
"""Each place, and the words that files have where nothing is lacking."""

PAGE = "the page of an answer that is no schedule, in its view"


def list_lacking(kind: Kind) -> list[str]:
    """List what a kind lacks, in the order of the page."""
    names = {"KIND": kind.problem.kind, "CLASS": kind.problem.__name__, "FOLDER": folder_of(kind)}

    def named(text: str) -> str:
        return re.sub("|".join(names), lambda word: names[word[0]], text)

    lacking = [
        named(place)
        for place, files in PLACES.items()
        if not all(_is_somewhere(named(pattern), named(words)) for pattern, words in files)
    ]
    has_page = kind.problem.answer_class is None or kind.view().page is not None
    return lacking if has_page else [*lacking, PAGE]


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
