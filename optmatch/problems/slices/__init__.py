"""Slices of racks: their shapes, rings and routes."""
