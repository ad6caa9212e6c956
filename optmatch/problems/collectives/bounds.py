"""Lower bounds of collectives: bytes, reach, distances, late ranks, and steps over planes.

With K configurations in a row, of which the first is held for r_1 rounds and so on, a rank reaches
at most the product of what it reaches within each: 1 + r_c over one circuit, as rounds forward.
Thus this product (*reach*) bounds the rounds. At most so many ranks are at each number of hops
(*distance*), and every hop takes bytes of a circuit. Neither depends on how data are split. Data
that a rank hands on take as much of what it receives as of what it sends; so of two ranks, of
which one mainly sends and the other mainly receives, neither can use all its circuits.
"""

from __future__ import annotations

import math
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.collectives.fields import CollectiveFields
from optmatch.problems.collectives.sum_sends import least_sum_sends, reach

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
MOST_MORE = 32
"""Rounds beyond the fewest for which detours are counted."""
MOST_PARTS = 1e9
"""If the best plan has more parts of rounds, its start-ups are nothing beside its bytes."""
_ROUNDS_TOGETHER = 64
"""Numbers of rounds are looked at together if they differ by less than one in so many: the bound
is lower by 1.5 % at most, and between 1,024 ranks it takes 50 ms instead of 1 s."""
_ROUNDING = 1e-12
"""Numbers of bytes that differ by no more are equal."""


class BoundTerms(NamedTuple):
    """A lower bound and the kind of count behind it."""

    seconds: float
    """The bound: no plan takes less, in seconds."""
    name: str
    """The kind of count: bytes, reach, distance, late, steps or cut."""
    configurations: int = 0
    """The number of configurations with which the bound is reached, if any."""


@lru_cache(maxsize=4096)
def fewest_rounds(n_ranks: int, configurations: int, lanes: int = 1, two_way: bool = False) -> int:
    """Bound the rounds in which each of n ranks can know of each, with K configurations in a row.

    Example of 8 ranks with one one-way lane (port) each: one configuration, a ring, reaches 1 + r
    ranks in r rounds, so it takes 7; two of them reach (1 + 2) (1 + 2) = 9 ranks in 4 rounds.

    Returns the smallest sum of r_1 .. r_K, each at least 1, whose reach has a product of n or
    more; -1 if there is none.
    """
    # A single two-way circuit reaches one other rank, however long it is held.
    if lanes == 1 and two_way and reach(1, lanes, two_way) ** configurations < n_ranks:
        return -1
    for n_rounds in count(configurations):
        # Reach is log-concave in the rounds: the product is largest where all parts are equal.
        rounds_each, n_longer = divmod(n_rounds, configurations)
        product = reach(rounds_each, lanes, two_way) ** (configurations - n_longer)
        product *= reach(rounds_each + 1, lanes, two_way) ** n_longer
        if product >= n_ranks:
            return n_rounds
    raise AssertionError


def ranks_at_hops(
    n_ranks: int,
    configurations: int,
    lanes: int = 1,
    two_way: bool = False,
    rounds: int | None = None,
) -> FloatArray:
    """Count the ranks at 0, 1, 2, ... hops at best, for circuits that are set up K times.

    A *configuration* is a set of circuits that is held for some rounds; each rank has as many of
    them as it has `lanes`, ports that serve both directions if they are `two_way`. There are K
    `configurations`, with any number of rounds, or with so many `rounds` together. The counts have
    the rank itself; they add up to n, or to less if so few rounds do not reach all. No plan has
    more ranks within any number of hops.

    Example: 8 ranks with one lane. One configuration is a ring: eight times 1. Two of them have 1,
    2, 3, 2: two ranks at one hop, three at two hops, two at three. Three of them in 3 rounds have
    1, 3, 3, 1.
    """
    most_rounds = n_ranks * configurations if rounds is None else rounds
    n_at_hop = _multiply_ranks(n_ranks, configurations, most_rounds, lanes, two_way)
    return np.diff(np.minimum(n_at_hop.cumsum(), n_ranks), prepend=0.0)


