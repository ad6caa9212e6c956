"""Tests of `problems/demands`."""
