"""Studies of collectives."""
