"""Simple plans that solvers have to equal: `python -m tests.rivals QUESTION`.

A question is a package here, whose module `grid` has two functions: ``draw_cells(rng, count)``
draws problems from the whole product of what such a problem may say, and ``race(cell)`` solves one
of them and lets all rivals try it.
"""
