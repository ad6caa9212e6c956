"""What networks of a cluster cost and draw: fat tree, electrical rails, photonic rails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from optmatch.model import Amount, Count, InputError, Value, integer

Design = Literal["fat-tree", "electrical-rail", "photonic-rail"]
DESIGNS: tuple[Design, ...] = get_args(Design)

ARTIFACT = "https://github.com/opusfabric/Opus, evaluation/energy-analysis"
SIMULATOR = "https://github.com/EricDinging/astra-sim-hybrid-parallelism, plot_H200.py"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part(Value):
    """A part that is counted: what one costs in US dollars, what it draws, and who says so."""

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


_OCS_PORT = Part(usd=520.0, watts=75 / 192, source=f"Polatis 6000N of 192 ports, 75 W; {ARTIFACT}")

PRICES: dict[str, Prices] = {
    "h200": Prices(
        transceiver=Part(
            usd=879.0, watts=10.0, source=f"400G, fs.com 229253, 110530; {SIMULATOR}"
        ),
        switch_port=Part(
            usd=37299 / 64, watts=2524 / 64, source=f"64 ports of 400G, fs.com 149853; {SIMULATOR}"
        ),
        ocs_port=_OCS_PORT,
        gpus_per_server=8,
        switch_transceivers=True,
    ),
    "gb200": Prices(
        transceiver=Part(usd=879.0, watts=16.0, source=f"800G; {SIMULATOR}"),
        switch_port=Part(
            usd=149939 / 144, watts=7000 / 144, source=f"144 ports of 800G; {SIMULATOR}"
        ),
        ocs_port=_OCS_PORT,
        gpus_per_server=32,
        switch_transceivers=False,
    ),
}
"""By generation: GPUs with 400 Gb/s in servers of 8, and with 800 Gb/s in racks of 32."""

OLDER_TRANSCEIVER_USD = 219.0
"""The price of a transceiver in an older notebook of the same authors."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NetworkCost(Value):
    """What one network needs, costs and draws."""

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
    cost_ratio: float = field(init=False)
    power_ratio: float = field(init=False)

    def __post_init__(self) -> None:
        _, electrical, photonic = self.networks
        object.__setattr__(self, "cost_ratio", electrical.cost_usd / photonic.cost_usd)
        object.__setattr__(self, "power_ratio", electrical.power_w / photonic.power_w)


def network_cost(design: Design, n_gpus: int, prices: Prices) -> NetworkCost:
    r"""Count parts of a network with full bisection, and what they cost and draw.

    With n GPUs in s servers of g: a fat tree of switches with :math:`k = [(4n)^{1/3}]` ports has
    :math:`k^2 + \lfloor k^2/4 \rfloor` of them. Electrical rails have, with
    :math:`k = [\sqrt{4s}]`, :math:`2 \lfloor s / \lfloor k/2 \rfloor \rfloor` leaf switches for
    each rail and :math:`\lfloor gs/k \rfloor` spines in all. A photonic rail has two ports, one
    for each direction, for each GPU. Brackets round to the nearest whole number.

    Counts are those of the published model [1]_: they round, so that neighbouring sizes may differ
    by a switch more or less than a drawing would have.

    References
    ----------
    .. [1] Ding et al. (2026). Photonic rail-optimized fabric. https://arxiv.org/abs/2602.12521
    """
    n = integer("n_gpus", n_gpus, at_least=1)
    servers, rest = divmod(n, prices.gpus_per_server)
    if rest:
        raise InputError(
            f"n_gpus = {n}: no multiple of {prices.gpus_per_server} GPUs per server",
            where="n_gpus",
        )
    if design not in DESIGNS:
        raise InputError(f"design = {design!r}: one of {', '.join(DESIGNS)}", where="design")
    switch_ports = _switch_ports(design, n, servers, prices.gpus_per_server)
    ocs_ports = 2 * n if design == "photonic-rail" else 0
    transceivers = n + (switch_ports if prices.switch_transceivers else 0)
    counted = (
        (transceivers, prices.transceiver),
        (switch_ports, prices.switch_port),
        (ocs_ports, prices.ocs_port),
    )
    return NetworkCost(
        design=design,
        n_gpus=n,
        switch_ports=switch_ports,
        ocs_ports=ocs_ports,
        transceivers=transceivers,
        cost_usd=sum(count * part.usd for count, part in counted),
        power_w=sum(count * part.watts for count, part in counted),
    )


def compare_costs(sizes: Sequence[int], prices: Prices) -> tuple[CostComparison, ...]:
    """Compare all designs for several sizes of cluster.

    Parameters
    ----------
    sizes
        Numbers of GPUs.
    prices
        Unit figures, from `PRICES` for instance.

    Examples
    --------
    >>> for row in compare_costs([1024, 2048], PRICES["h200"]):
    ...     print(row.n_gpus, f"{row.cost_ratio:.2f}x {row.power_ratio:.2f}x")
    1024 4.22x 23.59x
    2048 4.27x 23.86x
    """
    return tuple(
        CostComparison(
            n_gpus=size, networks=tuple(network_cost(design, size, prices) for design in DESIGNS)
        )
        for size in sizes
    )


def _switch_ports(design: Design, n: int, servers: int, per_server: int) -> int:
    if design == "photonic-rail":
        return 0
    if design == "fat-tree":
        k = _nearest((4 * n) ** (1 / 3))
        return k * (k**2 + k**2 // 4)
    k = _nearest((4 * servers) ** 0.5)
    leaves = servers // (k // 2) * 2
    spines = per_server * servers // k
    return k * (leaves * per_server + spines)


def _nearest(value: float) -> int:
    """Round to the nearest whole number, halves up."""
    return int(value + 0.5)
