"""Simple plans of rail jobs: each rival returns the step time of its plan, or infinity.

All of them schedule lists: what is ready first starts first, and holds the ports on its way for as
long as its bytes need there. They share no code with the solvers.
"""
