"""Simple ways to route meshes: each rival is plain Python over the graph of cells.

Rivals share no code with the solvers. A route is the list of terminals by which light leaves its
cells; no link carries two circuits.
"""
