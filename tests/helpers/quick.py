"""The tests that a change needs, chosen by the rooms of the changed files.

``make quick`` runs them for all files that differ from the last commit, and
``python -m tests.helpers.quick FILE...`` for some files. Tests that take more than a second are
left out, and so are the checks of other rooms: this is for the time between two edits, `make test`
for the time before a commit.
"""

import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ALWAYS = "tests/test_architecture.py"
"""Rules that a change of any room can break."""
LIMIT_S = 120
"""The time between two edits."""
OF_PAGES = ("tests/test_docs.py", "tests/test_tables.py")
"""What a change of a page can break."""
OF_ENTRANCES = ("tests/smoke", "tests/test_plugins.py", "tests/test_wrong_calls.py")
"""What a change of a module of no layer can break, such as `optmatch/kinds.py`."""


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
    """Return the tests of the room of a file, as paths within the checkout.

    They are those of the innermost folder of `tests` that has the names of the file's folders. A
    module that belongs to no question, such as `optmatch/io/cells.py`, has the tests of its own
    name. Else it has those beside the folders of questions that name it, or all of these.

    Examples
    --------
    >>> tests_of("optmatch/verify/demands/replay.py"), tests_of("solvers/slices/pod.py")
    (['tests/verify/demands'], ['tests/solvers/slices'])
    >>> tests_of("optmatch/model/limits.py"), tests_of("LICENSE")
    (['tests/model'], [])
    >>> tests_of("optmatch/io/netlists/gdsfactory.py"), tests_of("optmatch/sweeps/store.py")
    (['tests/io/netlists'], ['tests/sweeps'])
    """
    path = Path(file)
    if path.parts[0] == "tests" and path.name.startswith("test_"):
        return [file]
    if path.parts[0] == "docs" or path.suffix == ".md":
        return list(OF_PAGES)
    folders_of_layer = {"optmatch": path.parts[1:-1], "solvers": path.parts[:-1]}
    folders = folders_of_layer.get(path.parts[0], ())
    if path.parts[0] == "optmatch" and not folders:
        return list(OF_ENTRANCES)
    for depth in range(len(folders), 0, -1):
        room = Path("tests", *folders[:depth])
        # What several commands share has tests of its own, and all of theirs.
        if not (ROOT / room).is_dir() or room.name == "shared":
            continue
        is_whole = "shared" in folders or not any((ROOT / room).glob("*/test_*.py"))
        if depth > 1 or is_whole:
            return [room.as_posix()]

        # A whole layer would take minutes: of these tests the ones that name the module.
        own_tests = room / f"test_{path.stem}.py"
        if (ROOT / own_tests).exists():
            return [own_tests.as_posix()]
        shared_tests = sorted((ROOT / room).glob("test_*.py"))
        naming_tests = [test for test in shared_tests if path.stem in test.read_text("utf-8")]
        chosen_tests = naming_tests or shared_tests
        return [test.relative_to(ROOT).as_posix() for test in chosen_tests]
    return []


def choose_tests(files: Iterable[str]) -> list[str]:
    """Return the tests of all changed files, each once, after those that every change needs."""
    chosen = {test for file in files for test in tests_of(file)}
    return [ALWAYS, *sorted(chosen - {ALWAYS})]


def run_tests(tests: list[str]) -> int:
    """Run tests until one fails or two minutes are over, and return the exit code."""
    words = ["-m", "pytest", "-q", "-x", "-n", "2", "-m", "not slow", *tests]
    process = subprocess.Popen([sys.executable, *words], cwd=ROOT)
    try:
        return process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        # A failure would have ended the run before.
        process.send_signal(signal.SIGINT)
        process.wait()
        print(
            f"{LIMIT_S} s are over, and no test has failed: `make test` runs those that are left"
        )
        return 0


def main() -> None:
    """List the tests of the files that are named, or else of those that have changed; run them."""
    tests = choose_tests(sys.argv[1:] or changed_files())
    print("tests of the changed rooms:", *tests, sep="\n  ", flush=True)
    raise SystemExit(run_tests(tests))


if __name__ == "__main__":
    main()
