"""Drivers of switches, one module for each interface."""
