"""The tests that a change needs, chosen by the rooms of the changed files.

``make quick`` runs them. Tests that take more than a second are left out, and so are the checks of
other rooms: this is for the time between two edits, `make test` for the time before a commit.
"""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ALWAYS = "tests/test_architecture.py"
"""Rules that a change of any room can break."""


def changed_files() -> list[str]:
    """List what differs from the last commit, and what no commit has yet."""
    commands = (
        ["git", "diff", "--name-only", "HEAD"],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    files = []
    for command in commands:
        listed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        files += listed.stdout.splitlines()
    return files


def tests_of(file: str) -> list[str]:
    """Return the tests of the room of a file: those of its question, else those of its layer.

    Examples
    --------
    >>> tests_of("optmatch/verify/demands/replay.py"), tests_of("solvers/slices/pod.py")
    (['tests/verify/demands'], ['tests/solvers/slices'])
    >>> tests_of("optmatch/model/limits.py"), tests_of("LICENSE")
    (['tests/model'], [])
    """
    path = Path(file)
    if path.parts[0] == "tests" and path.name.startswith("test_"):
        return [file]
    if path.parts[0] == "docs" or path.suffix == ".md":
        return ["tests/test_docs.py"]
    layers = {"optmatch": path.parts[1:], "solvers": path.parts}
    parts = layers.get(path.parts[0], ())
    for depth in (2, 1):
        room = Path("tests", *parts[:depth])
        if len(parts) > depth and (ROOT / room).is_dir():
            return [room.as_posix()]
    return []


def choose_tests(files: Iterable[str]) -> list[str]:
    """Return the tests of all changed files, each once."""
    chosen = {test for file in files for test in tests_of(file)}
    return sorted(chosen | {ALWAYS})


def main() -> None:
    """List the tests, then run them."""
    tests = choose_tests(changed_files())
    print("tests of the changed rooms:", *tests, sep="\n  ", flush=True)
    words = ["-m", "pytest", "-q", "-x", "-n", "2", "-m", "not slow", *tests]
    raise SystemExit(subprocess.run([sys.executable, *words], check=False, cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
