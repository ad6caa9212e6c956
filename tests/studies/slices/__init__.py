"""Tests of `studies/slices`."""
