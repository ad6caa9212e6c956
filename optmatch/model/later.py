"""Names that are imported on first use, so that an import of the package loads little."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def import_later(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package (PEP 562) for names that live in its modules.

    Parameters
    ----------
    package
        The name of the package.
    homes
        For each name the module below the package that it is imported from. None is called like
        the name, since its import would put the module in the place of the name.

    Examples
    --------
    >>> find = import_later("optmatch.model", {"Limits": "limits"})
    >>> find("Limits").__name__
    'Limits'
    >>> find("Limit")
    Traceback (most recent call last):
        ...
    AttributeError: module 'optmatch.model' has no attribute 'Limit'
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)  # the next look finds it there
        return value

    return find


class LaterTable(Mapping[str, T], Generic[T]):
    """A table of objects that are imported when they are looked up.

    Parameters
    ----------
    homes
        For each key where its object is, as ``"module:name"``.

    Examples
    --------
    >>> table = LaterTable({"limits": "optmatch.model.limits:Limits"})
    >>> "limits" in table, table["limits"].__name__
    (True, 'Limits')
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = dict(homes)

    def __getitem__(self, key: str) -> T:
        module, name = self._homes[key].split(":")
        found: T = getattr(import_module(module), name)
        return found

    def __contains__(self, key: object) -> bool:
        return key in self._homes

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)
