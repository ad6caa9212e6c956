"""Tests of optmatch, in the same rooms as the package."""
