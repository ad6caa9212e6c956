"""Ways read back from a search, in which each node points to the one before it on its way.

The node where the search began points to -1. Two-sided searches have such pointers from either
end, and read a way from the node where both meet.
"""

from optmatch.solvers.kernels.decorators import inner_kernel


@inner_kernel
def count_chain(previous, node):
    """Count the nodes from where a search began to `node`, both included; 0 for the node -1.

    ``previous[node]`` is the node before each on its way, -1 where the search began.
    """
    count = 0
    while node >= 0:
        count += 1
        node = previous[node]
    return count


@inner_kernel
def write_chain(previous, node, way, place, step):
    """Write a node and all before it, the last one first, to successive places of `way`.

    The last node goes to `place`, the one before it to ``place + step``, where `step` is 1 or -1.
    """
    while node >= 0:
        way[place] = node
        place += step
        node = previous[node]
