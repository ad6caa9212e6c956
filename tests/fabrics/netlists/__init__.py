"""Tests of fabrics that are read from netlists."""
