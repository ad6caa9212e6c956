"""Tests of `optmatch/switches`."""
