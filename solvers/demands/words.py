"""Sets as bits of 64-bit words, in kernels."""

from __future__ import annotations

import numpy as np

from optmatch.solvers.kernels.decorators import inner_kernel

_BIAS = 1023  # of the exponent of a float64


@inner_kernel
def number_of_bit(bit):
    """Return k for the single bit 2**k of a word of 64 bits, k < 64: the exponent of its float.

    The last bit is the sign: the word is then -2**63, whose exponent is 63 as well.
    """
    return ((np.float64(bit).view(np.int64) >> 52) & 2047) - _BIAS
