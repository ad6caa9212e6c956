"""A router that is asked for no circuit at all."""

import os
import subprocess
import sys
from typing import Any

import pytest

import optmatch as om
from optmatch.model import CellDevice

CODE = """
import optmatch as om
from optmatch.model import CellDevice
mesh = om.HexMesh(2, 2, ports=4)
cells = CellDevice.of("smartlight", mesh.n_cells)
for aim in ("worst-loss-db", "worst-snr-db", "power-mw"):
    router = om.Router(mesh, prefer=aim, cells=cells)
    router.route([1, 0, -1, -1])
    print(*router.route([-1] * 4).lengths)
"""


def test_nothing_is_read_where_there_is_no_circuit() -> None:
    """The first circuit of none was read: the lengths of another call came back."""
    run = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        env=os.environ | {"OPTMATCH_JIT": "0"},  # plain Python checks its indices
    )
    assert run.stdout.splitlines() == ["0 0 0 0"] * 3, run.stderr


@pytest.mark.parametrize("aim", ["worst-loss-db", "worst-snr-db", "power-mw"])
def test_a_matching_without_circuits_has_no_lengths(aim: Any) -> None:
    mesh = om.HexMesh(3, 3, ports=4)
    router = om.Router(mesh, prefer=aim, cells=CellDevice.of("smartlight", mesh.n_cells))
    assert router.route([1, 0, 3, 2]).lengths.any()
    dark = router.route([-1] * 4)
    assert not dark.lengths.any() and (dark.states == -1).all()
