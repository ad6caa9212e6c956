"""How a matching is routed through cells: negotiated, exact, and proofs that it cannot be."""
