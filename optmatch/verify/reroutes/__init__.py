"""The replay of transitions."""
