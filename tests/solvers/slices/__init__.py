"""Tests of `solvers/slices`."""
