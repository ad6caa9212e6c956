"""Commands of failures."""
