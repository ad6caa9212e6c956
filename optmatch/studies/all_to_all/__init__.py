"""Studies of all-to-alls: the yield of a fabric."""
