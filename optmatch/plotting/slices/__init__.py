"""Pictures of slices."""
