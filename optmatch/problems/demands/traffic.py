"""Models of traffic that schedulers are compared on, and what a fabric can carry of a demand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED, Fabric
from optmatch.model import InputError, check_size, integer, number
from optmatch.model.numbers import refuse_entries


def check_entries(fabric: Fabric, demand: NDArray[np.float64], *, with_packets: bool) -> None:
    """Refuse entries that no circuit of this fabric could carry.

    Parameters
    ----------
    fabric
        The switch.
    demand
        ``demand[source, destination]`` in bytes.
    with_packets
        Whether a packet network carries what has no circuit.

    Raises
    ------
    InputError
        If the shape is not (ports, ports), if a bidirectional port has a demand for itself or a
        dead port has any, or if no cells lead from a source to its destination.
    """
    rows, columns = demand.shape
    if (rows, columns) != (fabric.n_ports, fabric.n_ports):
        raise InputError(
            f"demand_bytes has shape {rows} x {columns}, the fabric has {fabric.n_ports} ports",
            where="demand_bytes",
        )
    if fabric.bidirectional:
        refuse_entries(
            "demand_bytes",
            (demand > 0) & np.eye(rows, dtype=bool),
            lambda *place: f" = {demand[place]:g}: a bidirectional port cannot meet itself",
        )

    # Ports with any demand have to work.
    fabric.refuse_dead_ports("demand_bytes", (demand > 0).any(axis=0) | (demand > 0).any(axis=1))

    # A pair without a way through the cells may use packets.
    if with_packets or fabric.graph is None:
        return
    refuse_entries(
        "demand_bytes",
        (demand > 0) & (fabric.route_cells() == UNREACHED),
        lambda i, j: (
            f" = {demand[i, j]:g}: no states of the cells connect {fabric.describe_port(i)} to"
            f" {fabric.describe_port(j)}"
        ),
    )


Matrix = NDArray[np.float64]


def all_to_all(n: int, rng: np.random.Generator, *, bytes: float = 1000.0) -> Matrix:
    """Give every two different ports the same demand."""
    check_size("entries", n * n, "n")
    return _off_diagonal(np.full((n, n), number("bytes", bytes)))


def uniform(n: int, rng: np.random.Generator, *, bytes: float = 1000.0) -> Matrix:
    """Draw the demand between two different ports from the whole numbers 1 .. `bytes`."""
    most = _check_most(n, bytes)
    return _off_diagonal(rng.integers(1, most, size=(n, n), endpoint=True))


def permutations(
    n: int,
    rng: np.random.Generator,
    *,
    count: int | None = None,
    bytes: float = 1000.0,
    mutual: bool = False,
    own_ports: bool = False,
) -> Matrix:
    """Add up random permutations with whole weights 1 .. `bytes`; all lines have the same sum.

    Parameters
    ----------
    n
        The number of ports.
    rng
        The source of random numbers.
    count
        The number of permutations; 2 n if None. With n * n of them the matrix is dense.
    bytes
        The largest weight, in bytes.
    mutual
        Whether the permutations are pairings, as bidirectional ports need them.
    own_ports
        Whether a permutation may send a port to itself. Otherwise the diagonal stays empty.

    Returns
    -------
    ndarray, shape (n, n)
        ``demand[source, destination]`` in bytes.
    """
    count = 2 * n if count is None else integer("count", count, at_least=0)
    most = _check_most(n, bytes)
    check_size("entries", n * count, "count")
    demand = np.zeros((n, n))
    for weight in rng.integers(1, most, size=count, endpoint=True).tolist():
        demand[np.arange(n), _draw_permutation(n, rng, mutual, own_ports)] += weight
    return demand if own_ports and not mutual else _off_diagonal(demand)


def solstice(
    n: int,
    rng: np.random.Generator,
    *,
    large: int = 4,
    small: int = 12,
    share: float = 0.7,
    noise: float = 0.0,
    window: float = 3e-3,
    mutual: bool = False,
    own_ports: bool = False,
) -> Matrix:
    """Draw a random demand of a few large and more small flows for each port.

    It is a model of the traffic of a datacentre, as in the evaluation of the scheduler Solstice
    [1]_. Each of `large` random permutations gives every port one large flow, and each of `small`
    permutations gives it one small flow. Flows are seconds that a circuit takes for them. For
    example, with a window of 3 ms, 4 large flows that are 0.7 of it have 0.525 ms each, and 12
    small flows have 0.075 ms each. Noise is added to each entry.

    Parameters
    ----------
    n
        The number of ports.
    rng
        The source of random numbers.
    large, small
        How many large and how many small flows each port has.
    share
        The part of the demand that is in large flows, 0 to 1.
    noise
        The standard deviation that is added to each flow, as a part of `window`.
    window
        The demand of each port, in seconds; flows are whole nanoseconds.
    mutual
        Whether the permutations are pairings, as bidirectional ports need them.
    own_ports
        Whether a port may have flows to itself. Otherwise the diagonal stays empty.

    Returns
    -------
    ndarray, shape (n, n)
        ``demand[source, destination]`` in seconds of a circuit.

    References
    ----------
    .. [1] Liu, Mukerjee, Li, Feltman, Papen, Savage, Seshan, Voelker, Andersen, Kaminsky, Porter,
       Snoeren (2015). Scheduling techniques for hybrid circuit/packet networks. *CoNEXT*.
       https://doi.org/10.1145/2716281.2836126
    """
    share = number("share", share)
    noise = number("noise", noise)
    window = number("window", window)
    if share > 1:
        raise InputError(f"share = {share:g}: must be <= 1", where="share")
    for flows, entries in (("n", n), ("large", large), ("small", small)):
        check_size("entries", n * integer(flows, entries, at_least=0), flows)

    # The sum of all permutations, in nanoseconds.
    demand = np.zeros((n, n))
    for flows, part in (("large", share), ("small", 1 - share)):
        count = large if flows == "large" else small
        for _ in range(count):
            destinations = _draw_permutation(n, rng, mutual, own_ports)
            demand[np.arange(n), destinations] += part * window * 1e9 / count
    disturbed = demand + rng.normal(scale=noise * window * 1e9, size=(n, n))

    # Whole nanoseconds: noise takes no flow away, and adds none. The matrix is in seconds.
    flows_ns = np.where(demand > 0, np.maximum(np.rint(disturbed), 1.0), 0.0)
    return (flows_ns if own_ports and not mutual else _off_diagonal(flows_ns)) / 1e9


def gravity(n: int, rng: np.random.Generator, *, bytes: float = 1000.0) -> Matrix:
    """Make demands proportional to random masses of source and destination, `bytes` at most.

    The masses are exponential; demands are whole numbers, and may be zero.

    Parameters
    ----------
    n
        The number of ports.
    rng
        The source of random numbers.
    bytes
        The largest demand of a pair, in bytes.

    Returns
    -------
    ndarray, shape (n, n)
        ``demand[source, destination]`` in bytes, 0 from a port to itself.
    """
    check_size("entries", n * n, "n")
    demand = _off_diagonal(np.outer(rng.exponential(size=n), rng.exponential(size=n)))
    largest = demand.max(initial=0.0)
    return np.rint(demand / largest * number("bytes", bytes)) if largest else demand


def zipf_moe(
    n: int,
    rng: np.random.Generator,
    *,
    tokens: int = 1024,
    top: int = 2,
    exponent: float = 1.0,
    bytes: float = 4096.0,
) -> Matrix:
    """Draw the traffic of a mixture-of-experts model, in which some experts are popular.

    There is one expert on each port. Each port has `tokens` tokens of `bytes`, and sends each of
    them to `top` different experts, which are drawn at random. The k-th expert in a random order
    has the popularity ``1 / k**exponent``: with exponent 1, the second one is chosen half as often
    as the first one. Tokens for the expert on their own port are not sent.

    Parameters
    ----------
    n
        The number of ports, and of experts.
    rng
        The random numbers.
    tokens
        The tokens of each port.
    top
        How many different experts each token goes to, at most `n`.
    exponent
        How skewed the popularity is; 0 for equally popular experts.
    bytes
        The size of a token.

    Returns
    -------
    ndarray, shape (n, n)
        ``demand[source, destination]`` in bytes, 0 from a port to itself.

    Raises
    ------
    InputError
        If a number is out of range, or so skewed that nobody asks for the last expert.
    """
    tokens = integer("tokens", tokens, at_least=0)
    top = integer("top", top, at_least=1)
    if top > n:
        raise InputError(f"top = {top}: there are {n} experts", where="top")
    check_size("entries", n * max(n, tokens), "tokens")
    with np.errstate(over="ignore"):
        popular = 1.0 / np.arange(1, n + 1) ** number("exponent", exponent)
    if popular.min(initial=1.0) <= 0:
        raise InputError(f"exponent = {exponent:g}: nobody asks for expert {n}", where="exponent")

    # Any expert may be the most popular one. A token draws its experts without replacement: by the
    # Gumbel rule these are the `top` largest ones of log popularity plus Gumbel noise.
    popularity = rng.permutation(popular)
    demand = np.zeros((n, n))
    for source in range(n):
        chances = np.log(popularity) + rng.gumbel(size=(tokens, n))
        chosen = np.argpartition(-chances, top - 1, axis=1)[:, :top]
        demand[source] = np.bincount(chosen.ravel(), minlength=n) * number("bytes", bytes)
    return _off_diagonal(demand)


def draw_groups(
    demand: Matrix, rng: np.random.Generator, count: int
) -> tuple[NDArray[np.int32], tuple[float, ...]]:
    """Put the entries of a demand into groups (coflows) at random, with whole weights 1 .. 10.

    Parameters
    ----------
    demand
        ``demand[source, destination]``, shape (n, n).
    rng
        The source of random numbers.
    count
        The number of groups, at most that of entries; no group is empty.

    Returns
    -------
    groups : ndarray, shape (n, n)
        The group of each entry, as a `Demand` takes it; -1 where there is none.
    weights : tuple of float
        The weight of each group.

    Raises
    ------
    InputError
        If there are more groups than entries.
    """
    entries = np.flatnonzero(demand)
    if integer("count", count, at_least=1) > len(entries):
        raise InputError(f"{count} groups of {len(entries)} entries", where="count")
    # The first entries go to one group each, so that none is empty.
    further_groups = rng.integers(count, size=len(entries) - count)
    groups = np.full(demand.shape, -1, dtype=np.int32)
    group_of_entry = rng.permutation(np.concatenate([np.arange(count), further_groups]))
    groups.flat[entries] = group_of_entry
    return groups, tuple(rng.integers(1, 11, size=count).astype(float).tolist())


def _draw_permutation(
    n: int, rng: np.random.Generator, mutual: bool, own_ports: bool
) -> NDArray[np.int64]:
    """Draw a permutation, or a pairing, as ``destination[port]``.

    Without `own_ports` no port is its own destination; all such permutations are equally likely.
    Two exceptions are left to the caller: the odd port of a pairing, and a single port.
    """
    order = rng.permutation(n)
    if not mutual:
        # A permutation has no fixed point with a chance of about 1 / e: three draws on average.
        while not own_ports and n > 1 and (order == np.arange(n)).any():
            order = rng.permutation(n)
        return order
    partners = np.arange(n)

    # Each two ports of a random order are partners.
    ends = order[: n - n % 2].reshape(-1, 2)
    partners[ends[:, 0]], partners[ends[:, 1]] = ends[:, 1], ends[:, 0]
    return partners


def _check_most(n: int, bytes: float) -> int:
    """Return the largest entry of a random matrix as a whole number, `bytes` rounded down.

    It may be up to 2**53, where floats still hold all whole numbers. A matrix with too many
    entries is refused.
    """
    check_size("entries", n * n, "n")
    most = number("bytes", bytes, at_least=1.0)
    if most > 2**53:
        raise InputError(f"bytes = {most:g}: at most 2**53", where="bytes")
    return int(most)


def _off_diagonal(matrix: NDArray[np.float64] | NDArray[np.int64]) -> Matrix:
    """Return a matrix as float64, with zeros from each port to itself."""
    demand = np.array(matrix, dtype=np.float64)
    np.fill_diagonal(demand, 0.0)
    return demand


MODELS: dict[str, Callable[..., Matrix]] = {
    "all-to-all": all_to_all,
    "uniform": uniform,
    "permutations": permutations,
    "solstice": solstice,
    "gravity": gravity,
    "zipf-moe": zipf_moe,
}
"""The models by the names of the command line: ``model(n, rng, **parameters)``."""
