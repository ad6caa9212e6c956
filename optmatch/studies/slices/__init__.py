"""Studies of slices that come and go."""
