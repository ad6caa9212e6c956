"""Ports and machines that jobs share."""
