"""A rail job as a model of CP-SAT: when everything starts, in which order, on which lanes.

At each end of a class a lane serves one communication at a time; between two that face different
ranks there is a reconfiguration. That is all: circuits that are not in use may be turned early,
so nothing says when. In the beginning of a step an end faces what it faces at its end, since steps
repeat; which one that is, the model chooses.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

from ortools.sat.python import cp_model

from optmatch.problems.rail_plan import RailPlan
from optmatch.solvers.cpsat import Outcome
from optmatch.solvers.rails.order import plan_in_order
from optmatch.solvers.rails.talks import Talks
from optmatch.solvers.rails.timetable import longest_paths

_TICKS = 1 << 43
"""Ticks of the time that a known plan takes: rounding stays below all tolerances."""


class Meeting(NamedTuple):
    """Two communications at the same ends."""

    one: int
    two: int
    gaps: tuple[bool, ...]
    """Whether a lane has to be turned between them."""
    ordered: bool
    """Whether the second waits for the first anyway."""


def list_meetings(talks: Talks) -> list[Meeting]:
    """List the pairs that share an end; one that waits for another comes second."""
    reach = _reach(talks)
    found: dict[tuple[int, int], list[bool]] = {}
    for nodes in _by_end(talks).values():
        for (one, first), (two, second) in combinations(nodes, 2):
            key, labels = (one, two), zip(first, second, strict=True)
            if reach[two] >> one & 1 == 0 and (reach[one] >> two & 1 or two < one):
                key = (two, one)
            gaps = found.setdefault(key, [False] * talks.n_lanes)
            for lane, (a, b) in enumerate(labels):
                gaps[lane] = gaps[lane] or a != b
    return [
        Meeting(one, two, tuple(gaps), bool(reach[two] >> one & 1))
        for (one, two), gaps in sorted(found.items())
    ]


def _by_end(talks: Talks) -> dict[int, list[tuple[int, tuple[int, ...]]]]:
    """List for each end who uses it, and whom they face."""
    found: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    for node, talk in sorted(talks.talks.items()):
        for use in talk.uses:
            found.setdefault(use.end, []).append((node, use.label))
    return found


def _reach(talks: Talks) -> list[int]:
    """Return for each node a bit for each node that it waits for, directly or not."""
    pairs = talks.pairs()
    timed = longest_paths([0.0] * len(talks.duration_s), pairs)
    place = timed.order if timed else []
    reach = [0] * len(talks.duration_s)
    before: list[list[int]] = [[] for _ in reach]
    for one, two in pairs:
        before[two].append(one)
    for node in sorted(range(len(place)), key=place.__getitem__):
        for one in before[node]:
            reach[node] |= reach[one] | 1 << one
    return reach


class RailModel:
    """The model, its variables, and how a solution is read.

    Parameters
    ----------
    talks
        The folded job.
    known
        A plan to start from.
    """

    def __init__(self, talks: Talks, known: RailPlan) -> None:
        self.talks, self.model = talks, cp_model.CpModel()
        self.tick_s = max(known.step_s, 1e-12) / _TICKS
        self.delay = int(talks.job.delay_s / self.tick_s)
        model, horizon = self.model, _TICKS + 1
        n = len(talks.duration_s)
        self.start = [model.new_int_var(0, horizon, "") for _ in range(n)]
        self.lane = {node: self._lanes() for node in talks.talks}
        self.lasts: list[Any] = [self._duration(node) for node in range(n)]
        self.total = model.new_int_var(0, horizon, "")
        for one, two in talks.pairs():
            model.add(self.start[two] >= self.start[one] + self.lasts[one])
        for node in range(n):
            model.add(self.total >= self.start[node] + self.lasts[node])
        self.orders: dict[tuple[int, int], Any] = {}
        self._meet()
        self.standing = dict(self._stand())
        model.minimize(self.total)
        self._hint(known)

    def _lanes(self) -> list[Any]:
        if self.talks.n_lanes == 1:
            return [1]
        lanes = [self.model.new_bool_var("") for _ in range(self.talks.n_lanes)]
        self.model.add_bool_or(lanes)
        return lanes

    def _duration(self, node: int) -> Any:
        """Return how long a node lasts, in ticks, rounded down: bounds stay bounds."""
        talks = self.talks
        if node not in talks.talks:
            return int(talks.duration_s[node] / self.tick_s)
        by_lanes = [
            int(talks.seconds(node, lanes) / self.tick_s) for lanes in range(1, talks.n_lanes + 1)
        ]
        if talks.n_lanes == 1:
            return by_lanes[0]
        chosen = [self.model.new_bool_var("") for _ in by_lanes]
        self.model.add_exactly_one(chosen)
        number = sum(k * literal for k, literal in enumerate(chosen, 1))
        self.model.add(sum(self.lane[node]) == number)
        return sum(lasts * literal for lasts, literal in zip(by_lanes, chosen, strict=True))

    def _meet(self) -> None:
        """Keep apart what shares a lane at an end, and leave time to turn it."""
        for one, two, gaps, ordered in list_meetings(self.talks):
            order = 1 if ordered else self.model.new_bool_var("")
            if not ordered:
                self.orders[one, two] = order
            for lane in range(self.talks.n_lanes):
                gap = self.delay if gaps[lane] else 0
                if ordered and not gap:
                    continue
                shared = [self.lane[one][lane], self.lane[two][lane]]
                self._after(one, two, gap, [*shared, order])
                if not ordered:
                    self._after(two, one, gap, [*shared, ~order])

    def _after(self, one: int, two: int, gap: int, conditions: list[Any]) -> None:
        rule = self.model.add(self.start[two] >= self.start[one] + self.lasts[one] + gap)
        rule.only_enforce_if([c for c in conditions if not isinstance(c, int)])

    def _stand(self) -> Iterator[tuple[tuple[int, int], dict[int, Any]]]:
        """Choose whom each end faces when a step begins and ends; others need turns."""
        for end, nodes in _by_end(self.talks).items():
            for lane in range(self.talks.n_lanes):
                labels = sorted({label[lane] for _, label in nodes})
                faces = {label: self.model.new_bool_var("") for label in labels}
                self.model.add_exactly_one(faces.values())
                for node, label in nodes:
                    used = self.lane[node][lane]
                    away = [~faces[label[lane]], *([] if isinstance(used, int) else [used])]
                    ended = self.start[node] + self.lasts[node]
                    self.model.add(self.start[node] >= self.delay).only_enforce_if(away)
                    self.model.add(self.total >= ended + self.delay).only_enforce_if(away)
                yield (end, lane), faces

    def _hint(self, known: RailPlan) -> None:
        """Start from a known plan."""
        parts, hint = self.talks.folded.part, self.model.add_hint
        times = [int(float(t) / self.tick_s) for t in known.start_s[parts]]
        for variable, at in zip(self.start, times, strict=True):
            hint(variable, min(at, _TICKS))
        for (one, two), order in self.orders.items():
            hint(order, times[one] <= times[two])
        hint(self.total, _TICKS)

    def lower_bound_s(self, outcome: Outcome) -> float:
        """Return what CP-SAT has proved, in seconds."""
        return outcome.lower_bound * self.tick_s

    def read(self, outcome: Outcome) -> RailPlan | None:
        """Return the plan of a solution, with exact times."""
        lanes = {
            node: sum(
                1 << k
                for k, literal in enumerate(literals)
                if isinstance(literal, int) or outcome.holds(literal)
            )
            for node, literals in self.lane.items()
        }
        start = [outcome.value(variable) for variable in self.start]
        faces = {
            at: next(label for label, literal in choice.items() if outcome.holds(literal))
            for at, choice in self.standing.items()
        }
        return plan_in_order(self.talks, start, lanes, faces)
