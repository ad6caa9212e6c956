"""What an operator sees of a controller: counts, histograms of times, text for Prometheus."""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

from optmatch.model import InfeasibleError, InputError, LimitReached

BUCKETS_S = tuple(n * 10.0**power for power in range(-5, 1) for n in (1, 2.5, 5))
"""The upper ends of all buckets but the last, which has none."""
_LOG = logging.getLogger("optmatch")
_OUTCOMES = {InfeasibleError: "infeasible", LimitReached: "limit", InputError: "refused"}
_METRICS = {
    "calls": ("counter", "Calls that returned or raised, by outcome."),
    "call_s": ("histogram", "How long calls took."),
    "spares": ("gauge", "Spares that are left in each rack and have not failed."),
    "parts": ("gauge", "Parts that have failed, and whether that was answered or waits."),
    "changes_undoable": ("gauge", "Changes that can be taken back."),
    "journal_lines": ("gauge", "Lines of the journal since its snapshot."),
    "snapshot_age_s": ("gauge", "The time since the snapshot was written."),
    "queued_bytes": ("gauge", "Demand that is not served yet."),
    "waiting": ("gauge", "Demands that are not complete."),
    "completed": ("counter", "Demands that are complete."),
    "weighted_wait_s": ("gauge", "The mean of how long complete demands took, by their weights."),
    "with_deadline": ("counter", "Complete demands that had a deadline."),
    "late": ("counter", "Demands that were complete after their deadline."),
    "mean_wait_s": ("gauge", "How long complete demands took on average."),
    "max_wait_s": ("gauge", "The longest time that a demand took."),
    "completion_s": ("gauge", "When the last demand was complete."),
    "slots": ("counter", "Slots committed."),
}


class Histogram(NamedTuple):
    """How many times lay in each of `BUCKETS_S`, those beyond last, and their sum."""

    counts: tuple[int, ...]
    sum_s: float


class Call(NamedTuple):
    """An event for `on_event`: a call that has returned or raised."""

    call: str
    outcome: str
    """``done``, ``infeasible``, ``limit``, ``refused`` (wrong or out of date), or ``error``."""
    parts: Any
    """The parts that it was about; None for none."""
    took_s: float
    at_s: float
    """Seconds since 1970."""


