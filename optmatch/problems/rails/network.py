"""What joins the GPUs of a training job: servers, rails, and the switch of a rail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from optmatch.fabrics import Fabric
from optmatch.model import InputError, Value, integer, number
from optmatch.model.schedule import Switching


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RailNetwork(Value):
    """Servers and rails: GPU number r of every server is attached to the switch of rail r.

    Parameters
    ----------
    gpus_per_server
        GPUs of a server: also the number of rails.
    ports_per_gpu, port_bytes_per_s
        Ports of a GPU on its rail, and what each sends and receives per second.
    scale_up_bytes_per_s
        What a GPU sends inside its server, per second.
    latency_s
        What each message of a collective, and each send, takes longer than its bytes need.
    fabric
        The switch of each rail, with `ports_per_gpu` ports for each of its GPUs; None for an ideal
        one.
    radix
        Ports of the switch of a rail; None if it is as large as it has to be.
    delay_s, switching
        The reconfiguration delay, and whether circuits that stay go on (``"per-circuit"``).

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

    gpus_per_server: int
    ports_per_gpu: int = 1
    port_bytes_per_s: float = 50e9
    scale_up_bytes_per_s: float = 450e9
    latency_s: float = 500e-9
    fabric: Fabric | None = None
    radix: int | None = None
    delay_s: float = 0.01
    switching: Switching = "per-circuit"

    def __post_init__(self) -> None:
        for name in ("gpus_per_server", "ports_per_gpu"):
            object.__setattr__(self, name, integer(name, getattr(self, name), at_least=1))
        for name in ("port_bytes_per_s", "scale_up_bytes_per_s"):
            object.__setattr__(self, name, number(name, getattr(self, name)))
            if getattr(self, name) == 0:
                raise InputError(f"{name} = 0: must be > 0", where=name)
        for name in ("latency_s", "delay_s"):
            object.__setattr__(self, name, number(name, getattr(self, name)))
        if self.radix is not None:
            object.__setattr__(self, "radix", integer("radix", self.radix, at_least=1))
        if self.switching not in get_args(Switching):
            named = f"switching = {self.switching!r}: one of {', '.join(get_args(Switching))}"
            raise InputError(named, where="switching")

    @property
    def rail_bytes_per_s(self) -> float:
        """What a GPU sends over its rail with all its ports, per second."""
        return self.ports_per_gpu * self.port_bytes_per_s
