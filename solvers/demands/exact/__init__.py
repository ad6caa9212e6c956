"""The least completion time of a demand: an exact search, and a CP-SAT model where it is slow."""
