"""Kernels: what is cached belongs to the code that is there."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.command import python
from tests.helpers.modes import nightly_only


def compiling(script: Path, kept: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a file in its folder; its kernels are compiled, and kept in another one."""
    environment = {"NUMBA_CACHE_DIR": str(kept), "NUMBA_DISABLE_JIT": "0", "OPTMATCH_JIT": "1"}
    words = ("-B", *options, script.name)
    return python(*words, code=None, cwd=script.parent, **environment)


CALLED = """
from optmatch.solvers.kernels.decorators import kernel
@kernel
def size():
    return {size}
"""
CALLS = """
from called import size
from optmatch.solvers.kernels.decorators import kernel
@kernel
def double():
    return 2 * size()
print(double())
"""


def test_a_change_in_a_file_beside_it_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "calls.py").write_text(CALLS)
    for size in (3, 4):
        (tmp_path / "called.py").write_text(CALLED.format(size=size))
        assert python("-B", "calls.py", cwd=tmp_path).stdout.split() == [str(2 * size)]


INNER = """
from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.kernels.listeners import told_of_compiling
@inner_kernel
def one(a, number):
    return a[0] + number
@kernel
def both(a):
    return one(a, 0) + one(a, 1)
import numpy as np
told = []
with told_of_compiling(told.append):
    print(both(np.ones(1, np.int64)), *told)
try:
    one(np.ones(1, np.int64), 0)
except TypeError as error:
    print(error)
"""


ALLOCATES = """
from optmatch.solvers.kernels.decorators import allocating_kernel
@allocating_kernel
def count(a):
    rows = np.zeros(len(a), dtype=np.int64)
    rows[:] = 1
    return rows.sum()
print(count(np.ones(1000)))
"""


def test_kernels_are_compiled_once_and_kept_in_the_cache_folder(tmp_path: Path) -> None:
    """One that makes arrays crashed in every process but the first: it lacked numba's memory."""
    script, kept = tmp_path / "code" / "inner.py", tmp_path / "kept"
    script.parent.mkdir()
    script.write_text(INNER + ALLOCATES)
    refused = "one: only kernels call it, not Python"
    for told in (" both", ""):
        run = compiling(script, kept)
        assert run.stdout.splitlines() == [f"3{told}", refused, "1000"], run.stderr
    assert len(list(kept.glob("code-*/*.nbc"))) == 2  # one of them with its inner kernel
    assert [path.name for path in script.parent.iterdir()] == ["inner.py"]


SIGNATURES = """
import gc
from optmatch.cli import main
main(["warm-up", "--quiet"], standalone_mode=False)
from optmatch.solvers.kernels.compiler import Kernel
kernels = [found for found in gc.get_objects() if type(found) is Kernel]
print(sum(len(kernel.overloads) == 1 for kernel in kernels))
print(*(kernel.py_func.__qualname__ for kernel in kernels if len(kernel.overloads) > 1))
"""


def test_each_kernel_has_one_signature() -> None:
    run = python("-c", SIGNATURES, NUMBA_DISABLE_JIT="0", OPTMATCH_JIT="1")
    _, once, *more = run.stdout.splitlines()  # the first line names the folder
    assert int(once) > 10, run.stderr
    assert more in ([], [""])


def test_without_a_place_to_keep_kernels_all_works(tmp_path: Path) -> None:
    script, kept = tmp_path / "inner.py", tmp_path / "kept"
    script.write_text(INNER)
    kept.write_text("a file, not a folder")
    run = compiling(script, kept)
    assert run.stdout.startswith("3 both"), run.stderr
    assert run.stderr.count("NUMBA_CACHE_DIR") == 1


