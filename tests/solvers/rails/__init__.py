"""Tests of `solvers/rails`."""
