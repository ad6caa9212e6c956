"""Replays in time: demands over schedules, and steps of training jobs over rails."""
