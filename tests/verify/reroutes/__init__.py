"""Tests of `verify/reroutes`."""
