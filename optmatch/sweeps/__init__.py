"""Sweeps: many problems, any executor, a durable store, and the library of problems."""

import lazy_loader

# The names stand in `__init__.pyi`, where editors and type checkers read them too.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
