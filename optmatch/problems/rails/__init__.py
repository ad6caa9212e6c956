"""Training jobs on rails: what ranks compute and send, and the plans that answer them."""
