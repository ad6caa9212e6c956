"""Many problems, any executor, a durable store, and the library of problems."""
