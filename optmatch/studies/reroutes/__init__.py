"""Studies of failures: spares, and whom a failed chip disturbs."""
