"""Tests of `io/netlists`."""
