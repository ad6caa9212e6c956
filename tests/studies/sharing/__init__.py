"""Tests of `studies/sharing`."""
