"""Files of collectives."""
