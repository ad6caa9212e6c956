"""Tests of `plotting/demands`."""
