"""Fabrics that are read from netlists."""
