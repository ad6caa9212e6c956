"""Dask: sweeps on its workers, on this machine or on many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from optmatch.model import SolverUnavailable

LOCAL = "local"
"""Stands for workers on this machine."""


@contextmanager
def dask_client(address: str, n_workers: int | None = None) -> Iterator[Any]:
    """Connect to a scheduler of Dask, which takes tasks by `submit`.

    The address is that of the scheduler, as ``tcp://10.0.0.1:8786``; its file, as
    ``scheduler.json``; or ``"local"`` for workers that are started here, one for each core unless
    `n_workers` says how many. Without Dask `SolverUnavailable` is raised, and `OSError` if nobody
    answers.
    """
    try:
        import distributed
    except ImportError as exc:
        hint = "needs Dask: pip install 'optmatch[dask]'"
        raise SolverUnavailable(f"--dask {address} {hint}") from exc
    client_class: Any = distributed.Client
    if address == LOCAL:
        given: dict[str, Any] = {"n_workers": n_workers, "threads_per_worker": 1}
        given["dashboard_address"] = None
    elif address.endswith(".json"):
        given = {"scheduler_file": address}
    else:
        given = {"address": address}
    with client_class(**given) as client:
        yield client
