"""Kernels: what is cached belongs to the code that is there."""

import os
import subprocess
import sys
from pathlib import Path

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
        run = subprocess.run(
            [sys.executable, "-B", "calls.py"], cwd=tmp_path, capture_output=True, text=True
        )
        assert run.stdout.split() == [str(2 * size)], run.stderr


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


def test_a_kernel_is_compiled_once_and_kept_in_the_cache_folder(tmp_path: Path) -> None:
    script, kept = tmp_path / "code" / "inner.py", tmp_path / "kept"
    script.parent.mkdir()
    script.write_text(INNER)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(kept), "NUMBA_DISABLE_JIT": "0"}
    refused = "one: only kernels call it, not Python"
    for told in (" both", ""):
        run = subprocess.run(
            [sys.executable, "-B", str(script)], capture_output=True, text=True, env=environment
        )
        assert run.stdout.splitlines() == [f"3{told}", refused], run.stderr
    assert len(list(kept.glob("code-*/*.nbc"))) == 1  # with its inner kernel
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
    environment = os.environ | {"NUMBA_DISABLE_JIT": "0", "OPTMATCH_JIT": "1"}
    run = subprocess.run(
        [sys.executable, "-c", SIGNATURES], capture_output=True, text=True, env=environment
    )
    _, once, *more = run.stdout.splitlines()  # the first line names the folder
    assert int(once) > 10, run.stderr
    assert more in ([], [""])


ALLOCATES = """
import numpy as np
from optmatch.solvers.kernels.decorators import allocating_kernel
@allocating_kernel
def count(a):
    rows = np.zeros(len(a), dtype=np.int64)
    rows[:] = 1
    return rows.sum()
print(count(np.ones(1000)))
"""


def test_a_kernel_that_makes_arrays_works_when_it_is_kept(tmp_path: Path) -> None:
    """Loaded without numba's memory it crashed in every process but the first."""
    (tmp_path / "makes.py").write_text(ALLOCATES)
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(tmp_path / "kept"),
        "NUMBA_DISABLE_JIT": "0",
    }
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-B", "makes.py"],
            cwd=tmp_path, capture_output=True, text=True, env=environment,
        )  # fmt: skip
        assert run.stdout == "1000\n", (run.returncode, run.stderr)


def test_without_a_place_to_keep_kernels_all_works(tmp_path: Path) -> None:
    script, kept = tmp_path / "inner.py", tmp_path / "kept"
    script.write_text(INNER)
    kept.write_text("a file, not a folder")
    environment = os.environ | {"NUMBA_CACHE_DIR": str(kept), "NUMBA_DISABLE_JIT": "0"}
    run = subprocess.run(
        [sys.executable, "-B", str(script)], capture_output=True, text=True, env=environment
    )
    assert run.stdout.startswith("3 both"), run.stderr
    assert run.stderr.count("NUMBA_CACHE_DIR") == 1
