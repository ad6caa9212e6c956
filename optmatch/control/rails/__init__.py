"""Executing plans of rails: a controller for each rail, and a simulated job."""
