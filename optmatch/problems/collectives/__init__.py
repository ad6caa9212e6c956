"""Collectives: which rank sends what to which in rounds, and when circuits change."""