@lru_cache(maxsize=1 << 14)
def _multiply_ranks(
    n_ranks: int, configurations: int, rounds: int, lanes: int, two_way: bool
) -> FloatArray:
    """Bound the ranks at 0, 1, 2, ... hops over K configurations from above, up to n or more.

    Those over one configuration are known; counts are coefficients of polynomials, whose product
    has those for several of them together. It is largest if all are held for equally many rounds.
    Ranks that are farther than the n nearest are not among them.
    """
    if configurations == 1:
        onward = lanes - 1 if two_way else lanes
        if not onward:  # a single two-way circuit leads no farther
            rounds = min(rounds, 1)
        n_within = [lanes * min(onward**hop, n_ranks) for hop in range(min(rounds, n_ranks))]
        product = np.array([1, *n_within], dtype=np.float64)
    else:
        # The product of two halves: 7 rounds of 3 configurations are 3 of one and 4 of two.
        rounds_each, n_longer = divmod(rounds, configurations)
        half = configurations // 2
        other_half = configurations - half
        rounds_of_half = rounds_each * half + min(n_longer, half)
        rounds_of_other = rounds - rounds_of_half
        first = _multiply_ranks(n_ranks, half, rounds_of_half, lanes, two_way)
        second = _multiply_ranks(n_ranks, other_half, rounds_of_other, lanes, two_way)
        product = np.minimum(np.convolve(first, second), n_ranks)
    return product[: int((product.cumsum() < n_ranks).sum()) + 1]


def add_up_hops(n_at_hop: FloatArray) -> float:
    """Return the hops from a rank to all others together: 1, 2, 3 and 2 ranks have 2 + 6 + 6."""
    return float(n_at_hop @ np.arange(len(n_at_hop)))


def hops_within(
    n_ranks: int, configurations: int, rounds: int, lanes: int = 1, two_way: bool = False
) -> IntArray:
    """Bound the hops to all other ranks, if circuits are set up K times and rounds are limited.

    K are the `configurations`, `rounds` those of all of them together, and `lanes` the ports of
    each of the n ranks. The result has the hops to each other rank, from the nearest one on; it is
    shorter than n - 1 if some cannot be reached. With 8 ranks, K = 3 and 3 rounds it is 1, 1, 1,
    2, 2, 2, 3.
    """
    n_at_hop = ranks_at_hops(n_ranks, configurations, lanes, two_way, rounds)
    return np.repeat(np.arange(len(n_at_hop)), n_at_hop.astype(np.int64))[1:]


def bound_terms(problem: CollectiveFields) -> BoundTerms:
    """Return the best lower bound of the time of a collective without islands."""
    if problem.steps is not None:
        return BoundTerms(_bound_steps(problem, problem.steps), "steps")
    bound = _bound_without_waiting(problem)
    return max(bound, _bound_late(problem)) if problem.late.any() else bound


class _Traffic(NamedTuple):
    """The data that the busiest rank of a collective has to send or to receive, at least."""

    least_bytes: float
    """The bytes, over however many hops."""
    n_known: int
    """The ranks that some rank has to know of or to reach, itself too."""
    largest_bytes: FloatArray
    """``largest_bytes[way, k]``: of an all-to-all the k largest blocks together that a rank sends
    (way 0) or receives (way 1), on average over ranks; of others 0. There are n of them, of which
    the first one is 0."""
    idle_bytes: float
    """What ports of an uneven all-to-all cannot carry, on average over ranks: data that are handed
    on enter and leave a rank, and one that sends more than it gets has a port idle."""
    tells_all: bool
    """Whether each rank needs something of every other one."""

    def bytes_over(self, n_at_hop: FloatArray) -> float:
        """Return the bytes that cross a circuit, counted at each hop, for each rank on average.

        The largest blocks go to the nearest ranks, of which ``n_at_hop[hop]`` are so far away.
        """
        n_within = n_at_hop.cumsum().astype(np.int64) - 1  # without the rank itself
        carried = np.diff(self.largest_bytes[:, n_within]) @ np.arange(1, len(n_at_hop))
        return float(carried.max()) + self.idle_bytes


