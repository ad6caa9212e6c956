"""Simple ways to give hosts ports: greedily, and by exchanges that lower the worst circuit."""
