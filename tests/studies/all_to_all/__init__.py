"""Tests of `studies/all_to_all`."""
