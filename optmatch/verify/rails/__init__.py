"""The replay of rail plans."""
