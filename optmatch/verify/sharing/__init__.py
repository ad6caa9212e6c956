"""Replay of shared resources: which job may use which, how much it gets, and what is proved."""
