"""Shifts of all-to-alls on rails: everybody is met, and lanes that are left over stay."""

from hypothesis import given, strategies as st

from optmatch.solvers.rails.collectives import face_shifts

sizes, lanes = st.integers(2, 12), st.integers(1, 6)


@given(sizes, lanes)
def test_shifts_are_an_all_to_all(n: int, number: int) -> None:
    """Every ordered pair meets, in the fewest rounds that the lanes allow."""
    facing = face_shifts(n, number)
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
