"""Who must send how much to whom, and when it is there."""
