"""Step lists of collectives: every lane of a round is a matching, and everybody is met."""

import numpy as np
from hypothesis import given, strategies as st

from optmatch.solvers.rails.collectives import (
    Facing,
    face_ring,
    face_shifts,
)

sizes, lanes = st.integers(2, 12), st.integers(1, 6)


def check_matchings(facing: Facing) -> None:
    """On each lane of each round, who is sent to receives from the same member."""
    _, _, _, n = facing.shape
    for there, back in facing.transpose(0, 2, 1, 3).reshape(-1, 2, n):
        assert sorted(there.tolist()) == list(range(n))
        assert (back[there] == np.arange(n)).all()


@given(sizes, lanes)
def test_each_lane_of_a_ring_goes_round_once(n: int, number: int) -> None:
    facing = face_ring(n, number)
    check_matchings(facing)
    for onward in facing[0, 0]:
        seen, at = [], 0
        for _ in range(n):
            seen.append(at)
            at = int(onward[at])
        assert at == 0
        assert sorted(seen) == list(range(n))


@given(sizes, lanes)
def test_shifts_are_an_all_to_all(n: int, number: int) -> None:
    """Every ordered pair meets, in the fewest rounds that the lanes allow."""
    facing = face_shifts(n, number)
    check_matchings(facing)
    assert len(facing) == -(-(n - 1) // number)
    met = {(k, int(to)) for row in facing[:, 0].reshape(-1, n) for k, to in enumerate(row)}
    assert met == {(a, b) for a in range(n) for b in range(n) if a != b}


def test_lanes_that_are_left_over_stay_as_they_are() -> None:
    for n, lanes in ((5, 3), (6, 2), (8, 5), (4, 4)):
        facing = face_shifts(n, lanes)
        free = len(facing) * lanes - (n - 1)
        assert 0 < free < lanes
        if len(facing) > 1:
            assert (facing[-1, :, -free:] == facing[-2, :, -free:]).all()
