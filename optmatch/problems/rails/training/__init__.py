"""A job: its split over ranks, and what each rank computes and sends, and for how long."""
