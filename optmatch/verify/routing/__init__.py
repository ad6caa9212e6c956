"""The replay of matchings and their light, for one matching and for all pairs."""
