"""Tests of `control/reroutes`."""
