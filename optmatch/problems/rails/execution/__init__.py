"""A plan: circuits and times, and what a controller has to know to execute it."""
