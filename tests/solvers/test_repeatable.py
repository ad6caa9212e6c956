"""Same problem, seed and iterations, same answer: in any thread, process and hash seed."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.helpers.command import DATA
from tests.helpers.repeats import digests

ROOT = DATA.parent.parent


def started(**changes: str) -> subprocess.Popen[str]:
    """Start a process that solves them."""
    command = [sys.executable, "-m", "tests.helpers.repeats"]
    return subprocess.Popen(
        command, env=os.environ | changes, cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


@pytest.fixture(scope="module")
def here() -> str:
    """Solve them in this process."""
    return digests()


def test_four_threads_at_once(here: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: digests(), range(4))) == [here] * 4


@pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning")  # of JAX, if another test loaded it
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # of Python 3.12 with threads
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")
def test_a_fork_after_use(here: str) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, digests().encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read() == here
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.slow
def test_another_process(here: str) -> None:
    """With other hashes, four threads of linear algebra and one of kernels."""
    changes = {"PYTHONHASHSEED": "2", "OMP_NUM_THREADS": "4", "NUMBA_NUM_THREADS": "1"}
    output, _ = started(**changes).communicate(timeout=120)
    assert output.strip() == here


@pytest.mark.slow
@pytest.mark.skipif("OPTMATCH_EXAMPLES" not in os.environ, reason="for make soak: compiles anew")
def test_four_processes_on_a_cold_cache(here: str, tmp_path: Path) -> None:
    cold = {"NUMBA_CACHE_DIR": str(tmp_path)}
    at_once = [started(**cold) for _ in range(4)]
    assert [one.communicate(timeout=900)[0].strip() for one in at_once] == [here] * 4
    assert started(**cold).communicate(timeout=120)[0].strip() == here
