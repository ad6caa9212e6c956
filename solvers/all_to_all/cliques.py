"""Cliques of a small graph: sets of vertices of which each two are neighbours.

A set of vertices is a whole number with a bit for each of them: {0, 2} is ``0b101``.
"""

from __future__ import annotations


def find_larger_clique(neighbours: list[int], known_size: int, most_nodes: int) -> tuple[int, int]:
    """Search for a clique that is larger than a known one, by branch and bound.

    After Tomita and Seki (2003): the candidates of a clique are coloured greedily, and a branch is
    cut off where the colours of its candidates are too few for a larger clique.
    ``neighbours[vertex]`` has a bit for each neighbour. Returns the size of the largest clique
    found, `known_size` if none is larger, and how many cliques were looked at.

    Examples
    --------
    A triangle with a tail:

    >>> find_larger_clique([0b0110, 0b0101, 0b1011, 0b0100], 1, 100)[0]
    3
    """
    best_size = known_size
    n_nodes = 0

    def extend(size: int, candidates: int) -> None:
        """Search all cliques that consist of the present one and of some candidates."""
        nonlocal best_size, n_nodes
        n_nodes += 1
        best_size = max(best_size, size)

        # The vertices of the highest colour come first. A clique has each colour at most once:
        # among a vertex of colour c and those before it in the list there are at most c vertices
        # of a clique. Once that is too few, it is too few for all that follow.
        for vertex, color in reversed(color_greedily(neighbours, candidates)):
            if size + color <= best_size or n_nodes >= most_nodes:
                return

            # First all cliques with this vertex, then those without it.
            extend(size + 1, candidates & neighbours[vertex])
            candidates &= ~(1 << vertex)

    extend(0, (1 << len(neighbours)) - 1)
    return best_size, n_nodes


def color_greedily(neighbours: list[int], vertices: int) -> list[tuple[int, int]]:
    """Colour some vertices such that neighbours differ, with the lowest colour for each.

    Returns (vertex, colour) by rising colours, from 1 on: a clique of vertices up to some place of
    the list has no more vertices than the colour at that place.
    """
    # Each turn gives one colour to as many vertices as it can: the lowest one, the lowest of those
    # that are not its neighbours, and so on. ``x & -x`` is the lowest bit of x.
    colored = list[tuple[int, int]]()
    color = 0
    while vertices:
        color += 1
        without_neighbour = vertices
        while without_neighbour:
            lowest_bit = without_neighbour & -without_neighbour
            vertex = lowest_bit.bit_length() - 1
            colored.append((vertex, color))
            vertices &= ~lowest_bit
            without_neighbour &= ~lowest_bit & ~neighbours[vertex]
    return colored
