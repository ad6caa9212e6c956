"""The ranks of a simulated job: they compute, send when they may, and talk to controllers.

A node is a part of a communication, or a computation, that comes in every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Annotated, Any, NamedTuple

import numpy as np

from optmatch.control.rails.controller import Controller, Message
from optmatch.model import Amount, OnEvent, OptMatchError, Positive, Range, Tick, Value, check_time
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.orders import Graph
from optmatch.problems.rails.execution.triggers import TriggerPlan
from optmatch.problems.rails.training.step import COMPUTE
from optmatch.simulation.rails.replay import draw_factors

Share = Annotated[float, Range(0, 0.9)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults(Value):
    """The faults of messages between ranks and controllers, and how uneven computations are.

    Parameters
    ----------
    jitter
        The standard deviation of the factor that is drawn for each computation.
    loss, late, twice
        The parts of all messages, both ways, that are lost, that are late, by up to three
        time-outs, and that come twice.
    latency_s
        How long a message takes.
    """

    jitter: Amount = 0.1
    loss: Share = 0.01
    late: Share = 0.01
    twice: Share = 0.01
    latency_s: Positive = 1e-5


Name = tuple[int, ...]
"""How ranks and controllers call a communication: group, n, part; without part if it is ready."""
Need = tuple[int, int, int]
"""A rank, a state, and 1 for the state of the step before."""


class Node(NamedTuple):
    """A part of a communication, or a computation, that comes in every step."""

    ranks: tuple[int, ...]
    busy: tuple[int, ...]
    """The ranks that send or forward the communication."""
    rail: int
    """The place of its rail in the plan, -1 without a rail."""
    lasts_s: float
    after: list[tuple[int, int]]
    """Nodes that wait for this one at the same ranks or ports, and in which step."""
    needs: list[Need]
    over: list[tuple[int, Name]]
    """The rank that tells the controller of its end, and the name of the communication."""
    ready: list[tuple[int, Name]]


def _make_nodes(job: RailJob, plan: TriggerPlan, graph: Graph) -> list[Node]:
    step, event_of = job.step(), graph.events.event_of.tolist()
    ranks: list[set[int]] = [set() for _ in graph.parts.number]
    for rank, event in zip(step.rank.tolist(), event_of, strict=True):
        ranks[event].add(rank)
    busy = [set(each) for each in ranks]
    for operation, rank, _ in plan.relays.tolist():
        busy[event_of[operation]].add(rank)
    number_of = {each.rail: k for k, each in enumerate(plan.rails)}
    found = {}
    for event in range(len(ranks)):
        on = number_of.get(int(step.rail[graph.events.part[event]]), -1)
        for number in graph.parts.of(event):
            who = tuple(sorted(ranks[event])), tuple(busy[event]), on
            found[number] = Node(*who, float(graph.events.duration_s[number]), [], [], [], [])
    return [found[number] for number in range(len(found))]


_PATIENCE = 10_000
"""The most time-outs that may pass before anything ends."""


class _Step(NamedTuple):
    """One step that is under way."""

    waits: list[int]
    done: bytearray
    factor: list[float]


class _Line:
    """The view of a rank on its rail."""

    def __init__(self) -> None:
        self.held = self.holds = False
        self.epoch = self.base = self.running = 0
        self.confirmed: set[tuple[int, int]] = set()


class Ranks:
    """All ranks of a job, for some steps, and the events to come.

    `judge` hears of each communication when it ends: its node, start and end, and whether it went
    around the ring of the fall-back state.
    """

    def __init__(
        self,
        job: RailJob,
        plan: TriggerPlan,
        graph: Graph,
        controllers: Sequence[Controller],
        judge: Callable[[int, float, float, bool], None],
        *,
        steps: int,
        faults: Faults,
        seed: int,
    ) -> None:
        self.plan, self.steps, self.faults = plan, steps, faults
        self.controllers, self.judge = controllers, judge
        self.rng = np.random.default_rng(seed)
        self.now_s, self.end_s = 0.0, np.zeros(steps)
        self.n_lost = self.n_sent = 0
        self._moved_s, self._longest_s = 0.0, 10 * float(graph.events.duration_s.sum())
        self.nodes = _make_nodes(job, plan, graph)
        self._told = self._name_nodes(plan, graph)
        n = job.step().n_ranks
        self._of: list[list[int]] = [[] for _ in range(n)]
        for number, node in enumerate(self.nodes):
            for rank in node.ranks:
                self._of[rank].append(number)
        kinds = job.step().kind[graph.events.part[: len(graph.parts.number)]]
        self._computes = np.flatnonzero(kinds == COMPUTE)
        first = [len(node.ranks) for node in self.nodes]  # each rank has to begin the step
        self._waits = first, first.copy()
        pairs = (graph.events.before, graph.events.after, graph.ago)
        for one, two, ago in zip(*(each[graph.local].tolist() for each in pairs), strict=True):
            self.nodes[one].after.append((two, ago))
            for waits in self._waits[ago:]:
                waits[two] += 1
        self._heap: list[tuple[Any, ...]] = []
        self._number = 0
        self._steps: dict[int, _Step] = {}
        self._at, self._left, self._finished = [-1] * n, [0] * n, [0] * (steps + 1)
        self._lines = [{rank: _Line() for rank in rail.ranks} for rail in plan.rails]
        self._waiting: dict[tuple[int, int], set[int]] = {}
        for rank in range(n):
            if self._of[rank]:
                self._begin(rank)
            else:
                self._at[rank] = steps
                self._finished = [each + 1 for each in self._finished]
        for k, controller in enumerate(self.controllers):
            self._answer(k, controller.start())

    def _name_nodes(
        self, plan: TriggerPlan, graph: Graph
    ) -> dict[tuple[int, int], list[tuple[int, Name]]]:
        """Find the states that nodes need, and the names told to controllers, by rail and rank."""
        told: dict[tuple[int, int], list[tuple[int, Name]]] = {}

        def at(rows: Any, parts: Any) -> list[tuple[list[int], int]]:
            events = graph.events.event_of[graph.find(rows, "rows")]
            numbers = graph.parts.node(events, np.asarray(parts, np.int64)).tolist()
            return list(zip(rows.tolist(), numbers, strict=True))

        for k, rail in enumerate(plan.rails):
            for (rank, _, _, _, state, ago), number in at(rail.needs, rail.needs[:, 3]):
                self.nodes[number].needs.append((rank, state, ago))
            named = {tuple(row[:4]): n for row, n in at(rail.after, rail.after[:, 3])}
            named |= {tuple(row[:3]): n for row, n in at(rail.wanted, [0] * len(rail.wanted))}
            for (rank, *what), number in named.items():
                node = self.nodes[number]
                (node.over if len(what) == 3 else node.ready).append((rank, tuple(what)))
                told.setdefault((k, rank), []).append((number, tuple(what)))
        return told

    def run(self, on_event: OnEvent) -> None:
        """Let one event come after the other, until all ranks have done all steps."""
        n_ranks, done = len(self._at), -1
        while self._finished[self.steps] < n_ranks:
            self.now_s, _, act, *given = heappop(self._heap)
            act(*given)
            if self.now_s - self._moved_s > _PATIENCE * self.plan.timeout_s + self._longest_s:
                raise OptMatchError(f"the job has stood still since {self._moved_s:g} s")
            if self._number % 256 == 0:
                check_time()
            if done < min(self._at):
                done = min(self._at)
                on_event(Tick("steps", done, self.steps))

    def _answer(self, rail: int, messages: Iterable[Message]) -> None:
        """Let messages of a controller arrive when they do."""
        for message in messages:
            for arrives_s in self._carry(message.at_s):
                self._push(arrives_s, self._hear, rail, message)

    def _tell(self, rail: int, message: Message) -> None:
        self._answer(rail, self.controllers[rail].receive(message))

    def _push(self, at_s: float, act: Any, *given: Any) -> None:
        self._number += 1
        heappush(self._heap, (at_s, self._number, act, *given))

    def _carry(self, at_s: float) -> list[float]:
        """Return when a message arrives: once, twice, or never."""
        lost, late, twice, by = self.rng.random(4).tolist()
        self.n_sent += 1
        if lost < self.faults.loss:
            self.n_lost += 1
            return []
        arrives_s = at_s + self.faults.latency_s
        if late < self.faults.late:
            arrives_s += 3 * by * self.plan.timeout_s
        return [arrives_s, arrives_s + by * self.plan.timeout_s][: 1 + (twice < self.faults.twice)]

    def _send(self, rail: int, kind: str, rank: int, step: int, what: tuple[int, ...]) -> None:
        for arrives_s in self._carry(self.now_s):
            self._push(arrives_s, self._tell, rail, Message(arrives_s, kind, rank, step, what))

    def _step(self, step: int) -> _Step:
        if step not in self._steps:
            factor = np.ones(len(self.nodes))
            drawn = draw_factors(self.rng, self.faults.jitter, len(self._computes))
            factor[self._computes], waits = drawn, self._waits[step > 0]
            self._steps[step] = _Step(waits.copy(), bytearray(len(waits)), factor.tolist())
        return self._steps[step]

    def _begin(self, rank: int) -> None:
        """Let a rank begin its next step."""
        self._at[rank] += 1
        step = self._at[rank]
        self._left[rank] = len(self._of[rank])
        self._finished[step] += 1
        if step and self._finished[step] == len(self._at):
            self.end_s[step - 1] = self.now_s
            self._steps.pop(step - 1, None)
        for rail, lines in enumerate(self._lines):
            if rank in lines:
                line = lines[rank]
                line.confirmed = {each for each in line.confirmed if each[1] >= step - 1}
                if line.held:
                    self._send(rail, "held", rank, step, (line.epoch,))
        if step < self.steps:
            for node in self._of[rank]:
                self._release(node, step)

    def _release(self, number: int, step: int) -> None:
        waits = self._step(step).waits
        waits[number] -= 1
        if waits[number]:
            return
        node = self.nodes[number]
        if node.rail < 0:
            self._start(number, step, node.lasts_s * self._steps[step].factor[number])
            return
        for rank, what in node.ready:
            self._send(node.rail, "ready", rank, step, what)
        self._waiting[number, step] = set()
        if not self._try(number, step):
            self._remind(number, step)

    def _missing(self, number: int, step: int) -> list[Need]:
        """List the states that a communication still waits for."""
        node = self.nodes[number]
        lines = self._lines[node.rail]
        return [
            (rank, state, step - ago)
            for rank, state, ago in node.needs
            if step - ago >= lines[rank].base and (state, step - ago) not in lines[rank].confirmed
        ]

    def _try(self, number: int, step: int) -> bool:
        """Start a communication if all its ranks may send; return whether it has started."""
        node, granted = self.nodes[number], self._waiting[number, step]
        lines = self._lines[node.rail]
        if len(granted) == len(node.ranks):  # around the ring, through all others
            self._start(number, step, node.lasts_s * len(lines), ring=True)
        elif any(lines[rank].held for rank in node.busy) or self._missing(number, step):
            return False
        else:
            self._start(number, step, node.lasts_s)
        return True

    def _try_all(self, rail: int, rank: int) -> None:
        for number, step in list(self._waiting):
            if self.nodes[number].rail == rail and rank in self.nodes[number].busy:
                self._try(number, step)

    def _remind(self, number: int, step: int) -> None:
        """Ask for the state that a communication waits for, and again after each time-out."""
        if (number, step) not in self._waiting:
            return
        node = self.nodes[number]
        lines = self._lines[node.rail]
        for rank in node.ranks:
            if lines[rank].held:
                self._send(node.rail, "want", rank, step, (number, len(node.ranks)))
        for rank, state, of_step in self._missing(number, step):
            if not lines[rank].held:
                self._send(node.rail, "ask", rank, of_step, (state,))
        self._push(self.now_s + self.plan.timeout_s, self._remind, number, step)

    def _start(self, number: int, step: int, lasts_s: float, *, ring: bool = False) -> None:
        node = self.nodes[number]
        if node.rail >= 0:
            del self._waiting[number, step]
            for rank in node.busy:
                self._lines[node.rail][rank].running += 1
        self._push(self.now_s + lasts_s, self._end, number, step, self.now_s, ring)

    def _end(self, number: int, step: int, start_s: float, ring: bool) -> None:
        node, under_way = self.nodes[number], self._steps[step]
        under_way.done[number], self._moved_s = 1, self.now_s
        if node.rail >= 0:
            self.judge(number, start_s, self.now_s, ring)
            if not ring:
                for rank, what in node.over:
                    self._send(node.rail, "over", rank, step, what)
            for rank in node.busy:
                line = self._lines[node.rail][rank]
                line.running -= 1
                if ring and rank in node.ranks:
                    self._send(node.rail, "served", rank, step, (number,))
                if line.holds and not line.running:
                    self._hold(node.rail, rank)
        for other, ago in node.after:
            if step + ago < self.steps:
                self._release(other, step + ago)
        for rank in node.ranks:
            self._left[rank] -= 1
            if not self._left[rank]:
                self._begin(rank)

    def _hear(self, rail: int, message: Message) -> None:
        """Take a message of a controller."""
        _, kind, rank, step, what = message
        line = self._lines[rail][rank]
        if kind == "state":
            state, epoch = what
            if epoch == line.epoch and not line.held:
                line.confirmed.add((state, step))
                self._try_all(rail, rank)
        elif kind == "poll":
            self._repeat_all(rail, rank, step)
        elif kind == "hold" and what[0] > line.epoch:
            line.epoch, line.holds = what[0], True
            if not line.running:
                self._hold(rail, rank)
        elif kind == "hold" and line.held:
            self._send(rail, "held", rank, self._at[rank], (line.epoch,))
        elif kind == "grant" and line.held:
            (node,) = what
            if (node, step) in self._waiting:
                self._waiting[node, step].add(rank)
                self._try(node, step)
            elif self._is_done(node, step):
                self._send(rail, "served", rank, step, what)
        elif kind == "resume" and line.held and what[0] == line.epoch:
            line.held, line.base = False, step
            line.confirmed.clear()
            self._try_all(rail, rank)

    def _is_done(self, number: int, step: int) -> bool:
        under_way = self._steps.get(step)
        return min(self._at) > step or (under_way is not None and bool(under_way.done[number]))

    def _repeat_all(self, rail: int, rank: int, since: int) -> None:
        """Answer a poll: tell again all that is over or ready, of a step and those after it."""
        self._send(rail, "here", rank, since, ())
        for step in range(since, self._at[rank] + 1):
            for number, what in self._told.get((rail, rank), ()):
                done = self._is_done(number, step)
                if len(what) == 3 and done:
                    self._send(rail, "over", rank, step, what)
                elif len(what) == 2 and (done or (number, step) in self._waiting):
                    self._send(rail, "ready", rank, step, what)

    def _hold(self, rail: int, rank: int) -> None:
        line = self._lines[rail][rank]
        line.held, line.holds = True, False
        self._repeat(rail, rank, line.epoch)

    def _repeat(self, rail: int, rank: int, epoch: int) -> None:
        """Say that a rank holds, and again after each time-out."""
        line = self._lines[rail][rank]
        if line.held and line.epoch == epoch:
            self._send(rail, "held", rank, self._at[rank], (epoch,))
            self._push(self.now_s + self.plan.timeout_s, self._repeat, rail, rank, epoch)
