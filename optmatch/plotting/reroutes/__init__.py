"""Pictures of transitions."""
