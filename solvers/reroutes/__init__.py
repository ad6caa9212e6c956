"""Getting over failures: running states, repairs, and the order of their steps."""
