"""Pictures of shared resources."""
