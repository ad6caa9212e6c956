"""Names of circuits and ports, which files and drivers share."""

from optmatch.io.switches.circuits import (
    CrossConnect as CrossConnect,
    Difference as Difference,
    difference_between as difference_between,
)
from optmatch.io.switches.ports import (
    PortTable as PortTable,
    read_port_tables as read_port_tables,
)
