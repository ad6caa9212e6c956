"""Tests of `control/demands`."""
