"""Simple plans of demands: each rival returns the slots of a plan for one plane, all-stop.

A rival takes the demand in whole ticks and the delay in ticks. It shares no code with the solvers.
"""
