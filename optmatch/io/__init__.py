"""Files: the only place that knows formats."""

from optmatch.io.chakra.demand import read_chakra
from optmatch.io.devices import read_device, write_device
from optmatch.io.files import check_target, dumps, load, loads, save
from optmatch.io.matrices.reader import from_graph, read_matrix
from optmatch.io.netlists.gdsfactory import read_netlist
from optmatch.io.problems import problem_digest

__all__ = [
    "check_target",
    "dumps",
    "from_graph",
    "load",
    "loads",
    "problem_digest",
    "read_chakra",
    "read_device",
    "read_matrix",
    "read_netlist",
    "save",
    "write_device",
]
