"""Files: the only place that knows formats."""

from typing import TYPE_CHECKING

from optmatch.io.files import check_target, dumps, load, loads, save
from optmatch.io.problems import problem_digest
from optmatch.model.later import import_later

if TYPE_CHECKING:
    from optmatch.io.chakra_demand import read_chakra
    from optmatch.io.devices import read_device, write_device
    from optmatch.io.matrices import from_graph, read_matrix
    from optmatch.io.netlists import read_netlist

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

__getattr__ = import_later(
    __name__,
    {
        "from_graph": "matrices",
        "read_chakra": "chakra_demand",
        "read_device": "devices",
        "read_matrix": "matrices",
        "read_netlist": "netlists",
        "write_device": "devices",
    },
)
