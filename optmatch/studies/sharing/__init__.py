"""Studies of devices shared among jobs."""
