"""Pictures of demands: circuits over time, and matrices of what is to be carried or left."""
