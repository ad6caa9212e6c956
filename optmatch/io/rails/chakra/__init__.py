"""Chakra execution traces: read as steps or demands, and written."""
