"""Tests of tenancies."""
