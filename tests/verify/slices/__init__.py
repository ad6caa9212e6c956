"""Tests of `verify/slices`."""
