"""Netlists of other tools, and cell states for the tools that drive a chip."""
