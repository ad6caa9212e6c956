"""What a job is: its split over ranks, and what they compute and send, and for how long."""
