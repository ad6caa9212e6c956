"""Cost and power of the networks of a cluster: fat tree, electrical rails, photonic rails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from optmatch.model import Amount, Count, InputError, Value, integer
from optmatch.problems.records import build_records, read_tables

Design = Literal["fat-tree", "electrical-rail", "photonic-rail"]
DESIGNS: tuple[Design, ...] = get_args(Design)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part(Value):
    """A part that is counted: its price in US dollars, its power, and the source of both."""

    usd: Amount
    watts: Amount
    source: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prices(Value):
    """Unit figures of one generation of hardware.

    Parameters
    ----------
    transceiver, switch_port, ocs_port
        One transceiver, one port of an electrical switch, one port of an optical circuit switch.
    gpus_per_server
        GPUs of a server, or of the rack that takes its place; also the number of rails.
    switch_transceivers
        Whether electrical switches need a transceiver in each port; else only GPUs have one.
    """

    transceiver: Part
    switch_port: Part
    ocs_port: Part
    gpus_per_server: Count
    switch_transceivers: bool


def _read_prices() -> Mapping[str, Prices]:
    """Read the prices and powers of a port of each part by generation of hardware.

    A part that is listed with several ``ports`` is a whole switch, and is divided by their number.
    """
    tables = read_tables("prices.toml")
    for generation in tables.values():
        for part in (entry for entry in generation.values() if isinstance(entry, dict)):
            n_ports = part.pop("ports", 1)
            part["usd"] /= n_ports
            part["watts"] /= n_ports
    return build_records(Prices, tables)


PRICES = _read_prices()
"""By generation: GPUs with 400 Gb/s in servers of 8, and with 800 Gb/s in racks of 32; the file is
``optmatch/problems/data/prices.toml``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NetworkCost(Value):
    """The parts, cost and power of one network."""

    design: Design
    n_gpus: int
    switch_ports: int
    ocs_ports: int
    transceivers: int
    cost_usd: float
    power_w: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CostComparison(Value):
    """All designs for one size of cluster.

    Parameters
    ----------
    networks
        One for each of `DESIGNS`, in their order.
    cost_ratio, power_ratio
        Of the electrical rail to the photonic rail.
    """

    n_gpus: int
    networks: tuple[NetworkCost, ...]
    cost_ratio: float
    power_ratio: float


def compare_costs(sizes: Sequence[int], prices: Prices) -> tuple[CostComparison, ...]:
    r"""Count parts of all designs for several sizes of cluster, and what they cost and draw.

    With n GPUs in s servers of g: a fat tree of switches with :math:`k = [(4n)^{1/3}]` ports has
    :math:`k^2 + \lfloor k^2/4 \rfloor` of them. Electrical rails have, with
    :math:`k = [\sqrt{4s}]`, :math:`2 \lfloor s / \lfloor k/2 \rfloor \rfloor` leaf switches for
    each rail and :math:`\lfloor gs/k \rfloor` spines in all. A photonic rail has two ports, one
    for each direction, for each GPU. Brackets round to the nearest whole number, halves up.

    Counts are those of the published model [1]_: they round, so that neighbouring sizes may differ
    by a switch more or less than a drawing would have.

    Parameters
    ----------
    sizes
        Numbers of GPUs, each a multiple of those of a server.
    prices
        The cost and power of each part, and how many GPUs a server has.

    Returns
    -------
    tuple of CostComparison
        For each size the parts, cost and power of all designs, and the ratios of the electrical
        rail to the photonic one.

    Raises
    ------
    InputError
        If a size is no multiple of the GPUs of a server.

    References
    ----------
    .. [1] Ding et al. (2026). Photonic rail-optimized fabric. https://arxiv.org/abs/2602.12521

    Examples
    --------
    >>> for row in compare_costs([1024, 2048], PRICES["h200"]):
    ...     print(row.n_gpus, f"{row.cost_ratio:.2f}x {row.power_ratio:.2f}x")
    1024 4.22x 23.59x
    2048 4.27x 23.86x
    """
    rows = []
    for size in sizes:
        n = integer("n_gpus", size, at_least=1)
        per_server = prices.gpus_per_server
        if n % per_server:
            raise InputError(
                f"n_gpus = {n}: no multiple of {per_server} GPUs per server", where="n_gpus"
            )
        servers = n // per_server

        # A fat tree of switches of k ports joins k**3 / 4 GPUs; k is rounded to a whole number.
        k = int((4 * n) ** (1 / 3) + 0.5)
        tree = k * (k**2 + k**2 // 4)

        # Rails have two levels; the published model takes k = sqrt(4 s) ports for s servers.
        k = int((4 * servers) ** 0.5 + 0.5)
        rails = k * (servers // (k // 2) * 2 * per_server + per_server * servers // k)

        # US dollars and watts of each network; each GPU has a transceiver.
        networks = []
        for design, switch_ports, ocs_ports in zip(
            DESIGNS, (tree, rails, 0), (0, 0, 2 * n), strict=True
        ):
            transceivers = n
            if prices.switch_transceivers:
                transceivers += switch_ports
            counted = (
                (transceivers, prices.transceiver),
                (switch_ports, prices.switch_port),
                (ocs_ports, prices.ocs_port),
            )
            network = NetworkCost(
                design=design,
                n_gpus=n,
                switch_ports=switch_ports,
                ocs_ports=ocs_ports,
                transceivers=transceivers,
                cost_usd=sum(count * part.usd for count, part in counted),
                power_w=sum(count * part.watts for count, part in counted),
            )
            networks.append(network)
        _, electrical, photonic = networks
        rows.append(
            CostComparison(
                n_gpus=n,
                networks=tuple(networks),
                cost_ratio=electrical.cost_usd / photonic.cost_usd,
                power_ratio=electrical.power_w / photonic.power_w,
            )
        )
    return tuple(rows)
