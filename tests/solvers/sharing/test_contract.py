"""Every method for shared resources keeps the contract."""

from functools import partial

import numpy as np

from optmatch.kinds import all_methods
from optmatch.testing import SolverContract
from tests.helpers.contracts import contracts, methods_of
from tests.helpers.sharing import draw_sharing

_DRAW = partial(draw_sharing, np.random.default_rng(24), resources=12)
_PROBLEMS = [
    *(_DRAW(objective) for objective in ("max-flow", "lexicographic", "max-min", "min-jct")),
    *(_DRAW(objective, caps=True) for objective in ("max-flow", "lexicographic", "max-min")),
    *(_DRAW(objective, whole=True) for objective in ("max-flow", "lexicographic", "max-min")),
]
_TAKES = {m.name: m.takes for m in all_methods() if m.solves.kind == "port-sharing"}


class SharingContract(SolverContract):
    """Tests that all methods for shared resources share."""

    iterates = False
    tiny_problems = ()


globals().update(
    contracts(
        SharingContract,
        methods_of("port-sharing"),
        **{name: {"problems": list(filter(takes, _PROBLEMS))} for name, takes in _TAKES.items()},
    )
)
