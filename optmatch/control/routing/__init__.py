"""What schedulers call to route matchings, one after another."""
