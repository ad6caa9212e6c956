"""Optical circuit switches as their makers name them: circuits, port names, and file formats."""
