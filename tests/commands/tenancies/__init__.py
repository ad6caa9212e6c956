"""Tests of commands of tenancies."""
