"""Tests of `plotting`."""
