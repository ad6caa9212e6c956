"""Pictures of demands."""
