"""Tests of `solvers/demands/exact`."""
