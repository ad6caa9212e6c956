"""Demand matrices from the files and objects that others use."""