FAR = """
import sys
sys.path.insert(0, "near")
sys.path.insert(0, "far")
PLAIN = {plain}
if PLAIN:
    from optmatch.solvers.kernels.decorators import LazyKernel
    LazyKernel.plain = True
from calls import answer
print(answer())
"""
"""Runs a kernel of one folder that calls into another."""
NEAR_MODULE = """
from called import FACTOR, Pair, size
from optmatch.solvers.kernels.decorators import kernel
@kernel
def combine(pair):
    return FACTOR * (100 * size() + pair.first)
def answer():
    return combine(Pair(**{"first": 1, "second": 2}))
"""
FAR_MODULE = """
from typing import NamedTuple
from optmatch.solvers.kernels.decorators import inner_kernel
FACTOR = {factor}
class Pair(NamedTuple):
    {fields}
@inner_kernel
def size():
    return {size}
"""
FIELDS = "first: int; second: int"


@nightly_only
@pytest.mark.slow
@pytest.mark.parametrize("plain", [False, True])
def test_a_change_in_another_folder_is_noticed(plain: bool, tmp_path: Path) -> None:
    """Numba's own cache looks at the file of the kernel alone, and ours did at its folder."""
    for folder in ("near", "far"):
        (tmp_path / folder).mkdir()
    (tmp_path / "near" / "calls.py").write_text(NEAR_MODULE)
    (tmp_path / "run.py").write_text(FAR.format(plain=plain))
    versions = [
        (3, 1, FIELDS, "301"),
        (4, 1, FIELDS, "401"),
        (4, 2, FIELDS, "802"),
        (4, 2, "second: int; first: int", "802"),
    ]
    for size, factor, fields, answer in versions:
        module = FAR_MODULE.format(size=size, factor=factor, fields=fields)
        (tmp_path / "far" / "called.py").write_text(module)
        run = compiling(tmp_path / "run.py", tmp_path / "kept")
        assert run.stdout.split() == [answer], (size, factor, fields, run.stderr)


def truncate(content: bytes) -> bytes:
    """Keep the first half."""
    return content[: len(content) // 2]


def flip(content: bytes) -> bytes:
    """Change one bit in the middle, as a bad disk does."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "an empty index": ("*.nbi", lambda _: b""),
    "an index of other bytes": ("*.nbi", lambda _: b"not a pickle"),
    "half of an index": ("*.nbi", truncate),
    "an empty file": ("*.nbc", lambda _: b""),
    "half of a file": ("*.nbc", truncate),
    "a flipped bit": ("*.nbc", flip),
}


def warnings_of(script: Path, kept: Path) -> list[str]:
    """Run a kernel that returns 3, and return the lines of its warnings."""
    run = compiling(script, kept)
    assert run.stdout.split()[0] == "3", run.stderr
    return run.stderr.splitlines()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Return folders with a script and its kept kernels, by whether inner kernels are plain."""
    folders = {}
    for plain in (False, True):
        folders[plain] = folder = tmp_path_factory.mktemp("compiled")
        (folder / "code").mkdir()
        change = "import optmatch.solvers.kernels.decorators as d; d.LazyKernel.plain = True\n"
        script = folder / "code" / "inner.py"
        script.write_text(change * plain + INNER.split("try:", maxsplit=1)[0])
        assert warnings_of(script, folder / "kept") == []
    return folders


@nightly_only
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "plain"),
    [(name, plain) for name in DAMAGE for plain in (False, True) if not (plain and "bit" in name)],
)
def test_damaged_files_are_made_anew_with_one_line(
    name: str, plain: bool, compiled: dict[bool, Path], tmp_path: Path
) -> None:
    """An index of zero length was kept for ever: a wrong warning at each start, or an EOFError."""
    pattern, damage = DAMAGE[name]
    script, kept = compiled[plain] / "code" / "inner.py", tmp_path / "kept"
    shutil.copytree(compiled[plain] / "kept", kept)
    files = list(kept.glob(f"**/{pattern}"))
    assert files
    for file in files:
        file.write_bytes(damage(file.read_bytes()))

    (line,) = warnings_of(script, kept)
    assert "damaged" in line and "compiled anew" in line
    assert warnings_of(script, kept) == []
