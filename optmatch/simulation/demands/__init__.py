"""Demands in time."""
