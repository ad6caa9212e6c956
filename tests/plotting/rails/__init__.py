"""Tests of `plotting/rails`."""
