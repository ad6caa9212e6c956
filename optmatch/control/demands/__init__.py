"""What schedulers call to serve a demand, once or again and again."""
