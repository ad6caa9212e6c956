"""Tests of files for optical switches."""
