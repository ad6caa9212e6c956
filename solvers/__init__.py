"""The solvers, one module each, and the registry that finds them by name.

This folder is the package `optmatch.solvers`. Imported under another name its classes would exist
twice.
"""

if __name__ != "optmatch.solvers":
    raise ImportError(
        "import this package as `optmatch.solvers`, not as `solvers`:"
        " run `pip install -e .` once, then `import optmatch.solvers`"
    )

from optmatch.solvers.registry import Method, default_method, find_method, methods

__all__ = ["Method", "default_method", "find_method", "methods"]
