"""Frozen objects with one entry changed somewhere inside, past the checks of constructors."""

import random
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

_WHOLE = (-(2**31), -2, -1, 0, 1, 2, 3, 5, 100, 10**6, 2**31 - 1)
_REAL = (-1.0, 0.0, 1e-12, 0.5, 1e9, 1e300, np.nan, np.inf, -np.inf)
_KEPT = ("problem", "status", "limit", "method")


def mutate(value: Any, rng: random.Random) -> Any:
    """Change one entry of an array, a tuple or a field at random; nothing where there is none."""
    if is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in fields(value) if f.init and f.name not in _KEPT]
        name = rng.choice([n for n in names if getattr(value, n) is not None])
        copy = object.__new__(type(value))
        for field in fields(value):
            object.__setattr__(copy, field.name, getattr(value, field.name))
        object.__setattr__(copy, name, mutate(getattr(value, name), rng))
        return copy
    if isinstance(value, np.ndarray):
        return _mutate_array(value, rng)
    if isinstance(value, tuple) and value:
        k = rng.randrange(len(value))
        return rng.choice(
            [
                value[:k] + value[k + 1 :],
                value + value[k : k + 1],
                (*value[:k], mutate(value[k], rng), *value[k + 1 :]),
            ]
        )
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([*_WHOLE, value + 1, value - 1])
    if isinstance(value, float):
        return rng.choice([*_REAL, value / 2, value + 1])
    return "other" if isinstance(value, str) else value


def _mutate_array(array: np.ndarray[Any, Any], rng: random.Random) -> np.ndarray[Any, Any]:
    if not len(array) or rng.random() < 0.15:
        return rng.choice([array[1:], array[:0], np.concatenate([array, array[:1]]), array[None]])
    changed = np.array(array)
    place = tuple(rng.randrange(size) for size in changed.shape)
    if not changed.size:
        return array
    if changed.dtype.kind == "f":
        changed[place] = rng.choice([*_REAL, changed[place] / 2, changed[place] + 1])
    else:
        entry, others = int(changed[place]), [int(v) for v in rng.choices(changed.ravel(), k=3)]
        value = rng.choice([*_WHOLE, entry + 1, entry - 1, *others])
        limits = np.iinfo(np.int8 if changed.dtype.kind == "b" else changed.dtype)
        changed[place] = min(max(value, limits.min), limits.max)
    return changed
