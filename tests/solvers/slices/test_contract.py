"""Every method for slices keeps the contract."""

from __future__ import annotations

import os

from optmatch.kinds import all_methods
from optmatch.testing import SolverContract, slice_problems


class SliceContract(SolverContract):
    """What methods for slices have in common."""

    examples = 3 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 25
    problems = slice_problems()
    tiny_problems = slice_problems(tiny=True)


class TestOptical(SliceContract):
    """A block, or scattered servers."""

    method = "optical"


class TestFirstFit(SliceContract):
    """The first block."""

    method = "first-fit"


class TestBestFit(SliceContract):
    """The block that fits best."""

    method = "best-fit"


class TestIlpSlices(SliceContract):
    """The least load, with its proof."""

    method = "ilp"


def test_every_method_for_slices_is_under_contract() -> None:
    """A new one brings a class above."""
    covered = {cls.method for cls in SliceContract.__subclasses__()}
    known = {m.name for m in all_methods() if m.solves.kind == "slice-allocation"}
    assert covered == known
