"""Demands: the bytes from each source to each destination, and when they are served."""
