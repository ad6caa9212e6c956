"""Kernels before the first call: what is warm compiles nothing any more."""

import pytest

import optmatch as om
from tests.helpers.command import python
from tests.helpers.modes import nightly_only

CALLS = """
import numpy as np
import optmatch as om
from optmatch.model import CellDevice
from optmatch.solvers.kernels.compiler import Kernel

made = []
compile_kernel = Kernel.compile
def compile_and_tell(kernel, signature):
    made.append(kernel.py_func.__name__)
    return compile_kernel(kernel, signature)
Kernel.compile = compile_and_tell

{warming}
made.clear()
mesh = om.HexMesh(5, 5, ports=12)
matching = np.arange(12) ^ 1
for router in {routers}:
    routed = router.route(matching)
    router.reroute(routed.states, np.full(12, -1))
    router.route_batch([matching, matching])
{more}
print(*made)
"""
MORE = """
om.solve(om.SliceAllocation(om.RackFabric(), (2, 2, 4)), seed=0)
controller = om.Rerouter(om.fill_rack(om.RackFabric()))
controller.apply(controller.fail(chip=7))
om.schedule([[0, 3, 1], [2, 0, 1], [4, 1, 0]], 0.5)
om.decompose([[1, 2], [2, 1]])
"""


@nightly_only
@pytest.mark.slow
@pytest.mark.parametrize(
    ("warming", "routers", "more"),
    [
        ("", "[om.Router(mesh, warm=True)]", ""),
        ("om.warm_up(['routing', 'slice-allocation'], controllers=True)",
         "[om.Router(mesh), om.Router(mesh, check=True)]", MORE),
    ],
)  # fmt: skip
def test_nothing_is_compiled_after_a_warm_up(warming: str, routers: str, more: str) -> None:
    """The first `reroute` of a router whose `route` was warm compiled for 13 s."""
    code = CALLS.format(warming=warming, routers=routers, more=more)
    if not warming:  # of a router that is made warm, what its constructor makes is not counted
        code = code.replace("for router in [", "routers = [").replace(
            "warm=True)]:", "warm=True)]\nmade.clear()\nfor router in routers:"
        )
    run = python("-c", code, NUMBA_DISABLE_JIT="0", OPTMATCH_JIT="1")
    assert run.stdout.split() == [], run.stderr


def test_kinds_are_named() -> None:
    om.warm_up([])
    with pytest.raises(om.InputError, match=r"kinds\[0\] = 'mesh': one of all-to-all, collective"):
        om.warm_up("mesh")
