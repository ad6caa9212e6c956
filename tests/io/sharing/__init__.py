"""Tests of tables of resources and jobs."""
