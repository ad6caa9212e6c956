"""Jobs side by side on one switch."""
