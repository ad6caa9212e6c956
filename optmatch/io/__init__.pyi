# The public names, each once: `__init__.py` reads this list, and imports a name on its first use.
from .exports import to_dataframe as to_dataframe
from .files import (
    check_target as check_target,
    dumps as dumps,
    load as load,
    loads as loads,
    problem_digest as problem_digest,
    read_device as read_device,
    save as save,
    write_device as write_device,
)
from .matrices import (
    from_graph as from_graph,
    read_flows as read_flows,
    read_matrix as read_matrix,
    read_traffic as read_traffic,
)
from .netlists.gdsfactory import read_netlist as read_netlist
from .rails.chakra import read_chakra as read_chakra
from .sharing import read_jobs as read_jobs, read_resources as read_resources
from .text import parse_json as parse_json
