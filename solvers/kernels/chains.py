"""Ways read back from a search, in which each node points to the one before it on its way.

The node where the search began points to -1. Two-sided searches have such pointers from either
end, and read a way from the node where both meet.
"""

from optmatch.solvers.kernels.decorators import inner_kernel


@inner_kernel
def count_chain(previous, node):
    """Count the nodes on the way from where a search began to a node.

    Parameters
    ----------
    previous : int array, shape (nodes,)
        The node before each on its way, -1 where the search began.
    node : int
        The last node; -1 for none.

    Returns
    -------
    int
        The number of nodes, the first and the last one included.
    """
    count = 0
    while node >= 0:
        count += 1
        node = previous[node]
    return count


@inner_kernel
def write_chain(previous, node, way, place, step):
    """Write a node and all before it, the last one first, to successive places of an array.

    Parameters
    ----------
    previous : int array, shape (nodes,)
        The node before each on its way, -1 where the search began.
    node : int
        The last node; -1 for none.
    way : int array
        Receives the nodes.
    place : int
        Where the last node goes.
    step : int
        1 or -1: where the node before it goes, from there.
    """
    while node >= 0:
        way[place] = node
        place += step
        node = previous[node]
