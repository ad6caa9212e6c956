"""Pictures of collectives."""
