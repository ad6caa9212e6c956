"""Commands of slices."""
