"""Tests of `io/rails`."""
