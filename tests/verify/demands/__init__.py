"""Tests of `verify/demands`."""
