"""Rails of training jobs: circuits of each phase, policies, timetables, the exact plan."""
