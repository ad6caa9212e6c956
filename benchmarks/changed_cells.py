"""One cell of a chip differs from its model: how often `compare_chip` finds it.

    python benchmarks/changed_cells.py [CHIPS] [NOISE_DB]

The cell and its change are drawn: 0.3 to 3 dB more loss, an extinction of 8 to 20 dB, a phase
turned by 0.1 to 0.6 rad, stuck in bar or in cross, dead. All powers get an error of NOISE_DB.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import optmatch as om
from optmatch.fabrics.waveguides import waveguide_loss_db
from optmatch.model import DEVICES, CellDevice, Measurement
from optmatch.model.device import mix_ways
from optmatch.verify.optics.deviation import choose_states, compare_chip
from optmatch.verify.optics.scattering import scatter

DEVICE = DEVICES["smartlight"]
FABRICS = (
    (om.HexMesh(9, 9, ports=32), 8),
    (om.HexMesh(4, 4, ports=12), 8),
    (om.HexMesh(3, 3), 6),
    (om.SquareMesh(4, 4), 6),
    (om.Benes(16), 8),
    (om.Crossbar(8), 12),
)
KINDS = ("loss", "extinction", "turn", "stuck in bar", "stuck in cross", "dead")


def measure(
    fabric: om.Fabric, states: NDArray[np.int8], cell: int, kind: str, by: float
) -> NDArray[np.float64]:
    """Return the powers of a chip in which one cell is changed."""
    graph: Any = fabric.graph
    chip = CellDevice.of(DEVICE, fabric.n_cells)
    links = 10 ** (-waveguide_loss_db(graph, DEVICE) / 20) + 0j
    powers = []
    for row in states.copy():
        if kind.startswith("stuck"):
            row[cell] = kind.endswith("cross")
        errors = np.zeros((fabric.n_cells, 2))
        errors[cell] = (by, -by) if kind == "turn" else 0.0
        cells = chip.cell(row, errors) * (1 - 1e-9)
        if kind == "extinction":
            leak = np.array([10 ** (-by / 10)])
            cells[cell] = mix_ways(row[[cell]], np.array([DEVICE.bar_loss_db]), leak, None)[0]
        cells[cell] *= {"loss": 10 ** (-by / 20), "dead": 0.0}.get(kind, 1.0)
        waves = scatter(graph, cells, links, fabric.source_terminals)
        power = np.abs(waves.leaving[fabric.destination_terminals].T) ** 2
        powers.append(power * 10 ** (-DEVICE.coupling_loss_db / 5))
    return np.array(powers)


def main(chips: int, noise_db: float) -> None:
    """Print a line for each fabric."""
    for fabric, count in FABRICS:
        rng = np.random.default_rng(2)
        states = choose_states(fabric, count)
        named, untold, sizes, spent = 0, 0, [], 0.0
        for _ in range(chips):
            kind, cell = str(rng.choice(KINDS)), int(rng.integers(fabric.n_cells))
            by = {
                "loss": rng.uniform(0.3, 3),
                "extinction": rng.uniform(8, 20),
                "turn": rng.uniform(0.1, 0.6) * rng.choice([-1, 1]),
            }.get(kind, 0.0)
            power = measure(fabric, states, cell, kind, by)
            power = np.minimum(1.0, power * 10 ** (rng.normal(0, noise_db, power.shape) / 10))
            start = time.process_time()
            found = compare_chip(fabric, Measurement(cell_states=states, power=power), DEVICE)
            spent += time.process_time() - start
            suspects = [suspect.cell for suspect in found.suspects]
            named += cell in suspects
            untold += not suspects and any(cell in cells for cells in found.unseen.values())
            sizes.append(len(suspects))
        size = " x ".join(str(getattr(fabric, name, "")) for name in ("rows", "cols"))
        print(
            f"{fabric.type} {size}, {fabric.n_ports} ports, {fabric.n_cells} cells, K = {count}:"
            f" named in {named} of {chips}, in the list of cells that no light tells of in"
            f" {untold} more; {np.mean(sizes):.2f} cells on average, at most {max(sizes)};"
            f" {spent / chips:.2f} s each"
        )


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 100,
        float(sys.argv[2]) if len(sys.argv) > 2 else 0.0,
    )
