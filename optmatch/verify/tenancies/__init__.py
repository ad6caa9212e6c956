"""Replay of jobs side by side on one switch."""
