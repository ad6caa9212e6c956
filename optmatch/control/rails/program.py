"""What the ranks of a job do in every step: a node for each computation and communication."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from optmatch.problems import RailJob
from optmatch.problems.rails.execution.orders import Graph
from optmatch.problems.rails.execution.triggers import TriggerPlan
from optmatch.problems.rails.execution.uses import Ints
from optmatch.problems.rails.training.step import COMPUTE

Name = tuple[int, ...]
"""How ranks and controllers call a communication: group, n, part; without part if it is ready."""
Need = tuple[int, int, int]
"""A rank, a state, and 1 if that of the step before is meant."""


class Node(NamedTuple):
    """A part of a communication, or a computation, that comes in every step."""

    ranks: tuple[int, ...]
    busy: tuple[int, ...]
    """Those that forward it, too."""
    rail: int
    """The place of its rail in the plan, -1 if it rides none."""
    lasts_s: float
    after: list[tuple[int, int]]
    """What waits for it at the same ranks or ports, and in which step."""
    needs: list[Need]
    over: list[tuple[int, Name]]
    """Which rank tells the controller that it is over, and by what name."""
    ready: list[tuple[int, Name]]


class Program(NamedTuple):
    """All nodes of a step, and how they depend on each other."""

    nodes: list[Node]
    roots: list[list[int]]
    """``roots[rank]``: nodes that wait for the rank to begin the step."""
    waits: tuple[list[int], list[int]]
    """For how many others each node waits: in the first step, and in later ones."""
    n_nodes: list[int]
    """``n_nodes[rank]``: how many it has."""
    computes: Ints
    told: dict[tuple[int, int], list[tuple[int, Name]]]
    """What a rank, the second, tells the controller of a rail."""


def make_program(job: RailJob, plan: TriggerPlan, graph: Graph) -> Program:
    """Find what every rank does and waits for, and what it tells whom."""
    step, event_of = job.step(), graph.events.event_of
    nodes = _make_nodes(job, plan, graph)
    roots: list[list[int]] = [[] for _ in range(step.n_ranks)]
    first, later = [0] * len(nodes), [0] * len(nodes)
    inside: list[set[int]] = [set() for _ in nodes]
    pairs = (graph.events.before, graph.events.after, graph.ago)
    for one, two, ago in zip(*(column[graph.local].tolist() for column in pairs), strict=True):
        nodes[one].after.append((two, ago))
        later[two] += 1
        if not ago:
            first[two] += 1
            inside[two] |= set(nodes[one].ranks)
    for number, node in enumerate(nodes):
        for rank in set(node.ranks) - inside[number]:
            roots[rank].append(number)
            first[number] += 1
            later[number] += 1
    every = [rank for node in nodes for rank in node.ranks]
    kinds = step.kind[graph.events.part[: len(graph.parts.number)]]
    found = Program(
        nodes,
        roots,
        (first, later),
        np.bincount(every, minlength=step.n_ranks).tolist(),
        np.flatnonzero(kinds == COMPUTE),
        {},
    )

    def at(rows: Any, parts: Any) -> list[tuple[list[int], int]]:
        events = event_of[graph.find(rows, "rows")]
        numbers = graph.parts.node(events, np.asarray(parts, np.int64)).tolist()
        return list(zip(rows.tolist(), numbers, strict=True))

    for k, rail in enumerate(plan.rails):
        for (rank, _, _, _, state, ago), number in at(rail.needs, rail.needs[:, 3]):
            nodes[number].needs.append((rank, state, ago))
        named: dict[Name, int] = {}
        named |= {tuple(row[:4]): n for row, n in at(rail.after, rail.after[:, 3])}
        named |= {tuple(row[:3]): n for row, n in at(rail.wanted, [0] * len(rail.wanted))}
        for (rank, *what), number in named.items():
            tells = nodes[number].over if len(what) == 3 else nodes[number].ready
            tells.append((rank, tuple(what)))
            found.told.setdefault((k, rank), []).append((number, tuple(what)))
    return found


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
