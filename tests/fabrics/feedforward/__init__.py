"""Tests of feed-forward fabrics."""
