"""Devices that come and go, and jobs that ask them for results round by round."""