class _CallTimes:
    """The histogram of one call while it grows."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0


class _TimedCall:
    """A call that is counted when its block ends; a class, since generators take a microsecond."""

    __slots__ = ("_name", "_parts", "_started_s", "_tally")

    def __init__(self, tally: Tally, name: str, parts: Any) -> None:
        self._tally = tally
        self._name = name
        self._parts = parts

    def __enter__(self) -> None:
        self._started_s = time.perf_counter()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        took_s = time.perf_counter() - self._started_s
        outcome = _outcome_of(error) if isinstance(error, Exception) else "done"
        self._tally.count(self._name, outcome, self._parts, took_s)


class Tally:
    """Counts calls by outcome, and the times that they took; for any threads.

    Each call is told to `on_event`; what that raises goes to the log.
    """

    def __init__(self, on_event: Callable[[Call], None] | None = None) -> None:
        """Begin without any call.

        Parameters
        ----------
        on_event
            Called with a `Call` after each call that is counted; None for nobody.
        """
        self._on_event = on_event
        self._lock = threading.Lock()
        self._calls = Counter[tuple[str, str]]()
        self._times = dict[str, _CallTimes]()

    def call(self, name: str, parts: Any = None) -> _TimedCall:
        """Return a context that counts the calls in its block, by outcome."""
        return _TimedCall(self, name, parts)

    def count(self, name: str, outcome: str, parts: Any, took_s: float) -> None:
        """Count a call that has returned or raised, and tell `on_event` of it.

        Parameters
        ----------
        name
            The name of the method that was called.
        outcome
            ``"done"``, ``"infeasible"``, ``"limit"``, ``"refused"`` or ``"error"``.
        parts
            The parts that it was about; None for none.
        took_s
            How long it took, in seconds.
        """
        with self._lock:
            self._calls[name, outcome] += 1
            times = self._times.get(name)
            if times is None:
                times = self._times[name] = _CallTimes()

            # The bucket of the least upper end that is no less; longer times are in the last
            # one.
            times.counts[bisect_left(BUCKETS_S, took_s)] += 1
            times.sum_s += took_s
        if self._on_event is not None:
            self._tell(Call(name, outcome, parts, took_s, time.time()))

    def _tell(self, call: Call) -> None:
        """Tell `on_event` of a call; an error in it does not reach the caller.

        Parameters
        ----------
        call
            The event.
        """
        if self._on_event is None:
            return
        try:
            self._on_event(call)
        except Exception:
            _LOG.exception("on_event failed")

    def figures(self) -> dict[str, Any]:
        """Return the counts and times of all calls so far.

        Returns
        -------
        dict
            ``calls[call, outcome]``, how many calls had this outcome; and ``call_s[call]``, a
            `Histogram` of their times in seconds.
        """
        with self._lock:
            histograms = {
                name: Histogram(tuple(times.counts), times.sum_s)
                for name, times in self._times.items()
            }
            return {"calls": dict(self._calls), "call_s": histograms}


def _outcome_of(error: Exception) -> str:
    """Return the outcome that an error stands for; ``"error"`` for unknown ones."""
    for kind, outcome in _OUTCOMES.items():
        if isinstance(error, kind):
            return outcome
    return "error"


_LABELS = {
    "calls": ("call", "outcome"),
    "call_s": ("call",),
    "spares": ("rack",),
    "parts": ("kind", "state"),
}
"""The labels of figures that are mappings, one for each part of a key."""


def to_prometheus(sources: Mapping[str, Mapping[str, Any]]) -> str:
    """Write figures of controllers in the text format of Prometheus, version 0.0.4.

    Parameters
    ----------
    sources
        What `Rerouter.figures` or `RollingSchedule.figures` return, by names of your choice.

    Returns
    -------
    str
        Each figure ``optmatch_NAME`` with its kind and a sentence; ``source`` is a label. Times
        are in seconds, counters end in ``_total``.

    Examples
    --------
    >>> print(to_prometheus({"a": {"slots": 3}}), end="")
    # HELP optmatch_slots_total Slots committed.
    # TYPE optmatch_slots_total counter
    optmatch_slots_total{source="a"} 3
    """
    if not isinstance(sources, Mapping) or not all(
        isinstance(figures, Mapping) for figures in sources.values()
    ):
        raise InputError("sources: a mapping of names to figures is expected", where="sources")
    lines = list[str]()
    for figure, (kind, sentence) in _METRICS.items():
        name = _metric_name(figure, kind)
        rows = list[str]()
        for source, figures in sources.items():
            for labels, value in _labelled_values(figure, figures.get(figure, {})):
                rows += _metric_rows(name, [("source", source), *labels], value)
        if rows:
            lines += [f"# HELP {name} {sentence}", f"# TYPE {name} {kind}", *rows]
    return "".join(f"{line}\n" for line in lines)


def _metric_name(figure: str, kind: str) -> str:
    """Return the name of a metric of Prometheus: units and counters have endings of their own.

    For example, the counter ``"slots"`` is ``"optmatch_slots_total"``, and ``"max_wait_s"`` is
    ``"optmatch_max_wait_seconds"``.

    Parameters
    ----------
    figure
        The name of a figure here.
    kind
        ``"counter"``, ``"gauge"`` or ``"histogram"``.
    """
    name = f"optmatch_{figure}"
    if figure.endswith("_s"):
        name = name.removesuffix("_s") + "_seconds"
    if kind == "counter":
        name += "_total"
    return name


def _labelled_values(figure: str, values: Any) -> Iterator[tuple[list[tuple[str, Any]], Any]]:
    """List the values of a figure with their labels; a plain number has none.

    Parameters
    ----------
    figure
        The name of the figure, which says how its labels are called (`_LABELS`).
    values
        A number, or a mapping from keys, or tuples of keys, to values.

    Yields
    ------
    labels : list of (name, value)
        A label for each part of the key.
    value
        A number, or a `Histogram`.
    """
    if not isinstance(values, dict):
        yield [], values
        return
    for key, value in values.items():
        parts = key if isinstance(key, tuple) else (key,)
        yield list(zip(_LABELS.get(figure, ()), parts, strict=True)), value


def _metric_rows(name: str, labels: list[tuple[str, Any]], value: Any) -> Iterator[str]:
    """Write a value, or a histogram with a cumulative count for each upper end of a bucket.

    Parameters
    ----------
    name
        The name of the metric.
    labels
        Names of labels with their values.
    value
        A number, or a `Histogram`.

    Yields
    ------
    str
        Lines of the text format, without their ends.
    """
    if not isinstance(value, Histogram):
        yield f"{name}{_braces(labels)} {value}"
        return
    ends = [*(f"{end_s:g}" for end_s in BUCKETS_S), "+Inf"]
    for end, count in zip(ends, accumulate(value.counts), strict=True):
        yield f"{name}_bucket{_braces([*labels, ('le', end)])} {count}"
    yield f"{name}_sum{_braces(labels)} {value.sum_s}"
    yield f"{name}_count{_braces(labels)} {sum(value.counts)}"


def _braces(labels: list[tuple[str, Any]]) -> str:
    """Write labels in braces, as ``{source="a",rack="0"}``.

    Parameters
    ----------
    labels
        Names of labels with their values; quotes, backslashes and line feeds of values are
        escaped.
    """

    def escape(value: Any) -> str:
        """Write a value such that it may stand between quotes."""
        return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

    return "{" + ",".join(f'{key}="{escape(value)}"' for key, value in labels) + "}"
