"""Everything that the documents say works: commands, examples, links, tables."""

import json
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import optmatch as om
from optmatch.cli import main
from optmatch.commands.shared.outcome import EXIT_CODES
from optmatch.fabrics import SWITCHES
from optmatch.io import loads
from optmatch.solvers.rails import forwarding
from tests.helpers.command import call, python, server
from tests.helpers.pages import END, Done

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page in one language."""
    found = BLOCK.findall(page.read_text("utf-8"))
    return [
        "".join(f"{line}\n" for line in text.splitlines())
        for _, name, text in found
        if name == language
    ]


def commands(page: Path) -> list[str]:
    """Return the calls of optmatch in the console blocks of a page."""
    lines = (line for block in blocks(page, "console") for line in block.splitlines())
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ optmatch")]


def named(pages: list[Path]) -> list[str]:
    """Return names of pages for test ids."""
    return [page.relative_to(ROOT).as_posix() for page in pages]


def quickly(line: str) -> str:
    """Let commands draw a tenth of their samples, and search for a fifth of their time."""
    line = re.sub(r"(--(?:samples|runs) \d+)0\b", r"\1", line)
    return re.sub(r"--time-limit (\d+)", lambda limit: f"--time-limit {int(limit[1]) / 5}", line)


WITH_COMMANDS = [page for page in PAGES if commands(page)]
FRAGMENTS = ("CONTRIBUTING.md", "adding-a-kind.md")  # the latter has a test of its own
WITH_PYTHON = [p for p in PAGES if p.name not in FRAGMENTS and blocks(p, "python")]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=named(WITH_COMMANDS))
def test_the_commands_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after another in an empty folder, none of them fails; pipes are followed.

    Tutorials run as they stand, since their output is compared.
    """
    monkeypatch.chdir(tmp_path)
    is_tutorial = page.parent.name == "tutorials"
    # Plans of rails are searched for elsewhere.
    monkeypatch.setattr(forwarding, "_MOST_TRIALS", 150 if is_tutorial else 15)
    printed = ""
    for line in commands(page):
        output = ""
        for command in (line if is_tutorial else quickly(line)).split(" | "):
            words = shlex.split(command)
            assert words[0] == "optmatch", line
            done = call(*words[1:], input=output)
            output = done.stdout
        printed += output
    assert printed
    if is_tutorial:
        said = {" ".join(line.split()) for line in printed.splitlines()}
        for line in "".join(blocks(page, "text")).splitlines():
            assert " ".join(line.split()) in said, f"{line!r} is not what a run of today prints"


@pytest.fixture(scope="module")
def pages() -> Iterator[Callable[..., Any]]:
    """Start one process for the Python of all pages; threads do not come along in its forks."""
    with server("-W", "error", "-m", "tests.helpers.pages", OPENBLAS_NUM_THREADS="1") as ask:
        yield ask


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="forks")
@pytest.mark.parametrize("page", WITH_PYTHON, ids=named(WITH_PYTHON))
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, pages: Any) -> None:
    """Each block has names of its own and prints something; a process for the page."""
    found = blocks(page, "python")
    done = Done(*pages(found, str(tmp_path)))
    assert done.code == 0, done.stdout + done.stderr
    *printed, _ = done.stdout.split(END)
    assert len(printed) == len(found)
    assert all(printed), printed


LISTS = """
import optmatch as om

ring = om.Collective("all-gather", 3, 3.0, start=[[1, 2, 0]])
dark: str | om.Collective = "dark" if isinstance(ring.start, str) else ring
om.Collective("all-to-all", 2, 0, demand_bytes=[[0, 1], [1, 0]], start="dark")
om.Schedule(matchings=[[1, 0]], durations_s=[1]).matchings.max()
om.CollectivePlan(shares_bytes=[[1.0, 2.0]], start_s=[[0, 0]], end_s=[[1, 1]]).end_s.max()
"""
"""What takes lists as well as arrays, and has arrays."""


