"""Tests of `verify/routing`."""
