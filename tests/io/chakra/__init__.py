"""Tests of `io/chakra`."""
