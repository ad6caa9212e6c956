"""Cliques of a small graph: sets of vertices of which each two are neighbours."""

from __future__ import annotations


def find_larger_clique(neighbours: list[int], known_size: int, most_nodes: int) -> tuple[int, int]:
    """Search for a clique that is larger than a known one, by branch and bound.

    After Tomita and Seki (2003): the candidates of a clique are coloured greedily, and a branch is
    cut off where the colours of its candidates are too few for a larger clique.

    Parameters
    ----------
    neighbours
        ``neighbours[vertex]``: a bit for each neighbour.
    known_size
        The size of a clique that is known.
    most_nodes
        The search ends after so many cliques looked at.

    Returns
    -------
    size : int
        The size of the largest clique found; `known_size` if none is larger.
    n_nodes : int
        How many cliques were looked at.

    Examples
    --------
    A triangle with a tail:

    >>> find_larger_clique([0b0110, 0b0101, 0b1011, 0b0100], 1, 100)[0]
    3
    """
    best_size = known_size
    n_nodes = 0

    def extend(size: int, candidates: int) -> None:
        """Look at all cliques of some vertices and of some candidates, which all of them know."""
        nonlocal best_size, n_nodes
        n_nodes += 1
        best_size = max(best_size, size)
        for vertex, color in reversed(color_greedily(neighbours, candidates)):
            if size + color <= best_size or n_nodes >= most_nodes:
                return
            extend(size + 1, candidates & neighbours[vertex])
            candidates &= ~(1 << vertex)

    extend(0, (1 << len(neighbours)) - 1)
    return best_size, n_nodes


def color_greedily(neighbours: list[int], vertices: int) -> list[tuple[int, int]]:
    """Colour some vertices such that neighbours differ, with the lowest colour for each.

    Parameters
    ----------
    neighbours
        ``neighbours[vertex]``: a bit for each neighbour.
    vertices
        A bit for each vertex to be coloured.

    Returns
    -------
    list of (vertex, colour)
        By rising colours, from 1 on. A clique of vertices up to some place of the list has no more
        vertices than the colour at that place.
    """
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
