"""Tests of `solvers/reroutes`."""
