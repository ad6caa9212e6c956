"""Tests of code that several commands use."""
