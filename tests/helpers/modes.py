"""How much a test draws, by the mode of the run."""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

T = TypeVar("T")
PLAIN = os.environ.get("NUMBA_DISABLE_JIT") == "1"
"""Whether kernels are plain Python: a hundred times slower, and run for their coverage."""


def examples(compiled: int, *, plain: int) -> int:
    """Return how many examples to draw; ``OPTMATCH_EXAMPLES`` multiplies them (`make soak`)."""
    return (plain if PLAIN else compiled) * int(os.environ.get("OPTMATCH_EXAMPLES", "1"))


SOAK = examples(1, plain=1) > 1
"""Whether this is `make soak`, which leaves nothing out."""


def some(cases: Iterable[T], step: int, first: int = 0) -> list[T]:
    """Return every so many of the cases, from one of the first on; all of them in `make soak`."""
    return list(cases) if SOAK else list(cases)[first::step]


nightly_only = pytest.mark.skipif(not SOAK, reason="for make nightly")
"""Marks a test of seconds whose subject seldom changes from one commit to the next."""

compiled_only = pytest.mark.skipif(PLAIN, reason="slow as plain Python; others reach its lines")
"""Marks a test of kernels that plain Python needs seconds for, and that adds nothing there."""


@contextmanager
def limits_in_cpu_time() -> Iterator[None]:
    """Let time limits count the time of this process: on a busy machine it has as much of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "perf_counter", time.process_time)
        yield
