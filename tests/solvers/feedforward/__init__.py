"""Tests of `solvers/feedforward`."""
