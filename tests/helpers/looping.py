"""Looping in plain Python: slow, and so clear that it can be an oracle."""

from collections.abc import Sequence


def loop_in_python(matching: Sequence[int]) -> list[int]:
    """Route a matching on a Benes network; return the state of each cell, -1 where it is dark.

    ``matching[source] = destination``, -1 where idle. The first line of each loop goes straight
    through its first cell.

    Examples
    --------
    >>> loop_in_python([1, 2, 0]), loop_in_python([-1, 0, -1])
    ([0, 1, 1], [0, 0, 1])
    """
    n, half = len(matching), len(matching) // 2
    source = {o: i for i, o in enumerate(matching) if o >= 0}
    if n == 1:
        return []
    if n == 2:
        return [next((i ^ o for o, i in source.items()), -1)]
    side: dict[int, int] = {}  # of an input: 0 for the upper half, 1 for the lower

    def follow(i: int, s: int) -> None:
        while i < n and matching[i] >= 0 and i not in side:
            side[i] = s
            if matching[i] ^ 1 not in source:
                return
            i = source[matching[i] ^ 1]
            side[i] = 1 - s
            i ^= 1

    if n % 2:  # odd wires lead to the lower half
        follow(n - 1, 1)
        if n - 1 in source:
            follow(source[n - 1], 1)
            follow(source[n - 1] ^ 1, 0)
    for i in range(n):
        if i not in side:
            follow(i, i % 2)
            follow(i ^ 1, 1 - i % 2)
    first, last = [-1] * half, [-1] * half
    halves = [-1] * half, [-1] * (n - half)
    for i, s in side.items():
        o = matching[i]
        halves[s][i // 2] = o // 2
        if i // 2 < half:
            first[i // 2] = i % 2 ^ s
        if o // 2 < half:
            last[o // 2] = o % 2 ^ s
    return first + loop_in_python(halves[0]) + loop_in_python(halves[1]) + last
