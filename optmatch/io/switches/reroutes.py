"""The state that a switch is in, as a running state: from its configuration."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np

from optmatch.fabrics import IdealSwitch
from optmatch.io.switches.circuits import SIDE_NAME
from optmatch.io.switches.ports import PortTable
from optmatch.io.switches.sonic import SonicConfig, read_config
from optmatch.model import InputError, check_size, naming
from optmatch.model.files import path_name
from optmatch.problems import Reroute

BLOCKED = "force_blocked"
"""The configured state of a port that carries no light."""


def read_running_state(
    path: str | os.PathLike[str],
    ports: PortTable | None = None,
    switch: IdealSwitch | None = None,
) -> Reroute:
    """Read which circuits a switch holds from its configuration, as the state of a rerouting.

    The configuration is the ``config_db.json`` of a SONiC switch. Ports that no circuit uses are
    spares, and ports that it blocks count as failed.

    Parameters
    ----------
    ports
        The sides of our ports; circuits of other ports are left out. None: all ports, port p at
        the sides ``(p + 1)A`` and ``(p + 1)B``.
    switch
        The switch, which may state losses; None: an ideal one of that many ports.
    """
    config = read_config(path)
    with naming(path_name(path)):
        if ports is None:
            ports = PortTable.numbered(_count_ports(config))
        if switch is None:
            switch = IdealSwitch(ports.n_ports)
        if switch.n_ports != ports.n_ports:
            raise InputError(f"{ports.n_ports} ports, but the switch has {switch.n_ports}")
        # A circuit of ours has both sides on our ports, one of others none.
        circuits = []
        for circuit in config.circuits:
            n_ours = sum(side in ports.port_of_side for side in circuit)
            if n_ours == 1:
                raise InputError(f"circuit {circuit.name}: only one of its sides is of our ports")
            if n_ours == 2:
                sides = ports.port_of_side
                circuits.append([sides[circuit.a_side], sides[circuit.b_side]])

        # What is neither used nor blocked can take over.
        used = {port for circuit in circuits for port in circuit}
        blocked = {
            ports.port_of_side[side]
            for side, state in config.state_of_side.items()
            if state == BLOCKED and side in ports.port_of_side
        }
        spares = [port for port in range(ports.n_ports) if port not in used | blocked]
        return Reroute(
            switch,
            np.array(circuits, dtype=np.int32).reshape(-1, 2),
            spares=tuple(spares),
            failed_ports=tuple(sorted(blocked)),
        )


def _count_ports(config: SonicConfig) -> int:
    """Return the largest number of a side of a configuration; sides of modules are refused."""
    largest = 0
    for side in _list_sides(config):
        match = SIDE_NAME.fullmatch(side)
        if match is None or match["module"] is not None:
            raise InputError(f"side {side}: ports of modules need a table of ports")
        largest = max(largest, int(match["number"]))
    check_size("ports", largest, "OCS_PORT")
    return largest


def _list_sides(config: SonicConfig) -> Iterable[str]:
    """Yield the sides of all circuits and ports."""
    for circuit in config.circuits:
        yield from circuit
    yield from config.state_of_side
