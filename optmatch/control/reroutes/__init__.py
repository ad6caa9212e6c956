"""What controllers call when parts fail."""
