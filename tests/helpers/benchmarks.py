"""Modules of `benchmarks/`, which is no package of the product."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def load_benchmark(name: str) -> Any:
    """Import a module of `benchmarks/`; an installed product stays in front of the checkout."""
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    return import_module(f"benchmarks.{name}")
