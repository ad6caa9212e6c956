"""Replay of shared resources: who may serve whom, who gets how much, and what is proved."""
