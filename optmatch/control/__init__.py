"""What schedulers and controllers call."""
