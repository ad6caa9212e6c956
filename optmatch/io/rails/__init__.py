"""Formats of rails: phases, recordings, groups, timelines."""
