"""What belongs to sharing on the command line."""
