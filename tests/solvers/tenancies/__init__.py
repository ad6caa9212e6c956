"""Tests of methods for tenancies."""
