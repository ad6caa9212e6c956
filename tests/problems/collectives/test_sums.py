"""The bound of all-reduces between islands, against the fastest gossip of whole buffers."""

from itertools import product

import pytest

from optmatch.problems.collectives.sums import bound_sums_s

ISLANDS, MEMBERS = 3, 2
RANKS = ISLANDS * MEMBERS
RAILS = ((1, 2, 0), (2, 0, 1), (1, 0, 2))
KINDS = ((True, False), (False, True), (True, True))


@pytest.fixture(scope="module")
def sequences() -> list[tuple[tuple[bool, bool], ...]]:
    """List sequences of rounds, over rails, inside islands, or both, after which all know of all.

    Ranks send all that they know; any circuits are there in each round.
    """
    known: dict[tuple[tuple[bool, bool], ...], set[tuple[int, ...]]]
    known = {(): {tuple(1 << rank for rank in range(RANKS))}}
    found: list[tuple[tuple[bool, bool], ...]] = []
    for _ in range(4):
        following: dict[tuple[tuple[bool, bool], ...], set[tuple[int, ...]]] = {}
        for before, kind in product(known, KINDS):
            over, told = kind
            reached = following.setdefault((*before, kind), set())
            several = product(RAILS if over else RAILS[:1], repeat=MEMBERS)
            for sets, circuits in product(known[before], several):
                now = list(sets)
                for rank in range(RANKS):
                    island, place = divmod(rank, MEMBERS)
                    if told:
                        now[island * MEMBERS + 1 - place] |= sets[rank]
                    if over:
                        now[circuits[place][island] * MEMBERS + place] |= sets[rank]
                reached.add(tuple(now))
        full = {kinds for kinds, sets in following.items() if any(min(s) == 63 for s in sets)}
        found += full
        known = {kinds: sets for kinds, sets in following.items() if kinds not in full}
    return found


@pytest.mark.parametrize(
    "costs", [(1.0, 2.0, 0.5, 9.0), (1.0, 1.0, 0.0, 1.0), (0.1, 4.0, 1.0, 1.0)]
)
@pytest.mark.parametrize("size_bytes", [0.01, 1.0, 100.0])
def test_no_gossip_is_faster(
    sequences: list[tuple[tuple[bool, bool], ...]],
    size_bytes: float,
    costs: tuple[float, float, float, float],
) -> None:
    alpha_s, rate, island_alpha_s, link_rate = costs
    over_s, inside_s = alpha_s + size_bytes / rate, island_alpha_s + size_bytes / link_rate
    assert len(sequences) > 10
    for kinds in sequences:
        lasts_s = sum(max(over_s * over, inside_s * told) for over, told in kinds)
        rounds = sum(over for over, _ in kinds)
        if rounds > 1:
            bound_s = bound_sums_s(ISLANDS, MEMBERS, size_bytes, costs, rounds)
            assert alpha_s * rounds < bound_s <= lasts_s