def _measure_traffic(problem: CollectiveFields) -> _Traffic:
    """Measure what the ranks of a collective have to send or to receive, whatever the plan.

    A *block* is what one rank sends to one other rank in an all-to-all, in bytes. Blocks may have
    different sizes; all other operations have no blocks.
    """
    # In a gather each rank receives a block from each other rank, and in a scatter it sends one to
    # each. An all-reduce counts as two gathers (`n_gathers`): to add up a byte of n ranks and tell
    # the sum to all takes 2 (n - 1) messages, as gossip does.
    n_others = problem.n_ranks - 1
    least_bytes = problem.n_gathers * n_others * problem.block_bytes
    if problem.flow.from_root and n_others:
        least_bytes = problem.size_bytes
    n_known = problem.n_ranks
    sorted_bytes = np.zeros((2, n_others))
    idle_bytes = 0.0
    tells_all = not problem.flow.from_root
    demand = problem.demand_bytes
    if demand is None and problem.flow.has_pairs:
        # All blocks are equal.
        sorted_bytes[:] = problem.block_bytes
        tells_all = problem.size_bytes > 0
    elif demand is not None:
        # The size is the busiest row or column already. Sorted rows ascend. Read backwards without
        # their first entry they descend, and one block of 0 bytes is left out: that of a rank for
        # itself. Rows 3 0 5 become 5 3.
        least_bytes = problem.size_bytes
        is_wanted = demand > 0
        n_known = 1 + max(int(is_wanted.sum(axis=axis).max()) for axis in (0, 1))
        tells_all = bool((is_wanted.sum(axis=1) == n_others).all())
        sorted_bytes = np.array(
            [np.sort(blocks, axis=1)[:, :0:-1].mean(axis=0) for blocks in (demand, demand.T)]
        )

        # A rank is busy for the larger one of the bytes that it sends and that it receives. The
        # larger one of two numbers is their mean plus half of their difference.
        surplus_bytes = demand.sum(axis=1) - demand.sum(axis=0)
        idle_bytes = float(np.abs(surplus_bytes).mean()) / 2
    largest_bytes = np.cumsum(np.pad(sorted_bytes, ((0, 0), (1, 0))), axis=1)
    return _Traffic(least_bytes, n_known, largest_bytes, idle_bytes, tells_all)


def _bound_without_waiting(problem: CollectiveFields) -> BoundTerms:
    """Bound the time of a collective as if no rank were late.

    A *configuration* is a set of circuits that is held for some rounds; between two of them there
    is a delay. How many of them the best plan has is not known: each number of configurations in a
    row has a bound of its own, and the least of them holds for all plans.
    """
    n_ranks = problem.n_ranks
    traffic = _measure_traffic(problem)
    if not traffic.least_bytes or traffic.n_known < 2:
        return BoundTerms(0.0, "bytes")

    def estimate_s(fewest: int, most: int) -> float:
        """Bound the time for any of these numbers of configurations, by `fewest` and by `most`."""
        fixed_s = problem.first_delay_s + (fewest - 1) * problem.delay_s
        fixed_s += fewest * problem.start_up_s
        n_at_hop = ranks_at_hops(n_ranks, most, problem.lanes, problem.two_way)
        hop_bytes = traffic.bytes_over(n_at_hop)
        return fixed_s + problem.sending_s(max(traffic.least_bytes, hop_bytes))

    # More configurations change more often, and data go over fewer hops. Branch and bound: of the
    # ranges of numbers that are left, the one with the least estimate is bounded in its middle and
    # cut in two there, until no range can have a lower bound. `waiting` is a heap of estimate,
    # fewest and most: the least estimate is in front. Of 1 to 7 the number 4 is bounded first.
    best = BoundTerms(math.inf, "bytes")
    waiting = [(estimate_s(1, n_ranks), 1, n_ranks)]
    while waiting and waiting[0][0] < best.seconds:
        _, fewest, most = heappop(waiting)
        middle = (fewest + most) // 2
        best = min([best, *_bound_configurations(problem, traffic, middle, best.seconds)])
        for low, high in ((fewest, middle - 1), (middle + 1, most)):
            if low <= high:
                heappush(waiting, (estimate_s(low, high), low, high))

    if problem.planes > 1:
        # Planes that change while others send hide all delays but the first one.
        n_rounds = _doublings(traffic.n_known, problem.lanes)
        rounds_s = problem.round_s * n_rounds
        seconds = problem.first_delay_s + rounds_s + problem.sending_s(traffic.least_bytes)
        best = min(best, BoundTerms(seconds, "reach" if problem.start_up_s > 0 else "bytes"))
    return best


