"""Tests of what several commands use."""
