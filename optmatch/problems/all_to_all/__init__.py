"""Every pair of ports meets once."""