@pytest.mark.slow
def test_types_of_the_python_blocks(tmp_path: Path) -> None:
    """`mypy --strict` finds nothing in all of them together, and what is wrong in another."""
    (tmp_path / "lists.py").write_text(LISTS, "utf-8")
    for page in WITH_PYTHON:
        for number, block in enumerate(blocks(page, "python")):
            stem = "_".join(page.relative_to(ROOT).with_suffix("").parts).replace("-", "_")
            name = f"{stem}_{number}.py"
            (tmp_path / name).write_text(block, "utf-8")
    wrong = "import optmatch as om\nom.solve(om.AllToAll(om.HexMesh(3, 3))).schedule.slots\n"
    (tmp_path / "wrong.py").write_text(wrong, "utf-8")
    words = ["--strict", "--config-file", str(ROOT / "pyproject.toml"), str(tmp_path)]
    done = python("-m", "mypy", *words, code=1)
    (told, *rest) = done.stdout.splitlines()
    assert (
        'wrong.py:2: error: Item "Schedule" of "Schedule | Any" has no attribute "slots"' in told
    ), done.stdout
    assert len(rest) == 1, done.stdout


def test_the_readme_has_both() -> None:
    """The two tests above would pass on a page that shows nothing."""
    assert ROOT / "README.md" in WITH_COMMANDS
    assert ROOT / "README.md" in WITH_PYTHON


@pytest.mark.parametrize("page", PAGES, ids=named(PAGES))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if re.match(r"https?:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text("utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}
            assert anchor in anchors, target


def test_every_page_and_public_name_is_in_the_site() -> None:
    site = runpy.run_path(str(ROOT / "docs" / "site.py"))
    listed = {name for names in site["chapters"]().values() for name in names}
    docs = ROOT / "docs"
    found = {page.relative_to(docs).with_suffix("") for page in docs.rglob("*.md")}
    assert {Path(name) for name in listed} == found
    assert site["public_names"]().keys() == set(vars(om)["__all__"]) - {
        "__version__",
        "io",
        "plotting",
        "rails",
        "switches",
    }


def test_exit_codes_are_those_of_the_program() -> None:
    text = (ROOT / "docs" / "command-line.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", text, re.MULTILINE)
    assert {int(code): text for code, text in rows} == EXIT_CODES


def children(command: click.Command) -> dict[str, click.Command]:
    """Return the commands of a group by name; none of what is no group."""
    if not isinstance(command, click.Group):
        return {}
    context = click.Context(command)
    found = {name: command.get_command(context, name) for name in command.list_commands(context)}
    return {name: child for name, child in found.items() if child is not None}


def test_every_option_is_in_the_manual() -> None:
    """`docs/command-line.md` has a heading for each command and a word on each option."""
    text = (ROOT / "docs" / "command-line.md").read_text("utf-8")

    def check(command: click.Command) -> None:
        for parameter in command.params:
            for option in [*parameter.opts, *parameter.secondary_opts]:
                assert not option.startswith("-") or f"`{option}" in text, option
        for child in children(command).values():
            check(child)

    for name, command in children(main).items():
        assert f"optmatch {name}" in text
        check(command)


def test_the_examples_of_files_are_files() -> None:
    """Each JSON block of the page on formats can be loaded."""
    found = blocks(ROOT / "docs" / "file-formats.md", "json")
    assert {json.loads(text)["format"] for text in found} == {
        "optmatch/problem/1",
        "optmatch/schedule/1",
    }
    for text in found:
        loads(text)


def test_every_fabric_is_in_the_manual() -> None:
    for name in ("file-formats.md", "command-line.md"):
        text = (ROOT / "docs" / name).read_text("utf-8")
        assert [fabric for fabric in SWITCHES if f"`{fabric}`" not in text] == []


DOCTESTS = """
import sys, pytest
from optmatch.solvers.rails import forwarding
forwarding._MOST_TRIALS = 1_000  # plans are searched for elsewhere
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_the_examples_of_docstrings_run() -> None:
    python("-c", DOCTESTS, "-q", "--doctest-modules", "--pyargs", "optmatch")
