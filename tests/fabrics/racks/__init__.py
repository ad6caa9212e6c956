"""Tests of racks."""
