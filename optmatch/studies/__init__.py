"""Studies: many problems of one question, and statistics of their answers."""

import lazy_loader

# The names stand in `__init__.pyi`, where editors and type checkers read them too.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
