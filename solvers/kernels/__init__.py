"""Kernels that numba compiles: how they are made, kept on disk, and told of."""
