"""Tests of `optmatch/verify/sharing`."""
