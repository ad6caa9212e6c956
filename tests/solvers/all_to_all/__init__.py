"""Tests of `solvers/all_to_all`."""