def _bound_configurations(
    problem: CollectiveFields,
    traffic: _Traffic,
    configurations: int,
    best_s: float,
) -> list[BoundTerms]:
    """Bound the time of a collective whose circuits are set up a given number of times.

    `best_s` is the least bound for other numbers of configurations, infinite if there is none.
    Returns the bounds of some numbers of rounds; none if so few configurations do not reach all
    ranks. A *configuration* is a set of circuits that is held for some rounds. The time of a plan
    has three parts:

    - delays, in which circuits change between two configurations;
    - start-ups, one for each round;
    - the time of bytes. A block of data that goes over 3 circuits counts three times.

    With more rounds there are more start-ups, but data can wait for shorter ways, and circuits
    carry fewer bytes. Hence the function bounds each number of rounds by itself, from the fewest
    on. The least of these bounds holds for all plans.
    """
    # Too few configurations have no plan. A single one has a bound of its own in a broadcast,
    # whose bytes follow each other, and in an all-reduce, whose bytes wait to be added up.
    rounds = _count_rounds(problem, traffic, configurations)
    n_at_hop = ranks_at_hops(problem.n_ranks, configurations, problem.lanes, problem.two_way)
    if rounds < 0 or n_at_hop.sum() < traffic.n_known:
        return []
    if problem.flow.from_root and configurations == 1 and problem.hop_s is None:
        return [_bound_pipeline(problem, rounds)]
    if problem.flow.sums_for_all and configurations == 1 and problem.hop_s is None:
        return [_bound_static_sums(problem, rounds)]

    # A plan takes this time beside that of its bytes: `fixed_s`, and `round_s` for each round. If
    # the problem states the time of a hop, a round takes only this time, and each configuration a
    # start-up.
    fixed_s = (configurations - 1) * problem.delay_s
    round_s = problem.start_up_s
    if problem.hop_s is not None:
        round_s = problem.hop_s
        fixed_s += problem.start_up_s * configurations

    # Even with any number of rounds, blocks go over the fewest hops at least. The name of the
    # bound says what raises it above the bytes of the busiest rank.
    least_bytes = max(traffic.least_bytes, traffic.bytes_over(n_at_hop))
    name = "bytes"
    if least_bytes > traffic.least_bytes * (1 + _ROUNDING):
        name = "distance"
    elif fixed_s + round_s * rounds > 0:
        name = "reach"

    # One number of rounds after the other, until no larger one has a lower bound (`is_last`): all
    # data go the shortest ways, or start-ups and the least bytes alone take as long as the best
    # bound. The largest number that is tried, `last_rounds`, counts the least bytes alone, which
    # is a bound for all larger ones as well. Without detours the first number decides.
    found: list[BoundTerms] = []
    has_detours = bool(traffic.largest_bytes.any()) and round_s > 0
    last_rounds = rounds + MOST_MORE
    for n_rounds in range(rounds, last_rounds + 1):
        seconds = problem.first_delay_s + fixed_s + n_rounds * round_s
        seconds += problem.sending_s(least_bytes)
        is_last = not has_detours or seconds >= best_s
        if not is_last and n_rounds < last_rounds:
            # In so few rounds data cannot wait for the shortest way, and fewer ranks are near:
            # with 8 ranks, 3 configurations and 3 rounds 3 at one hop, 3 at two, and 1 at three.
            # Bytes beyond `least_bytes` take time, too.
            n_at_hop = ranks_at_hops(
                problem.n_ranks, configurations, problem.lanes, problem.two_way, n_rounds
            )
            carried_bytes = max(least_bytes, traffic.bytes_over(n_at_hop))
            seconds += problem.sending_s(carried_bytes - least_bytes)
            if carried_bytes > traffic.least_bytes * (1 + _ROUNDING):
                name = "distance"
            is_last = carried_bytes <= least_bytes * (1 + _ROUNDING)
        best_s = min(best_s, seconds)
        found.append(BoundTerms(seconds, name, configurations))
        if is_last:
            break
    return found


