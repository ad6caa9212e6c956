"""Pictures of rails."""
