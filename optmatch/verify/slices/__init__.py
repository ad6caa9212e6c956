"""The replay of slices, and what bounds their load."""
