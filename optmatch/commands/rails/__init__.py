"""Commands of rail jobs."""
