"""Tests of `optmatch/problems/sharing`."""
