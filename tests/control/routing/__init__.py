"""Tests of `control/routing`."""
