"""Training steps in time."""
