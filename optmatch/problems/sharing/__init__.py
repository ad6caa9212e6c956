"""Sharing ports and machines among jobs: resources, jobs, and which may serve which."""
