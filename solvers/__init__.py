"""The solvers: a folder for each question, whose methods are listed at its door.

This folder is the package `optmatch.solvers`. Imported under another name its classes would exist
twice.
"""

if __name__ != "optmatch.solvers":
    raise ImportError(
        "import this package as `optmatch.solvers`, not as `solvers`:"
        " run `pip install -e .` once, then `import optmatch.solvers`"
    )

import lazy_loader

# The names stand in `__init__.pyi`, where editors and type checkers read them too.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
