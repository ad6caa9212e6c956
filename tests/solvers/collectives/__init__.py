"""Tests of `solvers/collectives`."""
