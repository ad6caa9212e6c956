"""Failures in a running state, and the transitions that get around them."""
