"""Placements: which port each host gets."""
