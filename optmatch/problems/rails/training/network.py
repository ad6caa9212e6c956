"""The network of a training job: servers, rails, and the switch of a rail."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from optmatch.fabrics import Fabric
from optmatch.model import LONGEST_S, Count, Positive, Range, Value
from optmatch.model.schedule import Switching

Spanning = Literal["hierarchical", "rings"]
"""How a group with members in several servers and on several rails uses them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RailNetwork(Value):
    """Servers and rails: GPU number r of every server is attached to the switch of rail r.

    Parameters
    ----------
    gpus_per_server
        The GPUs of a server, which are also the number of rails.
    ports_per_gpu
        The ports of a GPU on its rail.
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
    ports_per_gpu: Count = 1
    port_bytes_per_s: Positive = 50e9
    scale_up_bytes_per_s: Positive = 450e9
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
        """Return the network in which each GPU has an equal share of all ports of its server.

        A server of R GPUs with k ports each becomes R GPUs with R k ports of a share of 1 / R:
        port ``q * k + p`` of each of them is a share of port p of the GPU on rail q. Its bytes
        pass the links of the server once more, all of a rail through the links of one GPU, so that
        a byte takes ``1 / port_bytes_per_s + k / scale_up_bytes_per_s`` seconds of a whole port;
        each message is late by `change_rail_s`, too.

        Returns
        -------
        RailNetwork
            The same servers and switches with ports of shares: more ports of a GPU, each slower
            in proportion, and a longer latency on rails. It has no radix, which counts whole
            ports.
        """
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
