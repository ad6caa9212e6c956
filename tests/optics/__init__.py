"""Tests of `optics`."""
