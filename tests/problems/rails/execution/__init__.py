"""Tests of what a plan is."""
