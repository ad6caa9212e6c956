"""What light really does: losses, leaks and light that goes round."""
