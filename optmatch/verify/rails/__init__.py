"""Replay of plans of rail jobs: times, switches, and the circuits that data go over.

Words of this room stand in the docstring of `replay`.
"""
