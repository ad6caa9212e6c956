"""Fabrics in which light only goes forward: from inputs on the left to outputs on the right."""