def _count_rounds(problem: CollectiveFields, traffic: _Traffic, configurations: int) -> int:
    """Bound the rounds in which all ranks know what they need, with K sets of circuits in a row.

    Returns a lower bound; -1 if so few configurations cannot do.
    """
    rounds = fewest_rounds(traffic.n_known, configurations, problem.lanes, problem.two_way)
    if rounds < 0 or not traffic.tells_all:
        return rounds
    # Pairs of an odd number of ranks leave one over (gossip).
    n_ranks = problem.n_ranks
    is_paired = problem.lanes == 1 and problem.two_way and n_ranks % 2 == 1
    if is_paired and 2 ** (configurations - 1) < n_ranks:
        return -1
    # Where counting allows a single graph that does not exist, it takes one round more.
    if configurations == 1:
        rounds += is_no_graph(n_ranks, problem.lanes, diameter=rounds, two_way=problem.two_way)
    return rounds


def is_no_graph(n_ranks: int, degree: int, diameter: int, two_way: bool) -> bool:
    """Tell whether it is known that no graph of n ranks has such a degree and diameter.

    A graph with as many ranks as counting allows (`reach`) is a Moore graph. Beside rings and
    complete graphs there are none of directed circuits, and of two-way ones those of diameter 2
    with degree 3, 7 and perhaps 57 alone. Two-way graphs with one rank less are rings alone.
    """
    if diameter < 2 or degree < 2 or (two_way and degree == 2):
        return False
    most_ranks = reach(diameter, degree, two_way)
    if not two_way:
        return n_ranks == most_ranks
    if n_ranks == most_ranks:
        return not (diameter == 2 and degree in (3, 7, 57))
    return n_ranks == most_ranks - 1


def _bound_static_sums(problem: CollectiveFields, fewest: int) -> BoundTerms:
    """Bound the time of an all-reduce over circuits that never change.

    With few rounds a byte has to be sent more often, as it cannot wait to be added up. Each number
    of rounds therefore has a bound of its own: its start-ups, and its fewest sends of a byte
    (`least_sum_sends`), which all circuits share. The least of them holds for all plans. `fewest`
    is the least number of rounds in which all ranks can be reached.
    """
    n_ranks = problem.n_ranks
    send_s = problem.sending_s(problem.size_bytes) / n_ranks
    gossip_sends = 2.0 * (n_ranks - 1)
    best = BoundTerms(math.inf, "reach", 1)
    n_rounds = fewest
    while n_rounds * problem.start_up_s + gossip_sends * send_s < best.seconds:
        # Numbers of rounds that differ by little are looked at together: the start-ups of the
        # least of them and the sends of the largest one.
        most_rounds = n_rounds + n_rounds // _ROUNDS_TOGETHER
        n_sends = least_sum_sends(n_ranks, most_rounds, problem.lanes, problem.two_way)
        seconds = n_rounds * problem.start_up_s + n_sends * send_s
        name = "reach" if n_rounds * problem.start_up_s > 0 else "bytes"
        if n_sends > gossip_sends:
            name = "distance"
        best = min(best, BoundTerms(seconds, name, 1))
        n_rounds = most_rounds + 1
    return best._replace(seconds=problem.first_delay_s + best.seconds)


