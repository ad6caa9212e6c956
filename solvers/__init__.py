"""The solvers: a folder for each question, whose methods are listed at its door.

This folder is the package `optmatch.solvers`. Imported under another name its classes would exist
twice.
"""

if __name__ != "optmatch.solvers":
    raise ImportError(
        "import this package as `optmatch.solvers`, not as `solvers`:"
        " run `pip install -e .` once, then `import optmatch.solvers`"
    )

from optmatch.solvers.method import Method

__all__ = ["Method"]
