"""Tests of `fabrics`."""
