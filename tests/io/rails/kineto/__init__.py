"""Tests of `io/rails/chakra`."""
