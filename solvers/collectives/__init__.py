"""Collectives: rounds of sends and the circuits for them."""
