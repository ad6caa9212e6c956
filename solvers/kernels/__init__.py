"""Kernels that numba compiles: how they are made, kept on disk, and told of.

`decorators` has what modules with kernels import. `compiler` makes kernels with private parts of
numba, which is three times as quick as `plain`, the documented way. `folders` says where machine
code is kept, and `dependencies` from which sources a kernel was made.
"""
