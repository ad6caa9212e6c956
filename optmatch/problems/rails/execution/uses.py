"""Uses of the ports of a rail: sends over them, and changes of circuits.

A *use* is one transmit port of the switch that an operation sends over, at its own rank or at one
that forwards its data. A *trigger* is a change of circuits. A *row* names an operation by rank,
group and number: its number among the communications of the group at this rank, from 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model.numbers import refuse_entries
from optmatch.problems.rails.execution.plan import ranks_of_rails
from optmatch.problems.rails.execution.triggers import RailTriggers
from optmatch.problems.rails.problem import RailJob
from optmatch.problems.rails.training.arrays import list_ranges
from optmatch.problems.rails.training.step import RECV, Step

Ints = NDArray[np.int64]


class Use(NamedTuple):
    """Sends over the transmit ports of a rail: an entry for each operation and port.

    Parameters
    ----------
    operation
        ``operation[use]``: the operation of the step whose data are sent.
    port
        ``port[use]``: the transmit port of the switch.
    """

    operation: Ints
    port: Ints


class Ports(NamedTuple):
    """All that happens at the transmit ports of a rail: sends, and changes of circuits.

    Parameters
    ----------
    port
        ``port[entry]``: the transmit port of the switch, ascending; entries of a port are in the
        order of their places.
    is_use
        ``is_use[entry]``: whether it is a send; else it is a change.
    item
        ``item[entry]``: the operation of a send, or the trigger of a change.
    """

    port: Ints
    is_use: NDArray[np.bool_]
    item: Ints

    def pair(self, *, use: bool, after_use: bool) -> tuple[Ints, Ints, Ints]:
        """Pair each entry of one sort with the last entry of another sort before it at its port.

        If there is none, that is the last one of the step before. `use` says whether the earlier
        entry of a pair is a send (else a change), `after_use` the same of the later one. The
        result is the items of the earlier entries, those of the later ones, and how many steps
        lie between, 0 or 1. At a port with send 8, change 2 and send 9, the sends before changes
        are the pair (8, 2, 0), and the changes before sends the pairs (2, 8, 1) and (2, 9, 0).
        """
        # Entries are sorted by port. `last_match[entry]` is the last entry of the earlier sort up
        # to this one, -1 for none; it may be one of an earlier port, which shows as a number below
        # that of the first entry of the port. `previous` is the same without the entry itself.
        first_of_port = np.searchsorted(self.port, self.port)
        last_of_port = np.searchsorted(self.port, self.port, "right") - 1
        matches = np.where(self.is_use == use, np.arange(len(self.port)), -1)
        last_match = np.maximum.accumulate(matches)
        previous = np.concatenate([[-1], last_match]).astype(np.int64)[:-1]

        # If none precedes at the port, the last one of the port is that of the step before.
        ago = previous < first_of_port
        partner = np.where(ago, last_match[last_of_port], previous)
        is_paired = (self.is_use == after_use) & (partner >= first_of_port)
        return (
            self.item[partner[is_paired]],
            self.item[is_paired],
            ago[is_paired].astype(np.int64),
        )


def list_uses(
    job: RailJob,
    rail: RailTriggers,
    ports: NDArray[np.int32],
    relays: NDArray[np.int32],
    *,
    pooled: bool = False,
) -> Use:
    """List who sends over which port of a rail: an entry for each port of each sender and relay.

    ``ports[operation]`` are ports as bits; rows of `relays` are (operation, rank that forwards,
    its ports as bits). Raises `InputError` for ports that a GPU does not have.

    GPUs of a rail are numbered in the order of ``rail.ranks``. Port p of GPU g is the port
    ``g * k + p`` of the switch, with k ports a GPU: for k = 2 an operation at GPU 3 with the bits
    0b11 uses the ports 6 and 7. On a fabric with dead ports these numbers count its live ports.

    If `pooled`, an operation of any rail may use the ports of all GPUs of its server: bit
    ``q * k + p`` is port p on the rail that is number q of the step, and only the bits of this
    rail give uses. With 8 rails and k = 2, rail 3 has the bits 6 and 7 of 16.
    """
    # The operations on this rail count, and if rails are pooled those on any rail.
    step = job.step()
    k = job.network.ports_per_gpu
    ranks_of_rail = {rail.rail: np.array(rail.ranks)}
    if pooled:
        ranks_of_rail = ranks_of_rails(step)

    # One entry for each sender: first these operations, then their relays. An entry has its
    # operation, the rank that sends, and this rank's ports as bits. Relays of operations that do
    # not exist are passed over.
    sends = np.isin(step.rail, [*ranks_of_rail]) & (step.kind != RECV)
    relayed, relaying_rank, relay_bits = relays[relays[:, 0] < len(sends)].T
    is_here = sends[relayed]
    direct = np.flatnonzero(sends)
    operation = np.concatenate([direct, relayed[is_here]]).astype(np.int64)
    rank = np.concatenate([step.rank[direct], relaying_rank[is_here]])
    bits = np.concatenate([ports[direct], relay_bits[is_here]])

    # ``gpu[entry]`` is the number on this rail of the GPU whose ports are used. It is the number
    # of the rank's own GPU. If rails are pooled, it is that of the GPU of this rail in the same
    # server, which has the same number on its rail. An entry is `wrong` if its rank is on none of
    # these rails; the last entry of `gpu_of_rank` is for ranks that do not exist.
    gpu_of_rank = np.full(step.n_ranks + 1, -1)
    for ranks in ranks_of_rail.values():
        gpu_of_rank[ranks] = np.arange(len(ranks))
    gpu = gpu_of_rank[np.minimum(rank, step.n_ranks)]
    wrong = gpu < 0

    # Of the `n_bits` that may be set, `first_bit` stands for port 0 of this rail and the k - 1
    # bits after it for its other ports.
    n_bits = len(ranks_of_rail) * k
    first_bit = [*ranks_of_rail].index(rail.rail) * k

    # Each bit that is set becomes a use: ``row[use]`` is the entry and ``number[use]`` the port of
    # the GPU, from 0. An entry is wrong as well if none of its bits is set, or any beyond the
    # ports of a GPU (of a server, if pooled).
    row, number = np.nonzero(bits[:, None] >> (first_bit + np.arange(k)) & 1)
    wrong |= (bits <= 0) | (bits >> n_bits != 0)
    refuse_entries(
        "ports",
        wrong,
        lambda k: (
            f": {step.describe(int(operation[k]))} sends over ports {bits[k]:b} of rank {rank[k]}:"
            f" no ports on rail {rail.rail}"
        ),
        entries=operation,
    )

    # On a fabric, GPUs have the first ports of the switch that work: ``live[g * k + p]`` is the
    # one of port p of GPU g.
    live = np.arange(len(rail.circuits)) if job.fabric is None else job.fabric.live_ports
    return Use(operation[row], live[gpu[row] * k + number].astype(np.int64))


def list_interruptions(job: RailJob, rail: RailTriggers) -> tuple[Ints, Ints]:
    """List which trigger interrupts which port.

    The result is two arrays: ``trigger[pair]`` interrupts the transmit port ``port[pair]``, as it
    changes its circuit. On a switch that stops as a whole each trigger interrupts all ports.
    """
    if job.network.switching == "all-stop":
        n_ports = len(rail.circuits)
        n_triggers = len(rail.place)
        trigger = np.repeat(np.arange(n_triggers), n_ports)
        return trigger, np.tile(np.arange(n_ports), n_triggers)
    port, _, trigger = rail.changes.T.astype(np.int64)
    return trigger, port


class Finder:
    """Finds operations by rank, group, and number.

    ``number[operation]`` counts the communications of a group at a rank, from 1; 0 of computation.
    `order` has all operations sorted by pair of rank and group: pair k, of the key ``pairs[k]``,
    has the ``count[k]`` operations from ``order[first[k]]`` on.

    Parameters
    ----------
    step
        The step whose operations are found.
    """

    def __init__(self, step: Step) -> None:
        """Count the communications of each pair of rank and group, from 1."""
        self.step = step
        key = self._pair(step.rank, step.group)
        self.order = np.argsort(key, kind="stable")
        ordered = key[self.order]
        self.first = np.flatnonzero(np.diff(ordered, prepend=-1))
        self.pairs = ordered[self.first]
        self.count = np.diff(self.first, append=len(key))

        # By operation: its number among the operations of its pair, from 1.
        self.number = np.zeros(len(key), np.int32)
        self.number[self.order] = 1 + np.arange(len(key)) - np.repeat(self.first, self.count)
        self.number[step.group < 0] = 0

    def _pair(self, rank: NDArray[np.int32], group: NDArray[np.int32]) -> Ints:
        """Pack ranks and groups into keys, which sort by rank and then by group, -1 for none."""
        return rank.astype(np.int64) * (len(self.step.groups) + 1) + group + 1

    def __call__(self, rows: NDArray[np.int32], where: str) -> Ints:
        """Find the operations that rows name by rank, group and number: one for each row.

        The row (3, 5, 2) names the second communication of group 5 in the program of rank 3;
        further columns of `rows` are not looked at. Raises `InputError`, in which `where` is the
        name of the table, at the first row that names no communication.
        """
        rank, group, number = rows.T[:3]
        key = self._pair(rank, group)
        pair = np.searchsorted(self.pairs, key)

        # Keys of pairs ascend. The search finds the pair of a key or, if there is none, another
        # one or the end of the list. Such a row is refused, as is a number beyond those of its
        # pair.
        exists = np.append(self.pairs, -1)[pair] == key
        exists &= (number > 0) & (number <= np.append(self.count, 0)[pair])
        exists &= group < len(self.step.groups)
        refuse_entries(
            where,
            ~exists,
            lambda row: (
                f": rank {rank[row]} has no communication number {number[row]} in group"
                f" {group[row]}"
            ),
        )
        operations: Ints = self.order[self.first[pair] + number - 1]
        return operations

    def name(self, operations: NDArray[Any], *columns: Any) -> NDArray[np.int32]:
        """Name operations by rows of rank, group, number and further columns.

        A further column has an entry for each operation, or is one number for all. The rows of the
        result are sorted, and equal ones stand once.
        """
        rank = self.step.rank[operations]
        group = self.step.group[operations]
        named = np.broadcast_arrays(rank, group, self.number[operations], *columns)
        table = np.stack(named, axis=1).astype(np.int32)
        rows: NDArray[np.int32] = table[np.lexsort(table.T[::-1])]  # by the first column first
        is_new: NDArray[np.bool_] = (np.diff(rows, axis=0, prepend=-1) != 0).any(axis=1)
        return rows[is_new]


def find_first_users(rail: RailTriggers, place: NDArray[np.int32], find: Finder) -> Ints:
    """Find by trigger the first operation over its new circuits in this step, -1 for none.

    ``place[operation]`` is its place in the order of all operations. The table ``rail.needs`` says
    who sends over which circuits, and has to be filled.
    """
    # A state is the one after the trigger of the number before. States of the step before do not
    # count.
    *_, state, ago = rail.needs.T
    in_this_step = ago == 0
    operations = find(rail.needs[in_this_step], "needs")
    trigger = state[in_this_step] - 1

    # From the last place to the first: the operation that is written last has the first place.
    order = np.argsort(-place[operations], kind="stable")
    first = np.full(len(rail.place), -1)
    first[trigger[order]] = operations[order]  # the last of several entries stays
    return first


def find_matches(keys: NDArray[Any], values: NDArray[Any]) -> tuple[Ints, Ints]:
    """Find all places at which values occur in an array of keys.

    The result is two arrays, ``row[match]`` and ``place[match]`` with ``keys[place[match]] ==
    values[row[match]]``, in the order of the rows: the values 4 and 9 in the keys 9, 4, 4 give the
    rows 0, 0, 1 and the places 1, 2, 0.
    """
    # The places of all matches, sorted by their keys: those of a value stand together.
    place = np.flatnonzero(np.isin(keys, values))
    place = place[np.argsort(keys[place], kind="stable")]
    low = np.searchsorted(keys[place], values, "left")
    high = np.searchsorted(keys[place], values, "right")

    # Row r has the matches from `low[r]` up to `high[r]`.
    row = np.repeat(np.arange(len(values)), high - low)
    return row, place[list_ranges(low, high - low)]
