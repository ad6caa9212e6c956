"""The network of a training job: servers, rails, and the switch of a rail."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from optmatch.fabrics import Fabric
from optmatch.model import LONGEST_S, Count, Range, Rate, Value
from optmatch.model.schedule import Switching

Spanning = Literal["hierarchical", "rings"]
"""How a group with members in several servers and on several rails uses them."""

MOST_PORTS = 31
"""The ports of a GPU that fit into a set of 32 bits with a sign."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RailNetwork(Value):
    """Servers and rails: GPU number r of every server is attached to the switch of rail r.

    Parameters
    ----------
    gpus_per_server
        The GPUs of a server, which are also the number of rails.
    ports_per_gpu
        The ports of a GPU on its rail, at most 31.
    port_bytes_per_s
        What each port of a GPU sends, and receives, in bytes per second.
    scale_up_bytes_per_s
        What a GPU sends inside its server, in bytes per second.
    latency_s
        The latency of each message, in seconds. It comes to the time of its bytes; a collective
        has several messages, a send has one.
    rail_latency_s
        The latency of each message on a rail, in seconds. None: `latency_s`.
    change_rail_s
        The latency of data that change rail inside a server, in seconds. A plan may let them do so
        (`RailPlan.pooled`): they go to or from the GPU that has the rail, at the rate of the
        server's links. None: data stay on the rail of their GPU.
    spanning
        How a group of ranks uses several rails. ``"hierarchical"``: a server first puts together
        what it sends, inside, and each rail carries an equal share, among its own members.
        ``"rings"``: rings through all members, one leaving the servers over each rail, as NCCL's
        channels do; both links are busy at once. In both an all-to-all, or a message between
        stages, first goes inside the server to the GPU that has the rail of its receiver (PXN),
        and of an all-to-all with ``"rings"`` both parts go on at once.
    fabric
        The switch of each rail, with `ports_per_gpu` ports for each of its GPUs; None for an ideal
        one.
    radix
        The ports of the switch of a rail. None: as many as are needed.
    delay_s
        The reconfiguration delay, in seconds.
    switching
        Whether circuits that stay go on during the delay (per-circuit) or wait (all-stop).

    Raises
    ------
    InputError
        Naming the option.

    See Also
    --------
    RailJob : the problem that it is a part of.

    Examples
    --------
    >>> RailNetwork(gpus_per_server=8, ports_per_gpu=2).rail_bytes_per_s
    100000000000.0
    """

    gpus_per_server: Count
    ports_per_gpu: Annotated[int, Range(1, MOST_PORTS)] = 1
    port_bytes_per_s: Rate = 50e9
    scale_up_bytes_per_s: Rate = 450e9
    latency_s: Annotated[float, Range(0, LONGEST_S)] = 500e-9
    rail_latency_s: Annotated[float, Range(0, LONGEST_S)] | None = field(
        default=None, metadata={"brief": True}
    )
    change_rail_s: Annotated[float, Range(0, LONGEST_S)] | None = field(
        default=None, metadata={"brief": True}
    )
    spanning: Spanning = "hierarchical"
    fabric: Fabric | None = None
    radix: Count | None = None
    delay_s: Annotated[float, Range(0, LONGEST_S)] = 0.01
    switching: Switching = "per-circuit"

    @property
    def rail_bytes_per_s(self) -> float:
        """The bytes that a GPU sends over its rail with all its ports, per second."""
        return self.ports_per_gpu * self.port_bytes_per_s

    @property
    def latency_on_rails_s(self) -> float:
        """The latency of each message on a rail, in seconds."""
        return self.latency_s if self.rail_latency_s is None else self.rail_latency_s

    def pool_rails(self) -> RailNetwork:
        """Return the network in which the GPUs of a server share all ports of the server.

        GPU number r of every server is attached to rail r, by k ports. Here each GPU may use the
        ports of all GPUs of its server, an equal share of each. With R = 4 GPUs of k = 2 ports,
        each GPU has 4 * 2 = 8 ports of a quarter of the rate instead of 2 whole ones. Its port
        number ``q * k + p`` is a quarter of port p of the GPU on rail q.

        Data for the rail of another GPU first go to that GPU, over the links of the server. This
        costs time in two ways:

        - rate: the link of a GPU carries the data of its k ports, so that each port has 1 / k of
          the link's rate. A byte takes k / scale_up_bytes_per_s seconds on the link and then
          1 / port_bytes_per_s seconds on a whole port; a share of 1 / R needs R times as long;
        - latency: each message on a rail takes `change_rail_s` seconds longer. None counts as 0.

        Returns
        -------
        RailNetwork
            The same servers and switches, with other `ports_per_gpu` (R k), `port_bytes_per_s` (of
            a share) and `rail_latency_s`. It has no `radix`, which would count whole ports.
        """
        # The seconds that a whole port takes for a byte, on the rail and inside the server.
        n_rails = self.gpus_per_server
        seconds_per_byte = 1 / self.port_bytes_per_s
        seconds_per_byte += self.ports_per_gpu / self.scale_up_bytes_per_s
        return replace(
            self,
            ports_per_gpu=n_rails * self.ports_per_gpu,
            port_bytes_per_s=1 / (seconds_per_byte * n_rails),
            rail_latency_s=self.latency_on_rails_s + (self.change_rail_s or 0.0),
            radix=None,
        )
