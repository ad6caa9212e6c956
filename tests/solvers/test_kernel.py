"""Kernels: what is cached belongs to the code that is there."""

import subprocess
import sys
from pathlib import Path

CALLED = """
from optmatch.solvers.kernel import kernel
@kernel
def size():
    return {size}
"""
CALLS = """
from called import size
from optmatch.solvers.kernel import kernel
@kernel
def double():
    return 2 * size()
print(double())
"""


def test_a_change_in_a_file_beside_it_is_noticed(tmp_path: Path) -> None:
    """By itself, numba looks only at the file of the kernel that is called first."""
    (tmp_path / "calls.py").write_text(CALLS)
    for size in (3, 4):
        (tmp_path / "called.py").write_text(CALLED.format(size=size))
        run = subprocess.run(
            [sys.executable, "-B", "calls.py"], cwd=tmp_path, capture_output=True, text=True
        )
        assert run.stdout.split() == [str(2 * size)], run.stderr
