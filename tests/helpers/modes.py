"""How much a test draws, by the mode of the run."""

import os

import pytest

PLAIN = os.environ.get("NUMBA_DISABLE_JIT") == "1"
"""Whether kernels are plain Python: a hundred times slower, and run for their coverage."""


def examples(compiled: int, *, plain: int) -> int:
    """Return how many examples to draw; ``OPTMATCH_EXAMPLES`` multiplies them (`make soak`)."""
    return (plain if PLAIN else compiled) * int(os.environ.get("OPTMATCH_EXAMPLES", "1"))


compiled_only = pytest.mark.skipif(PLAIN, reason="slow as plain Python; others reach its lines")
"""Marks a test of kernels that plain Python needs seconds for, and that adds nothing there."""
