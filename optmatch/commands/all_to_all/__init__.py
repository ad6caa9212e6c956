"""Commands of all-to-alls."""
