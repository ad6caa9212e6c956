"""Tests of `verify/rails`."""
