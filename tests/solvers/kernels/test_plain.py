"""Without numba's private parts: the same answers, one warning, no start that is much later."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import time
{change}
import optmatch as om
from optmatch.model import Limits
from optmatch.solvers.demands import small_problems
from optmatch.solvers.kernels.listeners import told_of_compiling
told = []
with told_of_compiling(told.append):
    print(om.decompose([[3, 1, 2], [2, 4, 0], [1, 1, 4]], "first").permutations.tolist())
    print("end", time.process_time(), len(told))
    for problem in small_problems() if {parts} > 1 else ():
        found = om.solve(problem, seed=0, limits=Limits(iterations=12))
        print(found.objective, found.lower_bound, found.status, found.schedule.matchings.tolist())
    print("end", time.process_time(), len(told))
"""
"""One kernel with its inner ones, and then all of a kind."""
CHANGES = {
    "a class": "import numba.core.codegen; del numba.core.codegen.JITCodeLibrary",
    "a locator": "import numba.core.caching; del numba.core.caching._CacheLocator",
    "an attribute of an object": """
import optmatch.solvers.kernels.compiler as compiler
def finalize(self):
    self._part_of_another_release
compiler._Part.finalize = finalize
""",
    "what finds a place": """
import optmatch.solvers.kernels.compiler as compiler
compiler._CacheImpl._locator_classes = ()
""",
}


def run(change: str, kept: Path, parts: int) -> tuple[list[str], list[float], int, str]:
    """Return answers and time of the processor after each part, compilations, and warnings."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(kept), "NUMBA_DISABLE_JIT": "0"}
    out = subprocess.run(
        [sys.executable, "-W", "default", "-c", RUN.format(change=change, parts=parts)],
        capture_output=True, text=True, env=environment | {"OPTMATCH_JIT": "1"},
    )  # fmt: skip
    assert out.returncode == 0, out.stderr
    ends = re.findall(r"^end (\S+) (\d+)$", out.stdout, re.MULTILINE)
    answers = re.split(r"^end .*\n", out.stdout, flags=re.MULTILINE)[:-1]
    return answers, [float(time_s) for time_s, _ in ends], int(ends[-1][1]), out.stderr


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[float]]:
    """Return the answers and the times of a first start with all parts."""
    answers, time_s, told, warned = run("", tmp_path_factory.mktemp("kept"), 2)
    assert told and not warned
    return answers, time_s


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_without_a_part_of_numba_all_answers_are_equal(
    change: str, usual: tuple[list[str], list[float]], tmp_path: Path
) -> None:
    parts = 2 if change == CHANGES["a class"] else 1
    before = {path for path in Path(__file__).parents[3].joinpath("solvers").rglob("*.nbc")}
    answers, time_s, told, warned = run(change, tmp_path, parts)
    assert answers[:parts] == usual[0][:parts]
    assert time_s[parts - 1] <= 3 * usual[1][parts - 1]
    assert told and warned.count("RuntimeWarning") == 1
    assert "other private parts" in warned
    again = run(change, tmp_path, parts)  # what is kept is found again, beside no source
    assert again[0] == answers and again[2] <= 1
    after = {path for path in Path(__file__).parents[3].joinpath("solvers").rglob("*.nbc")}
    assert after == before


WRONG = """
from optmatch.solvers.kernels.decorators import inner_kernel, kernel
@inner_kernel
def inner(a):
    return a.no_such_attribute
@kernel
def wrong(a):
    return inner(a)
@kernel
def right(a):
    return a[0]
import numpy as np
for call in (wrong, wrong, right):
    try:
        print("returns", call(np.ones(1)))
    except Exception as error:
        print(type(error).__name__, "no_such_attribute" in str(error))
"""


def test_an_error_in_a_kernel_is_raised_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    out = subprocess.run(
        [sys.executable, "-W", "error", "wrong.py"], cwd=tmp_path, capture_output=True, text=True,
        env=environment | {"NUMBA_DISABLE_JIT": "0", "OPTMATCH_JIT": "1"},
    )  # fmt: skip
    assert out.stdout.split("\n")[:3] == ["TypingError True"] * 2 + ["returns 1.0"], out.stderr
    assert not out.stderr
