"""What a plan is: circuits and times, and what a controller has to know to execute it."""
