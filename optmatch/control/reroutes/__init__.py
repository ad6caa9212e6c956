"""Functions that controllers call when parts fail."""
