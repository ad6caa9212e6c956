"""`optmatch info`: what a report of a defect should say about the machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import click

from optmatch.commands.outcome import print_object

_PACKAGES = ("numpy", "scipy", "numba", "ortools", "networkx", "click", "matplotlib")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def info(as_json: bool) -> None:
    """Show versions, platform and the folder of compiled kernels."""
    found = collect()
    if as_json:
        print_object("info", found)
        return
    width = max(len(name) for name in found)
    for name, value in found.items():
        click.echo(
            f"{name.replace('_', ' '):<{width}}  {'not installed' if value is None else value}"
        )


def collect() -> dict[str, Any]:
    """Return names and values; None for a package that is not installed."""
    from optmatch import __version__

    return {
        "optmatch": __version__,
        "python": platform.python_version(),
        **{package: _version(package) for package in _PACKAGES},
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "numba_cache": _cache_folder(),
    }


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cache_folder() -> str:
    """Return where numba keeps compiled kernels: beside their module, unless told otherwise."""
    import optmatch.solvers

    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return chosen or str(Path(optmatch.solvers.__file__).parent / "__pycache__")
