"""Functions that schedulers call to route matchings, one after another."""
