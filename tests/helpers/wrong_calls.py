"""Wrong calls of the public API: each raises an error of ours, or returns.

``python -m tests.helpers.wrong_calls CALLS [SEED]`` calls public functions, constructors and
methods with values of wrong types and ranges, and prints each kind of raw error once.
"""

import importlib
import inspect
import os
import random
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

import optmatch as om
from optmatch.model import DEVICES
from optmatch.solvers.reroutes.states import hold_matching

PACKAGES = (om, om.switches, importlib.import_module("optmatch.verify"))
"""The packages whose public names are called."""

LEFT_OUT = {"sweep", "solve_many", "compare", "study"}
"""What runs other processes, or for long."""


def values() -> list[Any]:
    """List values, of which a few are right somewhere."""
    mesh = om.HexMesh(2, 2, ports=4)
    routing = om.Routing(mesh, [1, 0, 3, 2])
    return [
        None, 3, -1, 0, 0.5, 1e308, float("nan"), float("inf"), 10**400, True, "x", "", "\ud800",
        b"x", [], {}, set(), (), [[1, 0], [0, 1]], [1, 0], ["a"], object(), len, int, 2 + 3j,
        np.array([1, 0]), np.array(["a"]), np.array(None), np.zeros((2, 2)), np.ma.masked,
        Path("/nonexistent/x"), "nowhere.json", "a\0b", {"a": 1}, {1: 2}, [None], [[]],
        [[1], [1, 2]],
        mesh, om.IdealSwitch(2), routing, om.Demand.from_matrix([[0, 1], [1, 0]], delay_s=1.0),
        om.solve(routing, seed=0), om.Limits(iterations=1),
    ]  # fmt: skip


def objects() -> list[Any]:
    """List objects whose methods are called."""
    mesh = om.HexMesh(2, 2, ports=4)
    routing = om.Routing(mesh, [1, 0, 3, 2])
    demand = om.Demand.from_matrix([[0, 1], [1, 0]], delay_s=1.0)
    return [
        om.Rerouter(hold_matching(mesh, [1, 0, -1, -1])),
        om.RollingSchedule(om.IdealSwitch(2), delay_s=1.0),
        om.Router(mesh),
        mesh,
        routing,
        demand,
        om.solve(routing, seed=0),
        om.solve(demand, seed=0),
        om.RackFabric(),
        DEVICES["smartlight"],
        om.switches.DrySwitch(),
        om.switches.PortTable.numbered(2),
    ]


def targets() -> list[tuple[str, Callable[..., Any]]]:
    """List what is called: public functions and classes, their class methods, and methods."""
    found: list[tuple[str, Any]] = []
    known = set[int]()
    for package in PACKAGES:
        for name in dir(package):
            entry = getattr(package, name, None)
            if name.startswith("_") or name in LEFT_OUT or not callable(entry):
                continue
            if id(entry) in known or not _is_called(entry):
                continue
            known.add(id(entry))
            if getattr(entry, "__module__", "").startswith("optmatch"):
                found.append((name, entry))
            if inspect.isclass(entry):
                found += _methods(entry, lambda method: inspect.ismethod(method))
    for thing in objects():
        found += _methods(thing, callable)
    return [(name, entry) for name, entry in found if _parameters(entry) is not None]


def _is_called(entry: Any) -> bool:
    """Tell whether a public name is something that users call: no error, enum or protocol."""
    if not inspect.isclass(entry):
        return True
    return not issubclass(entry, BaseException | Enum) and not getattr(entry, "_is_protocol", 0)


def _methods(holder: Any, wanted: Callable[[Any], bool]) -> list[tuple[str, Any]]:
    kind = holder if inspect.isclass(holder) else type(holder)
    found = []
    for name in dir(kind):
        if not name.startswith("_"):
            entry = inspect.getattr_static(kind, name)
            if not isinstance(entry, property) and wanted(getattr(holder, name, None)):
                found.append((f"{kind.__name__}.{name}", getattr(holder, name)))
    return found


def _parameters(entry: Any) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(entry).parameters.values())
    except (TypeError, ValueError):
        return None


def draw_call(entry: Any, junk: list[Any], rng: random.Random) -> tuple[list[Any], dict[str, Any]]:
    """Draw arguments that Python binds: all that are needed, and some others."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in _parameters(entry) or ():
        is_needed = parameter.default is parameter.empty
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.kind == parameter.POSITIONAL_ONLY:
            positional.append(rng.choice(junk))
        elif is_needed or rng.random() < 0.2:
            named[parameter.name] = rng.choice(junk)
    return positional, named


def _too_long(*_: object) -> None:
    raise TimeoutError("more than ten seconds")


def main(n_calls: int, start: int) -> int:
    """Call, and print the raw errors."""
    os.chdir(tempfile.mkdtemp())
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    signal.signal(signal.SIGVTALRM, _too_long)
    junk = values()
    entries = targets()
    raw = Counter[str]()
    outcomes = Counter[str]()
    for number in range(n_calls):
        rng = random.Random(f"{start} {number}")
        name, entry = rng.choice(entries)
        positional, named = draw_call(entry, junk, rng)
        signal.setitimer(signal.ITIMER_VIRTUAL, 10)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                entry(*positional, **named)
            outcomes["returned"] += 1
        except (om.OptMatchError, OSError):
            outcomes["refused"] += 1
        except BaseException as exc:
            frames = traceback.extract_tb(exc.__traceback__)
            if "on_event(" in (frames[-1].line or ""):
                outcomes["raised by the callback"] += 1  # `len` or `int`, given as one
                continue
            outcomes["raw"] += 1
            place = f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}"
            ours = [f for f in frames if "optmatch" in f.filename and "tests" not in f.filename]
            if ours:
                place = f"{ours[-1].filename.rpartition('optmatch/')[2]}:{ours[-1].lineno}"
            raw[f"{name}: {place} {type(exc).__name__}: {str(exc)[:90]}"] += 1
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    for text, count in raw.most_common():
        print(count, text.encode("utf-8", "backslashreplace").decode())
    print(f"{n_calls} calls of {len(entries)}: {dict(outcomes)}; seed {start}")
    return 1 if raw else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
