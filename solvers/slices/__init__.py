"""Slices of racks: search, exact loads, the state of a pod, steered bandwidth."""
