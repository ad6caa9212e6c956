"""The replay of slices, and the bounds of their load."""
