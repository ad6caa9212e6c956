"""Values of options between commas, and pairs of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


class Listed(click.ParamType):  # type: ignore[type-arg] # no generic class before click 8.3.2
    """Values between commas, each read by a function that may raise `ValueError`."""

    name = "list"

    def __init__(self, read: Callable[[str], Any], what: str, *, single: bool = False) -> None:
        self.read, self.what, self.single = read, what, single

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the text, or a default; if `single`, one value alone stays alone."""
        try:
            found = [self.read(part.strip()) for part in str(value).split(",") if part.strip()]
        except ValueError:  # InputError is one
            self.fail(f"{value!r}: {self.what}, separated by commas", param, ctx)
        return found[0] if self.single and "," not in str(value) and found else found


def pair(
    sign: str, first: Callable[[str], Any], second: Callable[[str], Any]
) -> Callable[[str], tuple[Any, Any]]:
    """Return what reads a pair, such as ``63=0.01``."""

    def read(text: str) -> tuple[Any, Any]:
        key, found, value = text.partition(sign)
        if not found:
            raise ValueError(text)
        return first(key.strip()), second(value.strip())

    return read
