"""One matching on one fabric, and proofs about its routes."""
