"""Simple plans of collectives: each rival returns the seconds of its plan, or infinity.

All of them count a round as ``alpha_s``, a hop if hops cost, and the bytes of its busiest circuit.
They know neither late ranks nor circuits that are there at first: `grid` adds the wait for both.
"""
