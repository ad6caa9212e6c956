# The public names, each once: `__init__.py` reads this list, and imports a name on its first use.
from .chakra.demand import read_chakra as read_chakra
from .devices import read_device as read_device
from .devices import write_device as write_device
from .files import check_target as check_target
from .files import dumps as dumps
from .files import load as load
from .files import loads as loads
from .files import save as save
from .matrices.reader import from_graph as from_graph
from .matrices.reader import read_matrix as read_matrix
from .netlists.gdsfactory import read_netlist as read_netlist
from .problems import problem_digest as problem_digest
