"""Exact routers of feed-forward fabrics, and what their free choices buy."""
