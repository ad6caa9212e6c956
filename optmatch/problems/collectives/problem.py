"""A collective: the operation of ranks, and the costs of rounds, hops and new circuits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.fabrics import IdealSwitch
from optmatch.model import (
    IDLE,
    LONGEST_S,
    FrozenMap,
    InputError,
    check_fields,
    check_size,
    integer,
)
from optmatch.problems.collectives.bounds import BoundTerms
from optmatch.problems.collectives.fields import CollectiveFields
from optmatch.problems.collectives.islands import bound_collective
from optmatch.problems.collectives.plan import CollectivePlan

STARTS = ("free", "dark")
_SHORTEST_S = 1e-30
"""A shorter time is no time of bytes: parts of it would be 0."""
_MOST_ALIGNED_BYTES = 1 << 52
"""Floats have no room for the multiples of some ``align_bytes`` beyond twice of it."""


class Collective(CollectiveFields):
    """Run a collective over circuits that may change between its rounds, as fast as possible.

    In a *round* each rank sends to the ranks to which its circuits lead. A round lasts
    ``alpha_s``, and the bytes of its busiest circuit over the rate; with `hop_s` also that for
    each hop of its longest route. Between two rounds new circuits may be set up, which lasts
    ``delay_s``.

    Parameters
    ----------
    operation
        ``"all-reduce"``: every rank gets the sum of all buffers. ``"reduce-scatter"``: rank r gets
        block r of the sum. ``"all-gather"``: every rank gets the block of each. ``"all-to-all"``:
        each rank has a block for each. ``"broadcast"``: every rank gets the buffer of `root`.
    n_ranks
        How many ranks take part.
    size_bytes
        The whole buffer of a rank; of an all-gather its result, so that a block has a part of n.
        In an uneven all-to-all the largest row or column of `demand_bytes`; 0 for that.
    alpha_s
        Seconds of software for each round.
    hop_s
        Seconds for each hop of a send; a send over a circuit of its own has one. None: nothing is
        forwarded inside a round, and hops take no time.
    rate_bytes_per_s
        What a port sends, in bytes per second.
    delay_s
        Seconds to set up new circuits.
    ports
        How many ports a rank has on each plane.
    planes
        The number of switches side by side; each can change its circuits while others send.
    two_way
        Whether a circuit joins two ports in both directions. The two ports are on the same plane;
        they may have different numbers, as in a ring of an odd number of ranks.
    start
        Whether the first circuits are there (free), or cost a delay (dark). ``"free"``: any
        circuits are there. ``"dark"``: none, so that the first cost a delay. Or the circuits that
        are there, as in `optmatch.problems.CollectivePlan`.
    steps
        A list of steps from outside: the configuration and the bytes of each, as 1:8e6,2:4e6. In
        each step every rank sends so many bytes, over planes in this configuration. The data that
        are sent are not replayed then.
    late_s
        How many seconds late each late rank is: ``{63: 0.01}``, at the command line 63=10ms. Time
        counts from when the first rank is ready.
    demand_bytes
        ``demand_bytes[source, destination]`` of an uneven all-to-all.
    root
        The rank that has the buffer of a broadcast.
    align_bytes
        Each chunk is a multiple of so many bytes, and padded for that; 0: chunks of any size.
    island
        The ranks of an island, which have links of their own. So many in a row send to each other
        over these links, in the same rounds as over circuits. Circuits join ranks that have the
        same place in their islands: a *rail* for each place. 1: no islands.
    island_rate_bytes_per_s
        What a rank sends, and receives, inside its island, in bytes per second.
    island_alpha_s
        Seconds of software for each round in which ranks of an island send to each other. A round
        lasts as long as the slower of circuits and islands.
    fabric
        The switch of each plane, with a port ``rank * ports + port`` for each port of a rank; an
        ideal switch if None.

    Raises
    ------
    InputError
        Naming the field, the rule and the value.

    See Also
    --------
    CollectivePlan : The answer.
    optmatch.problems.AllToAll : Every pair of ports once, without data.

    Examples
    --------
    >>> problem = Collective("all-gather", 4, 4e6, alpha_s=1e-6, rate_bytes_per_s=1e9)
    >>> problem.lower_bound(), problem.bounds().name
    (0.003002, 'reach')
    """

    __slots__ = ()
    kind: ClassVar[str] = "collective"
    answer_class: ClassVar[type[CollectivePlan] | None] = CollectivePlan
    objectives: ClassVar[dict[str, str]] = {"collective": "s"}

    def __post_init__(self) -> None:
        """Check all fields, and fill in those that follow from others."""
        # An ideal switch of as many ports as needed is the default fabric. It is made before all
        # fields are checked, so the numbers that it depends on are checked here.
        if self.fabric is None:
            ranks = integer("n_ranks", self.n_ranks, at_least=1)
            check_size("ranks", ranks, "n_ranks")
            ports = ranks * integer("ports", self.ports, at_least=1)
            object.__setattr__(self, "fabric", IdealSwitch(ports))
        if isinstance(self.late_s, Mapping):  # files have no whole numbers as keys
            late_s = {str(rank): seconds for rank, seconds in self.late_s.items()}
            object.__setattr__(self, "late_s", late_s)
        check_fields(self)
        check_size("entries", self.n_ranks**2, "n_ranks")
        check_size("ports", self.n_ranks * self.lanes, "planes")

        # Fields that follow from others are set, and all are checked against each other.
        _set_fabric(self)
        _set_sizes(self)
        _set_root(self)
        _set_start(self)
        _set_late(self)
        _set_steps(self)
        _check_times(self)
        _check_islands(self)

    def bounds(self) -> BoundTerms:
        """Return the best lower bound, the terms that it is made of, and its name."""
        return bound_collective(self)

    def lower_bound(self) -> float:
        """Return a time that no plan can beat, in seconds."""
        return self.bounds().seconds


def _refuse(name: str, got: Any, rule: str) -> None:
    """Raise the error for a field: its name, its value, and the rule that it breaks."""
    raise InputError(f"{name} = {got!r}: {rule} is expected", where=name)


def _set_fabric(problem: Collective) -> None:
    """Refuse a switch that has too few ports, or other ports than the problem says.

    The ports of all ranks on one plane are those of the switch: port p of rank r is ``r * ports +
    p``, and none of them may be dead. A switch of bidirectional ports takes two-way circuits
    alone, and one with cells inside cannot be several planes.
    """
    needed = problem.n_ranks * problem.ports
    fabric = problem.fabric
    fabric.require_switch()
    if fabric.n_ports < needed:
        _refuse("fabric", fabric.n_ports, f"a switch of {needed} ports or more")
    if fabric.bidirectional and not problem.two_way:
        _refuse("two_way", False, f"true on a {fabric.type} of bidirectional ports")
    if fabric.graph is not None and problem.planes > 1:
        _refuse("planes", problem.planes, f"one plane on a {fabric.type}, which has cells")
    for port in fabric.dead_ports:
        if port < needed:
            raise InputError(
                f"{fabric.describe_port(port)} is dead, and rank {port // problem.ports} has it:"
                f" ranks have the first {needed} ports of a switch. State a switch without the"
                " dead port, and write the sides of the others in a table of ports (`export"
                " --ports`); or fewer ports a rank",
                where=f"fabric[{port}]",
            )


def _set_sizes(problem: Collective) -> None:
    """Refuse wrong sizes; set that of an uneven all-to-all to its busiest row or column.

    Writes ``problem.size_bytes`` of an uneven all-to-all, though the problem is frozen;
    ``demand_bytes[source, destination]``.
    """
    n = problem.n_ranks
    demand = problem.demand_bytes
    if demand is not None:
        if not problem.flow.has_pairs:
            _refuse("demand_bytes", "given", "none but of an all-to-all")
        if demand.shape != (n, n):
            _refuse("demand_bytes", demand.shape, f"{n} x {n} bytes")

        # No rank sends to itself, and the size is what the busiest rank sends or receives.
        for rank in np.flatnonzero(demand.diagonal())[:1]:
            amount = float(demand[rank, rank])
            _refuse(f"demand_bytes[{rank}, {rank}]", amount, "0 from a rank to itself")
        busiest = max(float(demand.sum(axis=axis).max()) for axis in (0, 1))
        if problem.size_bytes not in (0, busiest):
            _refuse("size_bytes", problem.size_bytes, f"{busiest:g}, as demand_bytes says, or 0")
        object.__setattr__(problem, "size_bytes", busiest)
    elif not problem.size_bytes:
        _refuse("size_bytes", 0, "above 0")


def _check_times(problem: Collective) -> None:
    """Refuse bytes that would last too long, or so short that parts of them would last no time.

    Bytes may take `LONGEST_S` at most over one port, and those that are sent have to take
    `_SHORTEST_S` at least. Beyond these limits rounding errors would hide parts of the time.
    """
    for name in ("size_bytes", "align_bytes"):
        amount = getattr(problem, name)
        if amount > LONGEST_S * problem.rate_bytes_per_s:
            _refuse(name, amount, f"what lasts {LONGEST_S:g} s at most")
        if problem.align_bytes and amount > _MOST_ALIGNED_BYTES:
            _refuse(name, amount, f"{_MOST_ALIGNED_BYTES} at most with align_bytes")

    # The size of an uneven all-to-all is the sum of its blocks, which are looked at instead.
    sent_bytes: dict[str, Any] = {}
    if problem.demand_bytes is None:
        sent_bytes["size_bytes"] = [problem.size_bytes]
    else:
        sent_bytes["demand_bytes"] = problem.demand_bytes[problem.demand_bytes > 0]
    if problem.steps is not None:
        sent_bytes["steps"] = problem.steps[:, 1]
    for name, amounts in sent_bytes.items():
        least = float(np.min(amounts, initial=np.inf))
        if least < _SHORTEST_S * problem.rate_bytes_per_s:
            _refuse(name, least, f"what lasts {_SHORTEST_S:g} s at least")


def _check_islands(problem: Collective) -> None:
    """Refuse a collective whose fields do not fit to its islands.

    An *island* is a group of ``problem.island`` ranks with fast links among them. If this number
    is 1 there are no islands, and fields that describe them have to keep their defaults. With
    islands each rank has one one-way circuit, its *rail*, over an ideal switch; fields for
    anything more have to keep their defaults.
    """
    if problem.island == 1:
        for part in fields(problem):
            amount = getattr(problem, part.name)
            if part.name.startswith("island_") and amount != part.default:
                _refuse(part.name, amount, f"{part.default:g} without islands")
        return

    # Islands are equally large, and rates so near that sums of times stay finite.
    if problem.n_ranks % problem.island:
        _refuse("island", problem.island, f"a divisor of {problem.n_ranks} ranks")
    if problem.size_bytes > LONGEST_S * problem.island_rate_bytes_per_s:
        rate = problem.island_rate_bytes_per_s
        _refuse("island_rate_bytes_per_s", rate, f"what takes {LONGEST_S:g} s at most")
    if problem.island_rate_bytes_per_s / 1e100 > problem.rate_bytes_per_s:
        rate = problem.rate_bytes_per_s
        _refuse("rate_bytes_per_s", rate, "no less than a part of 1e100 of that of islands")

    # Fields that have to keep their defaults, since each rank has one rail and nothing else.
    alone = {"ports": 1, "planes": 1, "two_way": False, "hop_s": None, "align_bytes": 0}
    for name, value in alone.items():
        if getattr(problem, name) != value:
            _refuse(name, getattr(problem, name), f"{value} between islands")
    for name in ("steps", "demand_bytes"):
        if getattr(problem, name) is not None:
            _refuse(name, "given", "none between islands")

    # Neither broadcasts nor late ranks, and an ideal switch.
    if problem.flow.from_root or problem.late_s:
        name = "late_s" if problem.late_s else "operation"
        _refuse(name, getattr(problem, name), "no broadcast, and no late ranks, between islands")
    if problem.fabric.graph is not None:
        _refuse("fabric", problem.fabric.type, "an ideal switch between islands")
    if not isinstance(problem.start, str):
        check_rails("start", problem.start[None], problem.island)


def _set_root(problem: Collective) -> None:
    """Refuse a root that is no rank, or that does not broadcast."""
    root = problem.root
    if root >= problem.n_ranks or (root and not problem.flow.from_root):
        _refuse("root", root, f"a rank of {problem.n_ranks}, of a broadcast")


def _set_start(problem: Collective) -> None:
    """Refuse first circuits that the ports cannot hold, or a name that says none."""
    if isinstance(problem.start, str):
        if problem.start not in STARTS:
            _refuse("start", problem.start, f"{' or '.join(STARTS)}, or circuits")
        return
    start = problem.start
    if start.shape != (problem.lanes, problem.n_ranks):
        _refuse("start", start.shape, f"circuits of shape {(problem.lanes, problem.n_ranks)}")
    check_circuits("start", start[None], two_way=problem.two_way, ports=problem.ports)


def _set_late(problem: Collective) -> None:
    """Refuse wrong late ranks; leave out those that are not late, and order the others by rank.

    Writes ``problem.late_s``, seconds by rank, though the problem is frozen. At least one rank is
    not late, as time is counted from it.
    """
    late: dict[int, float] = {}
    names = {str(rank) for rank in range(problem.n_ranks)}  # "03" is none
    for key, seconds in problem.late_s.items():
        if key not in names:
            _refuse("late_s", key, f"a rank of {problem.n_ranks}")
        late[int(key)] = float(seconds)
    if late and len(late) == problem.n_ranks and min(late.values()) > 0:
        _refuse("late_s", min(late.values()), "one rank that is not late, as time counts from it")
    ordered = {str(rank): late[rank] for rank in sorted(late) if late[rank] > 0}
    object.__setattr__(problem, "late_s", FrozenMap(ordered))


def _set_steps(problem: Collective) -> None:
    """Refuse given steps that are wrong, or that come with late ranks or first circuits."""
    if problem.steps is None:
        return
    wrong = (problem.steps[:, 0] % 1 != 0) | (problem.steps[:, 1] == 0)
    for row in np.flatnonzero(wrong)[:1]:
        rule = "a configuration, which is whole, and bytes above 0"
        _refuse(f"steps[{row}]", problem.steps[row].tolist(), rule)
    if problem.late_s or not isinstance(problem.start, str):
        _refuse("steps", "given", "no late ranks and no first circuits, if steps are given,")


def check_circuits(name: str, circuits: ArrayLike, *, two_way: bool, ports: int) -> None:
    """Refuse circuits that the ports of ranks cannot have.

    ``circuits[epoch, lane, rank]`` is the rank to which this rank transmits, -1 for none; each
    plane has `ports` lanes. Circuits lead both ways if they are `two_way`. Errors name the field
    `name`. The rules are:

    - no rank sends to itself, and all ranks exist;
    - one-way circuits: no two ranks send to the same one over the same *lane*, a port of every
      rank;
    - two-way circuits: as many lead back from one rank to another as lead there, perhaps over
      ports of other numbers.
    """
    lanes_of_epochs = np.asarray(circuits).astype(np.int64)
    _, n_lanes, n = lanes_of_epochs.shape
    rows = lanes_of_epochs.reshape(-1, n)

    def refuse(rule: str) -> None:
        """Raise the error for the array, with what is wrong."""
        raise InputError(f"{name}: {rule}", where=name)

    for row, rank in np.argwhere((rows < IDLE) | (rows >= n))[:1].tolist():
        refuse(f"rank {rank} sends to {rows[row, rank]} of {n}")

    # A row is a lane of an epoch. In a sorted row a rank that is reached twice has equal
    # neighbours.
    if not two_way:
        peers = np.sort(rows, axis=1)
        repeated = (np.diff(peers, axis=1) == 0) & (peers[:, 1:] != IDLE)
        for row, place in np.argwhere(repeated)[:1].tolist():
            refuse(f"lane {row % n_lanes} leads to rank {peers[row, place]} more than once")
    for _, rank in np.argwhere(rows == np.arange(n))[:1].tolist():
        refuse(f"rank {rank} sends to itself")

    # Two-way circuits have a lane at their other end that leads back.
    if two_way:
        lane_of_end = facing_lanes(lanes_of_epochs, ports)
        alone = (lanes_of_epochs != IDLE) & (lane_of_end == IDLE)
        for epoch, lane, rank in np.argwhere(alone)[:1].tolist():
            peer = lanes_of_epochs[epoch, lane, rank]
            refuse(
                f"a circuit leads from rank {rank} to {peer}, none back, but circuits are two-way"
            )


def facing_lanes(circuits: NDArray[np.int64], ports: int) -> NDArray[np.int64]:
    """Return the lane at the other end of each two-way circuit.

    If several circuits of a plane join two ranks, then the first lane of one rank that leads to
    the other faces the first lane there that leads back, the second one the second, and so on. In
    ``[[[1, -1], [-1, 0]]]``, two ranks with two ports, lane 0 of rank 0 faces lane 1 of rank 1.

    ``circuits[epoch, lane, rank]`` is the rank to which a port leads, or -1; `ports` lanes in a
    row are those of one plane. The result ``facing[epoch, lane, rank]`` is the lane of the peer;
    -1 where no circuit leads back, or none is there.
    """
    # peer_of_port[epoch, plane, rank, port]; all arrays after it have one entry for each circuit.
    n_epochs, n_lanes, n = circuits.shape
    peer_of_port = circuits.reshape(n_epochs, n_lanes // ports, ports, n).swapaxes(2, 3)
    epoch, plane, rank, port = np.nonzero(peer_of_port != IDLE)
    peer = peer_of_port[epoch, plane, rank, port]

    # `key` is one number for epoch, plane, rank and peer. Parallel circuits have equal keys, and
    # are numbered 0, 1, ... by their ports: the sorted keys 5, 5, 8 begin at the places 0, 0, 2,
    # and have the numbers 0, 1, 0.
    switch = epoch * (n_lanes // ports) + plane
    key = (switch * n + rank) * n + peer
    order = np.argsort(key, kind="stable")
    sorted_keys = key[order]
    number = np.empty(len(key), dtype=np.int64)
    number[order] = np.arange(len(key)) - np.searchsorted(sorted_keys, sorted_keys)

    # `back` is the key of the circuits that lead back. They begin at some place among the sorted
    # keys, and the one of the same number stands so many places after that. If another key stands
    # there, no circuit leads back.
    back = (switch * n + peer) * n + rank
    place = np.searchsorted(sorted_keys, back) + number
    keys = np.append(sorted_keys, -1)  # the last key is that of no circuit
    has_back = keys[np.minimum(place, len(key))] == back
    match = order[place[has_back]]  # the circuit that leads back, on the same plane
    facing = np.full(peer_of_port.shape, IDLE)
    facing[epoch[has_back], plane[has_back], rank[has_back], port[has_back]] = (
        plane[match] * ports + port[match]  # its lane
    )
    return facing.swapaxes(2, 3).reshape(circuits.shape)


def check_rails(name: str, circuits: NDArray[np.int32], island: int) -> None:
    """Refuse circuits between ranks that have different places in their islands.

    ``circuits[epoch, lane, rank]`` is the rank to which this rank transmits, or -1.
    """
    ranks = np.arange(circuits.shape[-1])
    leaves_rail = (circuits != IDLE) & (circuits % island != ranks % island)
    for index in np.argwhere(leaves_rail)[:1].tolist():
        peer = circuits[tuple(index)]
        message = f"a circuit leads from rank {index[-1]} to {peer}, on another rail"
        raise InputError(f"{name}: {message}", where=name)
