"""Tests of `solvers/routing`."""
