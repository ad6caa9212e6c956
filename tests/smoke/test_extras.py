"""Without an optional package, the command that needs it says which extra to install."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

RUN = """
import sys
sys.modules[sys.argv[1]] = None  # as if it were not installed
from optmatch.cli import main
*first, last = sys.argv[2:]
for line in first:
    assert not main(line.split(), prog_name="optmatch", standalone_mode=False), line
main(last.split(), prog_name="optmatch")
"""
SPEC = """
problems = ["demand.json"]

[methods]
demand = ["greedy-cover"]
"""
NEEDING = {  # package: what is run without it, and the extra that it names
    "matplotlib": ("plot answer.json -o answer.png", "plot"),
    "dask": ("sweep spec.toml --dask local", "dask"),
    "pyarrow": ("report spec.sqlite -o rows.parquet", "parquet"),
    "yaml": ("info netlist.yml", "netlist"),
}


def command(folder: Path, package: str, *lines: str) -> subprocess.CompletedProcess[str]:
    """Run command lines, one after the other, in a process that lacks a package."""
    return subprocess.run(
        [sys.executable, "-c", RUN, package, *lines],
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make, without any optional package, all files that the commands below read."""
    place = tmp_path_factory.mktemp("files")
    (place / "spec.toml").write_text(SPEC)
    (place / "netlist.yml").write_text("instances: {}\n")
    done = command(
        place,
        "matplotlib",
        "generate demand --model uniform --size 3 --fabric ideal-switch --delay 9 -o demand.json",
        "solve demand.json --method greedy-cover -q -o answer.json",
        "sweep spec.toml -q",
        "report spec.sqlite -o rows.csv",
        "plot answer.json -o answer.html",
    )
    assert done.returncode == 0, done.stderr
    return place


@pytest.mark.parametrize("package", NEEDING)
def test_a_command_names_the_extra_that_it_needs(package: str, folder: Path) -> None:
    before = sorted(folder.iterdir())
    args, extra = NEEDING[package]
    done = command(folder, package, args)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"pip install 'optmatch[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(folder.iterdir()) == before


def test_a_table_names_the_extra_that_it_needs(folder: Path) -> None:
    """`to_dataframe` is the one call of Python that needs a package of an extra."""
    code = (
        "import sys; sys.modules['pandas'] = None; import optmatch as om;"
        "om.load('answer.json').to_dataframe()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder
    )
    assert "pip install 'optmatch[pandas]'" in done.stderr


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="nothing optional is installed")
def test_with_the_package_the_command_works(folder: Path) -> None:
    done = command(folder, "nothing", "plot answer.json -o answer.svg")
    assert done.returncode == 0, done.stderr