def _bound_pipeline(problem: CollectiveFields, distance: int) -> BoundTerms:
    """Bound the time of a broadcast over circuits that never change.

    The data leave one rank, the root. Some rank is `distance` circuits (hops) away from it, or
    more. If there are more rounds than hops, a byte may wait on its way. With R rounds it makes
    hop j in one of the m rounds from j on, where m = R - distance + 1 is called the *window*: with
    3 hops and 5 rounds hop 1 is in round 1, 2 or 3. For each window two bounds hold, and the
    larger one counts. The least over all windows holds for all plans.

    - Hop by hop: all bytes make hop j in the m rounds from j on. Together these rounds last as
      long as the circuits that lead there take for all bytes (`_bound_by_cuts`).
    - From the root to the farthest rank: let g be distance - 1. Bytes that leave the root in g
      rounds in a row are not at the far rank when the last of these rounds ends. The rounds until
      then last as long as the root takes for what it has sent; the rounds after it last as long as
      the far rank takes for all that it lacks. Together these are all bytes once, and those of the
      g rounds twice. As bytes leave the root in m rounds, some g rounds in a row have the part
      1 / ceil(m / g) of them or more.
    """
    # `whole_s` is how long one rank sends the whole buffer over all its ports, and `gap` is g.
    whole_s = problem.sending_s(problem.size_bytes)
    gap = distance - 1
    least_s = math.inf
    for window in range(1, distance + 1):
        # The larger one of the two bounds. With window 1 there are as many rounds as hops, for
        # which a third bound holds.
        sending_s = _bound_by_cuts(problem, distance, window)
        if window == 1:
            sending_s = max(sending_s, _bound_in_fewest_rounds(problem, distance))
        if gap:
            sending_s = max(sending_s, whole_s * (1 + 1 / math.ceil(window / gap)))
        rounds_s = (gap + window) * problem.start_up_s
        least_s = min(least_s, rounds_s + sending_s)
        if rounds_s >= least_s:
            break

    # Windows longer than the distance: the second bound alone counts. With c = ceil(m / g) it is
    # alpha (c g + 1) + whole (1 + 1 / c), a convex function of c, which is least near
    # sqrt(whole / (alpha g)). The whole numbers on both sides of it are tried.
    if gap:
        least_parts = distance // gap + 1
        best_parts = math.inf
        if problem.start_up_s > 0:
            best_parts = math.sqrt(whole_s / problem.start_up_s / gap)
        if best_parts < MOST_PARTS:
            for parts in (math.floor(best_parts), math.floor(best_parts) + 1):
                n_parts = max(parts, least_parts)
                rounds_s = (gap * n_parts + 1) * problem.start_up_s
                least_s = min(least_s, rounds_s + whole_s * (1 + 1 / n_parts))
        else:
            least_s = min(least_s, whole_s)
    else:
        least_s = min(least_s, problem.start_up_s + whole_s)
    name = "cut" if whole_s > 0 else "reach"
    return BoundTerms(problem.first_delay_s + least_s, name, 1)


def _bound_by_cuts(problem: CollectiveFields, distance: int, window: int) -> float:
    """Bound the time in which circuits carry the bytes of a broadcast, by cuts one after another.

    All bytes have to pass each cut, the circuits at one hop. Near the root, and near the farthest
    rank, cuts have few circuits: 1, then `onward`, then its square for each port of the root,
    where `onward` circuits lead on from a rank. The farthest rank is `distance` hops from the
    root, or more. Returns seconds.

    Each byte makes hop j in one of the `window` rounds from j on. Hops that are a window or more
    apart are made in different rounds, so that the times of their cuts add up: with a window of 3
    and 8 hops, hops 1 and 4 from the root, and hop 8 from the other end.
    """
    lanes = problem.lanes
    onward = lanes - 1 if problem.two_way else lanes
    whole_s = problem.sending_s(problem.size_bytes)

    # Cuts near the root or near the rank are narrow; one at hop j has the circuits of a tree.
    cuts_s = 0.0
    first = 1
    last = distance
    while first <= last:
        cuts_s += whole_s / onward ** (first - 1)
        if first + window <= last:
            cuts_s += whole_s / onward ** (distance - last)
        first += window
        last -= window
    return cuts_s


