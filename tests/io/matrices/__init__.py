"""Tests of `io/matrices`."""
