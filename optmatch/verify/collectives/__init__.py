"""The replay of collectives."""
