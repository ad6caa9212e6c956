"""The state that a switch is in, as a running state: from its configuration."""

from __future__ import annotations

import os

import numpy as np

from optmatch.fabrics import IdealSwitch
from optmatch.io.switches.ports import PortTable, number_ports
from optmatch.io.switches.sonic import PORT_TABLE, read_config
from optmatch.model import InputError, naming
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
            sides = [side for circuit in config.circuits for side in circuit]
            ports = number_ports([*sides, *config.state_of_side], PORT_TABLE)
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
                circuits.append([ports.port_of_side[side] for side in circuit])

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