def _bound_in_fewest_rounds(problem: CollectiveFields, distance: int) -> float:
    """Bound the time of a broadcast that has as many rounds as the farthest rank is hops away.

    The farthest rank is `distance` hops from the root, so every byte makes hop j in round j. A
    round lasts as long as its busiest circuit; two bounds hold for that, in seconds:

    - the whole buffer crosses each hop, shared by the circuits of a tree at best;
    - some far rank gets the buffer over few circuits in the last round, the ranks at which these
      begin got it over few in the round before, and so on. A second circuit to a rank leaves out
      another rank, and all that would be reached from it, and there are few ranks to spare.

    Example: 6 ranks with two one-way lanes. A tree reaches 1 + 2 + 4 = 7 ranks in two hops, so one
    rank may be left out. Three ranks are two hops away, over four circuits, so one of them hears
    over one circuit. The rank before it hears over one circuit, too: a second one would leave out
    three ranks. Hence both rounds last as long as one circuit sends the buffer.
    """
    lanes = problem.lanes
    onward = lanes - 1 if problem.two_way else lanes
    n_ranks = problem.n_ranks
    # At least `n_far` ranks are at the last hop, and a tree would reach `n_spare` ranks more than
    # there are.
    n_far = n_ranks - reach(distance - 1, lanes, problem.two_way)
    n_spare = reach(distance, lanes, problem.two_way) - n_ranks
    buffer_s = problem.size_bytes / problem.rate_bytes_per_s  # over one circuit

    # From the last hop back to the first one. `n_circuits` is over how many circuits of the hop a
    # far rank gets the buffer, at most; at the last hop an even part of all circuits that lead so
    # far. `n_left_out` are the ranks that a second circuit to a rank at this hop leaves out.
    n_circuits = min(lanes, lanes * onward ** (distance - 1) // n_far)
    total_s = 0.0
    n_left_out = 1
    for hop in range(distance, 0, -1):
        if hop < distance:
            n_left_out = 1 + onward * n_left_out
            n_circuits *= min(lanes, 1 + n_spare // n_left_out)
        n_circuits_of_tree = lanes * onward ** (hop - 1)
        total_s += max(buffer_s / n_circuits, buffer_s / n_circuits_of_tree)
    return float(total_s)


def _bound_late(problem: CollectiveFields) -> BoundTerms:
    """Bound the time by the bytes that the last late rank still has to send or to receive.

    Nothing of this rank moves before it is ready. From then on it takes the start-ups of the
    rounds in which it reaches all ranks that want its data, and its bytes over all its lanes. What
    it receives may wait at one of its neighbours by then, and needs no more than one round.
    """
    late_s = problem.late
    n_ranks = problem.n_ranks

    # The bytes that the rank which is ready last has to send, or to receive, and how many others
    # want its data: all but in broadcasts and uneven all-to-alls.
    last_rank = int(late_s.argmax())
    n_partners = n_ranks - 1
    if problem.demand_bytes is not None:
        sent = problem.demand_bytes[last_rank]
        received = problem.demand_bytes[:, last_rank]
        own_bytes = max(float(sent.sum()), float(received.sum()))
        n_partners = max(int((sent > 0).sum()), 1)
    elif problem.flow.sums_for_all or problem.flow.from_root:
        own_bytes = problem.size_bytes
        if problem.flow.from_root and last_rank != problem.root:
            n_partners = 1
    else:
        own_bytes = problem.block_bytes * (n_ranks - 1)
    if not own_bytes:
        return BoundTerms(0.0, "late")

    # The rounds in which data of the rank can reach all its partners: 3 of 8 ranks with a port
    # each. If sends can be forwarded within a round, one round is enough.
    if problem.hop_s is None:
        rounds_s = problem.start_up_s * _doublings(n_partners + 1, problem.lanes)
    else:
        rounds_s = problem.round_s
    return BoundTerms(float(late_s[last_rank]) + rounds_s + problem.sending_s(own_bytes), "late")


def _bound_steps(problem: CollectiveFields, steps: FloatArray) -> float:
    """Bound the time of a list of steps over several planes, in seconds.

    A *plane* is a switch that changes its circuits by itself. A step needs certain circuits, and
    sends bytes over one or more planes. Two bounds hold, and the larger one is returned:

    - steps follow each other; each is at best shared evenly by all planes;
    - all planes together have some work: bytes, a start-up for each step, and a delay for each
      set-up of circuits that are not there. It is at best divided evenly among them. Of one plane
      this is the time itself.

    Returns seconds; 0 if there are no steps. Rows of `steps` are a configuration and bytes.
    """
    step_bytes = steps[:, 1]
    if not len(step_bytes):
        return 0.0
    n_planes = problem.planes
    rate_bytes_per_s = problem.ports * problem.rate_bytes_per_s

    # Steps follow each other, at best over all planes at once.
    shared_s = problem.round_s + step_bytes / (n_planes * rate_bytes_per_s)
    chain_s = float(shared_s.sum()) + problem.first_delay_s

    # At first the circuits of one configuration may be there on each plane. Example: two dark
    # planes, a delay of 1 s, and two steps of 4 s with different circuits. One after another they
    # take 1 + 4 / 2 + 4 / 2 = 5 s, and as work (4 + 4 + 2 * 1) / 2 = 5 s, too.
    n_free = 0 if problem.start == "dark" else n_planes
    n_changes = max(0, _count_set_ups(steps[:, 0].tolist(), n_planes) - n_free)
    step_s = problem.round_s + step_bytes / rate_bytes_per_s
    work_s = float(step_s.sum() + problem.delay_s * n_changes)
    return float(max(chain_s, work_s / n_planes))


def _count_set_ups(configurations: list[float], n_planes: int) -> int:
    """Count how often circuits are set up at least, the first ones included.

    ``configurations[step]`` is the number of the circuits that a step needs on one of `n_planes`
    planes, each of which holds the circuits of one configuration. This is optimal paging: the
    circuits that are needed again last make room (Belady 1966). Example: the configurations 0, 1,
    2, 0, 1 take 5 set-ups of one plane, 4 of two, and 3 of three planes.
    """
    # In which step the configuration of each step is needed again; behind the last one if never.
    n_steps = len(configurations)
    next_use = [n_steps] * n_steps
    needed_in: dict[float, int] = {}
    for step in reversed(range(n_steps)):
        next_use[step] = needed_in.get(configurations[step], n_steps)
        needed_in[configurations[step]] = step

    # ``held[configuration]``: when the circuits that are there are needed again.
    held: dict[float, int] = {}
    n_set_ups = 0
    for step, configuration in enumerate(configurations):
        if configuration not in held:
            n_set_ups += 1
            if len(held) == n_planes:
                del held[max(held, key=held.__getitem__)]
        held[configuration] = next_use[step]
    return n_set_ups


def _doublings(n_known: int, lanes: int) -> int:
    """Count the rounds in which n ranks can be reached if circuits change as they have to.

    In each round a rank that knows something tells one other over each of its lanes (ports), and
    thus the ranks that know it become ``lanes + 1`` times as many. With 2 lanes 9 ranks are
    reached in 2 rounds.
    """
    return next(n_rounds for n_rounds in count() if (lanes + 1) ** n_rounds >= n_known)


def fewest_late_rounds(n_ranks: int) -> int:
    """Bound the rounds of an all-reduce after its one late rank is ready, from below.

    Counts what the late rank has to send and to receive: n - 1 chunks each way, and for all ranks
    together n (n - 1) receipts of data that contain its own. With 8 ranks that is 9 rounds, n +
    log2 n - 2.
    """
    if n_ranks < 2:
        return 0
    n_doublings = (n_ranks - 1).bit_length()
    n_rounds = n_ranks + n_doublings - 2

    # The first log2 n rounds are called doublings: in round r of them at most 2^(r - 1) ranks have
    # data of the late one to send, and the late rank receives as well. If n is odd, one rank has
    # no partner in each round, and n - 1 receive at most. The other n - 2 rounds then bring n - 1
    # receipts each. Of the n (n - 1) that are wanted, the doublings have to bring 2 (n - 1); if
    # they bring fewer, one round more is needed. With 7 ranks they bring 2 + 3 + 5 = 10 of 12, and
    # there is a round more; with 5 ranks they bring 2 + 3 + 4 = 9, and 8 are enough.
    n_useful = sum(min(2**turn + 1, n_ranks - 1) for turn in range(n_doublings))
    if n_ranks % 2 and n_useful < 2 * (n_ranks - 1):
        n_rounds += 1
    return n_rounds
