"""Every method for slices keeps the contract."""

import os

from optmatch.testing import SolverContract, slice_problems
from tests.helpers.contracts import contracts, methods_of
from tests.helpers.exhaustive.slices import best_slice


class SliceContract(SolverContract):
    """Tests that all methods for slices share."""

    examples = 3 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 12
    problems = slice_problems()
    tiny_problems = slice_problems(tiny=True)
    oracle = best_slice


globals().update(contracts(SliceContract, methods_of("slice-allocation")))
