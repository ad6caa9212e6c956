"""Tests of `verify/optics`."""
