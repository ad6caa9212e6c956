"""The questions: a folder each, in it a frozen value with its lower bound."""

import lazy_loader

# The names stand in `__init__.pyi`, where editors and type checkers read them too.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
