"""Tests of the replay of tenancies."""
