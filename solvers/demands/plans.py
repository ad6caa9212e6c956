"""Plans: matchings and durations in ticks, and operations on them without a search.

In all of this room ``demand[source, destination]`` is in ticks, the slots of a plan serve it
together, and no slot is shorter than `shortest` ticks. A circuit is *up* in the slots whose
matching has it; an entry is *served* by the ticks that its circuit is up, over all slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.solvers.kernels.decorators import kernel

if TYPE_CHECKING:
    from optmatch.solvers.cpsat import Outcome


class Plan(NamedTuple):
    """Matchings and how long each is held."""

    matchings: NDArray[np.int32]
    """(slots, ports): the destination of each source, -1 (IDLE): none."""
    ticks: NDArray[np.int64]
    """(slots,): how long each slot lasts, without the delay before it."""

    @classmethod
    def of(cls, matchings: Sequence[NDArray[np.int32]], ticks: Sequence[int], ports: int) -> Plan:
        """Put slots together that were found one by one, perhaps none."""
        rows = np.array(matchings, dtype=np.int32).reshape(-1, ports)
        return cls(rows, np.array(ticks, dtype=np.int64))

    def take(self, slots: NDArray[Any]) -> Plan:
        """Make a plan of some of the slots."""
        return Plan(self.matchings[slots], self.ticks[slots])

    def cost(self, delay: int) -> int:
        """Add up the time of all slots, each with a delay before it."""
        return int(self.ticks.sum()) + delay * len(self.ticks)


@kernel
def add_service(matchings, ticks, served):
    """Add how long each circuit is up over all slots to a table.

    Adds ``ticks[slot]`` to ``served[source, destination]`` for each circuit of a slot.
    """
    for slot in range(len(ticks)):
        for source in range(matchings.shape[1]):
            destination = matchings[slot, source]
            if destination >= 0:
                served[source, destination] += ticks[slot]


def matching_of(
    pairs: Iterable[tuple[int, int]], n_ports: int, *, is_mutual: bool
) -> NDArray[np.int32]:
    """Return ``matching[source]`` of pairs of a source and a destination, -1 (IDLE) elsewhere.

    With `is_mutual` each circuit leads back as well: (0, 2) makes 2 the partner of 0, and 0 of 2.
    """
    matching = np.full(n_ports, IDLE, dtype=np.int32)
    for source, destination in pairs:
        matching[source] = destination
        if is_mutual:
            matching[destination] = source
    return matching


def serve(plan: Plan) -> NDArray[np.int64]:
    """Return ``served[source, destination]``: how long each circuit is up over all slots."""
    n = plan.matchings.shape[1]
    served = np.zeros((n, n), dtype=np.int64)
    add_service(plan.matchings, plan.ticks, served)
    return served


def is_mutual(plan: Plan) -> bool:
    """Tell whether each slot joins ports in pairs, as switches with mirrors do."""
    # All circuits: the slot, the port they begin at, and where they lead.
    slot, port = np.nonzero(plan.matchings != IDLE)
    partner = plan.matchings[slot, port]
    leads_back = plan.matchings[slot, partner] == port
    return bool((leads_back & (partner != port)).all())


@kernel
def shorten_slots(demand, served, matchings, ticks, order, shortest, may_drop):
    """Shorten slots by the time that no demand needs, one after another in the order `order`.

    Changes ``ticks[slot]`` and ``served[source, destination]`` in place. No slot gets shorter than
    `shortest`, but with `may_drop` one that nothing needs comes down to 0. For example, a slot
    whose circuits have 3 and 5 ticks more than they need becomes 3 ticks shorter, which leaves
    them 0 and 2 for other slots.
    """
    for slot in order:
        # The least service beyond the demand, of all circuits that have a demand.
        slack = ticks[slot]
        for source in range(len(demand)):
            destination = matchings[slot, source]
            if destination >= 0 and demand[source, destination] > 0:
                spare = served[source, destination] - demand[source, destination]
                slack = min(slack, spare)

        # A slot of which some circuit is needed, or that may not go, keeps the shortest length.
        if slack < ticks[slot] or not may_drop:
            slack = max(0, min(slack, ticks[slot] - shortest))
        if slack > 0:
            ticks[slot] -= slack
            for source in range(len(demand)):
                destination = matchings[slot, source]
                if destination >= 0:
                    served[source, destination] -= slack


@kernel
def hold_as_needed(unserved, permutations, ticks):
    """Shorten the slots of a decomposition, one after the other, to what the demand still needs.

    Shortens ``ticks[term]``, and takes what is served off ``unserved[source, destination]``, in
    place. The terms add up to a stuffed matrix, whose entries were raised until all lines had the
    same sum, and would serve more than the demand. Each term is held only as long as the circuit
    that needs it longest, after what the terms before it have served.
    """
    for term in range(len(ticks)):
        # The most that any circuit of the permutation has left to serve.
        needed = np.int64(0)
        for source in range(len(unserved)):
            needed = max(needed, unserved[source, permutations[term, source]])
        ticks[term] = min(ticks[term], needed)
        for source in range(len(unserved)):
            destination = permutations[term, source]
            served = min(unserved[source, destination], ticks[term])
            unserved[source, destination] -= served


def trim(plan: Plan, demand: NDArray[np.int64], shortest: int = 1) -> Plan:
    """Shorten each slot by the time that no demand needs, shortest first; drop empty slots."""
    served = serve(plan)
    ticks = plan.ticks.copy()
    shorten_slots(
        demand, served, plan.matchings, ticks, np.argsort(ticks, kind="stable"), shortest, True
    )
    return Plan(plan.matchings, ticks).take(ticks > 0)


def lengthen(plan: Plan, demand: NDArray[np.int64]) -> Plan:
    """Let slots last until each entry is served whose circuit a slot has: its longest slot."""
    ticks = plan.ticks.copy()
    for source, destination in np.argwhere(demand > serve(plan)):
        # What slots before have been lengthened by counts, too.
        has_circuit = plan.matchings[:, source] == destination
        missing = demand[source, destination] - ticks[has_circuit].sum()
        if missing > 0 and has_circuit.any():
            longest_slot = np.where(has_circuit, ticks, -1).argmax()
            ticks[longest_slot] += missing
    return Plan(plan.matchings, ticks)


def best_length(needed: NDArray[np.int64], delay: int, shortest: int) -> int:
    """Choose how long to hold a slot: as long as serves most for its time, in ticks.

    ``needed[circuit]`` > 0 are the ticks that its circuits lack. The rate of a length is what is
    served, and a delay for each circuit that is complete then, divided by the length and a delay.
    If circuits lack 3 and 9 ticks, and the delay is 2, a length of 3 has the rate (3 + 3 + 2) / 5
    = 1.6, and 9 has (3 + 9 + 4) / 11 = 1.45.
    """
    lengths = np.unique(np.maximum(needed, shortest))

    # One row for each length, one column for each circuit.
    served = np.minimum(needed, lengths[:, None]).sum(axis=1)
    n_complete = (needed <= lengths[:, None]).sum(axis=1)
    rate = (served + delay * n_complete) / (lengths + delay)
    return int(lengths[rate.argmax()])


def read_plan(
    outcome: Outcome,
    uses: Sequence[Mapping[tuple[int, int], Any]],
    ticks: Sequence[Any],
    n_ports: int,
) -> Plan:
    """Read the slots of a solution of CP-SAT: their circuits, and how long each is held.

    ``uses[slot]`` has the literal of each circuit, by source and destination, and ``ticks[slot]``
    is the variable of the duration.
    """
    matchings = np.full((len(uses), n_ports), IDLE, dtype=np.int32)
    for matching, circuits in zip(matchings, uses, strict=True):
        for (source, destination), circuit in circuits.items():
            if outcome.holds(circuit):
                matching[source] = destination
    return Plan(matchings, np.array([outcome.value(length) for length in ticks], dtype=np.int64))


def join(first: Plan, second: Plan) -> Plan:
    """Put the slots of two plans one after the other."""
    return Plan(
        np.concatenate([first.matchings, second.matchings]),
        np.concatenate([first.ticks, second.ticks]),
    )


def tidy(plan: Plan) -> Plan:
    """Put slots with the same matching together, the longest slots first.

    The result depends on what is in the plan alone, not on the order of its slots; slots of equal
    length are sorted by their matchings.
    """
    if not len(plan.ticks):
        return plan
    # Each matching as bytes that sort as its numbers do: the highest byte first, from 0 on.
    rows = (plan.matchings + 1).astype(">u4", order="C")
    contents = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first_slot, matching = np.unique(contents, return_index=True, return_inverse=True)
    ticks = np.zeros(len(first_slot), dtype=np.int64)
    np.add.at(ticks, matching, plan.ticks)
    order = np.argsort(-ticks, kind="stable")
    return Plan(plan.matchings[first_slot], ticks).take(order)


def only_demanded(plan: Plan, demand: NDArray[np.int64], shortest: int = 1) -> Plan:
    """Take out circuits without demand, drop empty slots, lengthen slots that are too short."""
    n = plan.matchings.shape[1]

    # The place of each circuit in the flat demand: source * n + destination.
    places = plan.matchings + np.arange(n) * n  # of idle ports any place
    is_demanded = demand.ravel().take(places, mode="clip") > 0
    is_demanded &= plan.matchings != IDLE
    matchings = np.where(is_demanded, plan.matchings, np.int32(IDLE))
    is_used = is_demanded.any(axis=1) & (plan.ticks > 0)
    return Plan(matchings[is_used], np.maximum(plan.ticks[is_used], shortest))


def join_idle_ports(plan: Plan) -> Plan:
    """Join the sources and the destinations that each slot leaves idle, both in their order.

    Slots keep their lengths here. Their new circuits may serve what other slots would have to, so
    that `trim` can shorten those; slots may also become the same permutation, which saves a delay.
    """
    slot, source = np.nonzero(plan.matchings != IDLE)
    is_idle_destination = np.ones(plan.matchings.shape, dtype=np.bool_)
    is_idle_destination[slot, plan.matchings[slot, source]] = False

    # A slot has as many idle sources as idle destinations, and both are listed slot by slot.
    permutations = plan.matchings.copy()
    permutations[permutations == IDLE] = np.nonzero(is_idle_destination)[1]
    return Plan(permutations, plan.ticks)


def finish_plan(plan: Plan, demand: NDArray[np.int64], shortest: int = 1) -> Plan:
    """Make a plan as short as its matchings allow, on a switch that holds every matching.

    Ports that are idle are joined, equal slots are put together, slots are shortened, and circuits
    that no demand needs are taken out.
    """
    merged = tidy(join_idle_ports(plan))
    return only_demanded(trim(merged, demand, shortest), demand, shortest)
