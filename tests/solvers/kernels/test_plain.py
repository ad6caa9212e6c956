"""Without numba's private parts: the same answers, one warning, no start that is much later."""

from pathlib import Path

import pytest

from tests.helpers.modes import nightly_only
from tests.solvers.kernels.test_kernel import compiling

RUN = """
import time
{change}
from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.kernels.listeners import told_of_compiling
import numpy as np
@inner_kernel
def scaled(a, number):
    return a[0] * number
@kernel
def twice(a):
    return scaled(a, 1) + scaled(a, 1)
told = []
with told_of_compiling(told.append):
    print(twice(np.array([3.5])))
    print("end", time.process_time(), len(told))
"""
"""One kernel with an inner one."""
CHANGES = {
    "a class": "import numba.core.codegen; del numba.core.codegen.JITCodeLibrary",
    "a locator": "import numba.core.caching; del numba.core.caching._CacheLocator",
    "an attribute of an object": """
import optmatch.solvers.kernels.compiler as compiler
def finalize(self):
    self._part_of_another_release
compiler._LinkedCode.finalize = finalize
""",
    "what finds a place": """
import optmatch.solvers.kernels.compiler as compiler
compiler._CacheImpl._locator_classes = ()
""",
}


def test_other_parts_of_numba_fail_a_test_that_starts_a_process(tmp_path: Path) -> None:
    script = tmp_path / "twice.py"
    script.write_text(RUN.format(change=CHANGES["a class"]))
    out = compiling(script, tmp_path)
    assert out.returncode
    assert "RuntimeWarning" in out.stderr
    assert "other private parts" in out.stderr


def run(change: str, kept: Path) -> tuple[str, float, int, str]:
    """Return the answer, the time of the processor, the number of compilations, and warnings."""
    script = kept.parent / f"{kept.name} code" / "twice.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(RUN.format(change=change))
    out = compiling(script, kept, "-W", "default")
    assert out.returncode == 0, out.stderr
    assert [path.name for path in script.parent.iterdir()] == ["twice.py"]  # all is kept elsewhere
    answer, end = out.stdout.splitlines()
    _, time_s, told = end.split()
    return answer, float(time_s), int(told), out.stderr


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, float]:
    """Return the answer and the time of a first start with all parts."""
    answer, time_s, told, warned = run("", tmp_path_factory.mktemp("kept"))
    assert told and not warned
    return answer, time_s


@nightly_only
@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_without_a_part_of_numba_all_answers_are_equal(
    change: str, usual: tuple[str, float], tmp_path: Path
) -> None:
    answer, time_s, told, warned = run(change, tmp_path)
    assert answer == usual[0]
    assert time_s <= 3 * usual[1]
    assert told and warned.count("RuntimeWarning") == 1
    assert "other private parts" in warned
    again = run(change, tmp_path)  # what is kept is found again
    assert again[0] == answer and again[2] <= 1


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
    out = compiling(tmp_path / "wrong.py", tmp_path / "kept", "-W", "error")
    assert out.stdout.split("\n")[:3] == ["TypingError True"] * 2 + ["returns 1.0"], out.stderr
    assert not out.stderr
