"""Commands of demands."""
