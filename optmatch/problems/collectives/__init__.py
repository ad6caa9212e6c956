"""Collectives: who sends what to whom in rounds, and when circuits change."""
