# The public names, each once: `__init__.py` reads this list, and imports a name on its first use.
from .feedforward.router import route_batch as route_batch
from .method import Method as Method
from .reroutes.states import fill_rack as fill_rack, hold_matching as hold_matching
from .slices.pod import Pod as Pod
from .slices.steering import steer as steer
