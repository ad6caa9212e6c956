"""Tests of `problems/rails`."""
