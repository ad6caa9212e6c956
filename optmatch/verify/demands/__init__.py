"""The replay of schedules for demands, and their bounds."""
