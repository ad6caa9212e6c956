"""Tests of training jobs that share rails."""
