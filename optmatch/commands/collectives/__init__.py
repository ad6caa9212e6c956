"""Commands for collectives."""
