"""Traces of PyTorch's profiler (kineto): read as steps, demands, lists and times."""
