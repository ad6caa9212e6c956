"""The controller of one rail: it hears which operations end, and sets the states that wait.

The controller knows no times but those of the messages that it gets, and a message may come late,
twice or never. A circuit is changed when all communications over it have ended, however late. A
rank that waits for a state asks for it; then ranks of whom something is missing are polled. If one
of them stays silent, the rail goes to its fall-back state: all ranks are told to hold, and when
each of them does, a ring is set up. Over it one communication after the other is forwarded, until
all ranks are past that step. The next step goes by the plan again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any, NamedTuple

from optmatch.problems import RailJob
from optmatch.problems.rails.execution.orders import list_followers
from optmatch.problems.rails.execution.triggers import RailTriggers, TriggerPlan

Switch = Callable[[float, Sequence[Sequence[int]]], None]
"""A change of a switch: its time, and the receive port of each transmit port."""
Key = tuple[Any, ...]
"""A communication that is over, ready or begun, without its step."""


class Message(NamedTuple):
    """What a rank tells the controller of its rail, or the other way round.

    To the controller: ``"over"`` or ``"ready"`` is a communication (group, n, part), ``"ask"``
    for a state, ``"here"`` answers a poll, ``"held"`` tells the step in which a rank holds,
    ``"want"`` (communication, how many ranks) and ``"served"`` are of the fall-back state. To a
    rank: ``"state"`` confirms one, ``"poll"``, ``"hold"``, ``"grant"``, ``"resume"``.
    """

    at_s: float
    kind: str
    rank: int
    step: int
    what: tuple[int, ...] = ()


class Controller:
    """Plays the triggers of one rail: calls `change` with a time and the circuits from then on.

    A rank is left alone for a time-out after a poll. After so many polls as the plan has tries
    without an answer, the rail goes to its fall-back state.
    """

    def __init__(
        self, job: RailJob, plan: TriggerPlan, rail: RailTriggers, change: Switch
    ) -> None:
        self.rail, self.tries, self.timeout_s = rail, plan.tries, plan.timeout_s
        self.delay_s, self.whole = job.network.delay_s, job.network.switching == "all-stop"
        self.change = change
        self.n_fallbacks = 0
        self._changes = rail.split(rail.changes)
        self._needed: list[list[tuple[Key, int]]] = [[] for _ in rail.place]
        self._listeners: dict[Key, list[tuple[int, int]]] = {}
        rows: list[tuple[Key, int, int]] = [
            *((("over", *row), ago, k) for *row, ago, k in rail.after.tolist()),
            *((("ready", *row), 0, k) for *row, k in rail.wanted.tolist()),
            *((("begun", one), ago, two) for one, two, ago in list_followers(job, rail).tolist()),
        ]
        for key, ago, k in rows:
            self._needed[k].append((key, ago))
            self._listeners.setdefault(key, []).append((k, ago))
        self._confirms: list[set[int]] = [set() for _ in rail.place]
        for rank, _, _, _, state, _ in rail.needs.tolist():
            self._confirms[state - 1].add(rank)
        self._silent = dict.fromkeys(rail.ranks, 0)
        self._polled_s = dict.fromkeys(rail.ranks, -inf)
        self._ring: _Ring | None = None
        self._epoch = 0

    def start(self, at_s: float = 0.0, step: int = 0) -> Iterator[Message]:
        """Go by the plan from the beginning of a step, when the first state is there."""
        self._base, self._from_s = step, at_s
        self._seen: dict[int, dict[Key, float]] = {}
        self._missing: dict[tuple[int, int], int] = {}
        self._done_s: dict[tuple[int, int], float] = {}
        self._last_set = [step - 1] * len(self.rail.place)
        for k in range(len(self.rail.place)):
            if not self._count(k, step):
                yield from self._set(k, step)

    def receive(self, message: Message) -> Iterator[Message]:
        """Answer a message, and change circuits when all that goes over them is over."""
        at_s, kind, rank, step, what = message
        self._silent[rank] = 0
        if self._ring is not None:
            yield from self._fall_back(self._ring, message)
        elif kind in ("over", "ready"):
            yield from self._note((kind, rank, *what), step, at_s)
        elif (kind != "here" and step < self._base) or kind in ("held", "want", "served"):
            # The rank has not heard that the rail goes by the plan again.
            yield Message(max(at_s, self._from_s), "resume", rank, self._base, (self._epoch,))
        elif kind == "ask":
            yield from self._answer(at_s, rank, step, what[0])

    def _note(self, key: Key, step: int, at_s: float) -> Iterator[Message]:
        """Note once that an operation is over, ready or begun, and set states that waited."""
        if step < self._base or key in self._seen.setdefault(step, {}):
            return
        self._seen[step][key] = at_s
        for k, ago in self._listeners.get(key, ()):
            at = k, step + ago
            if at not in self._missing:
                self._missing[at] = self._count(*at)
            self._missing[at] -= 1
            if not self._missing[at]:
                yield from self._set(*at)

    def _count(self, k: int, step: int) -> int:
        return sum(step - ago >= self._base for _, ago in self._needed[k])

    def _set(self, k: int, step: int) -> Iterator[Message]:
        """Change the circuits of a trigger, and confirm its state when they are there."""
        known = (self._seen.get(step - ago, {}).get(key, 0.0) for key, ago in self._needed[k])
        at_s = max(self._from_s, *known, 0.0)
        self.change(at_s, self._changes[k][:, :2].tolist())
        done_s = self._done_s[k, step] = at_s + self.delay_s
        for rank in sorted(self._confirms[k]):
            yield Message(done_s, "state", rank, step, (k + 1, self._epoch))
        yield from self._note(("begun", k), step, done_s if self.whole else at_s)
        self._last_set[k] = step
        for old in [each for each in self._seen if each < min(self._last_set) - 1]:
            del self._seen[old]  # all states that a step could count for are set

    def _answer(self, at_s: float, rank: int, step: int, state: int) -> Iterator[Message]:
        """Confirm a state again, or poll the ranks whose messages are missing."""
        done_s = self._done_s.get((state - 1, step))
        if done_s is not None:
            yield Message(max(at_s, done_s), "state", rank, step, (state, self._epoch))
            return
        yield from self._poll(at_s, state - 1, step, set())
        if self.rail.fallback is not None and max(self._silent.values()) > self.tries:
            self._epoch += 1
            self._ring = _Ring(self.rail.ranks, self._epoch)
            yield from self._ring.hold(at_s)

    def _poll(
        self, at_s: float, k: int, step: int, known: set[tuple[int, int]]
    ) -> Iterator[Message]:
        known.add((k, step))
        for key, ago in self._needed[k]:
            before = step - ago
            if before < self._base or key in self._seen.get(before, {}):
                continue
            if key[0] != "begun":
                rank = key[1]
                if at_s - self._polled_s[rank] >= self.timeout_s:
                    self._silent[rank] += 1
                    self._polled_s[rank] = at_s
                    yield Message(at_s, "poll", rank, before)
            elif (key[1], before) not in known:
                yield from self._poll(at_s, key[1], before, known)

    def _fall_back(self, ring: _Ring, message: Message) -> Iterator[Message]:
        """Let the ranks hold, serve their communications, and go by the plan again."""
        at_s = message.at_s
        if ring.ready_s is None:
            yield from ring.gather(message)
            if ring.last is not None and self.rail.fallback is not None:
                self.change(at_s, list(enumerate(self.rail.fallback.tolist())))
                ring.ready_s = at_s + self.delay_s
                self.n_fallbacks += 1
            return
        yield from ring.serve(message)
        if ring.last is not None and ring.is_past:
            self.change(at_s, list(enumerate(self.rail.circuits.tolist())))
            self._ring, done_s, step = None, at_s + self.delay_s, ring.last + 1
            for rank in self.rail.ranks:
                yield Message(done_s, "resume", rank, step, (self._epoch,))
            yield from self.start(done_s, step)


class _Ring:
    """The fall-back state of a rail: ranks that hold, what they want, and the next in turn."""

    def __init__(self, ranks: Sequence[int], epoch: int) -> None:
        self.ranks, self.epoch = ranks, epoch
        self.last: int | None = None
        """The last step in which anybody was when all held: so long the ring stays."""
        self.ready_s: float | None = None
        self._steps: dict[int, int] = {}
        self._wants: dict[tuple[int, int, int], set[int]] = {}
        self._turn: tuple[int, int] | None = None
        self._left: set[int] = set()
        self._over: set[tuple[int, int]] = set()

    @property
    def is_past(self) -> bool:
        """Whether all ranks are past the last step."""
        return self.last is not None and min(self._steps.values()) > self.last

    def hold(self, at_s: float) -> Iterator[Message]:
        """Send ``"hold"`` to each GPU that has not confirmed it."""
        for rank in self.ranks:
            if rank not in self._steps:
                yield Message(at_s, "hold", rank, 0, (self.epoch,))

    def gather(self, message: Message) -> Iterator[Message]:
        """Note which ranks hold, and repeat the order to the other ranks."""
        if message.kind == "held" and message.what == (self.epoch,):
            self._steps[message.rank] = message.step
        if len(self._steps) == len(self.ranks):
            self.last = max(self._steps.values())
        elif message.kind in ("held", "ask", "want"):
            yield from self.hold(message.at_s)

    def serve(self, message: Message) -> Iterator[Message]:
        """Let communications that all their ranks want go around the ring, one by one."""
        at_s, kind, rank, step, what = message
        if kind == "held" and what == (self.epoch,):
            self._steps[rank] = max(step, self._steps[rank])
        elif kind == "served" and self._turn == (step, *what):
            self._left.discard(rank)
            if not self._left:
                self._over.add(self._turn)
                self._turn = None
        elif kind == "want" and self.last is not None and step <= self.last:
            node, size = what
            if (step, node) not in self._over and (step, node) != self._turn:
                self._wants.setdefault((step, node, size), set()).add(rank)
        agreed = sorted(at for at, ranks in self._wants.items() if len(ranks) == at[2])
        new = self._turn is None and bool(agreed)
        if new:
            self._left, self._turn = self._wants.pop(agreed[0]), agreed[0][:2]
        if self._turn is not None and self.ready_s is not None and (new or kind == "want"):
            of_step, number = self._turn
            for one in sorted(self._left):
                yield Message(max(at_s, self.ready_s), "grant", one, of_step, (number,))
