"""Tests of `solvers/sharing`."""
