"""Tests of `solvers/demands`."""
