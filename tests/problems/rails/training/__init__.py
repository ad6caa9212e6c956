"""Tests of what a job is."""
