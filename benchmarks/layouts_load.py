"""Whether gdsfactory builds our layouts, and finds the same fabrics in them.

It runs in two environments, as gdsfactory brings a hundred packages of its own:

    python benchmarks/layouts_load.py write FOLDER            # where optmatch is
    python benchmarks/layouts_load.py build FOLDER            # where gdsfactory is
    python benchmarks/layouts_load.py compare FOLDER          # where optmatch is
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FABRICS = {
    "benes-8": "Benes(8)",
    "dilated-benes-4": "DilatedBenes(4)",
    "spanke-benes-6": "SpankeBenes(6)",
    "crossbar-4": "Crossbar(4)",
    "switch-and-select-4": "SwitchAndSelect(4)",
    "piloss-4": "Piloss(4)",
    "clements-6": "Clements(6)",
    "reck-6": "Reck(6)",
    "hex-2x2": "HexMesh(2, 2)",
    "hex-3x3": "HexMesh(3, 3)",
    "square-2x2": "SquareMesh(2, 2)",
}


def fabric_of(name: str) -> Any:
    """Make a fabric of the list."""
    import optmatch as om

    kind, _, sizes = FABRICS[name].partition("(")
    return getattr(om, kind)(*(int(size) for size in sizes.rstrip(")").split(",")))


def write(folder: Path) -> None:
    """Write the layouts."""
    from optmatch.io.netlists.gdsfactory import layout_tree

    folder.mkdir(parents=True, exist_ok=True)
    for name in FABRICS:
        (folder / f"{name}.yml").write_text(json.dumps(layout_tree(fabric_of(name)), indent=1))


def build(folder: Path) -> None:
    """Build them with gdsfactory, and write the netlists that it finds in them."""
    import gdsfactory as gf

    gf.gpdk.PDK.activate()
    print("gdsfactory", gf.__version__)
    for name in FABRICS:
        component = gf.read.from_yaml((folder / f"{name}.yml").read_text())
        found = component.get_netlist()
        kept = {key: found[key] for key in ("instances", "nets", "ports")}
        (folder / f"{name}.json").write_text(json.dumps(kept, default=str))


def compare(folder: Path) -> None:
    """Read these as fabrics, and compare joins and ports by name."""
    import optmatch as om

    wrong = 0
    for name in FABRICS:
        fabric = fabric_of(name)
        path, cells = folder / f"{name}.json", {"mzi": "switch"}
        found = om.read_netlist(path, components=cells, open_pins=True)
        same = _joins(found) == _joins(fabric) and _ports(found) == _ports(fabric)
        wrong += not same
        print(f"{name:<22}{fabric.n_cells:>4} cells  {'the same' if same else 'DIFFERENT'}")
    sys.exit(wrong > 0)


def _names(fabric: Any) -> list[str]:
    return list(getattr(fabric, "instances", [f"cell{k}" for k in range(fabric.n_cells)]))


def _pin(fabric: Any, terminal: int) -> tuple[str, int]:
    return _names(fabric)[terminal // 4], terminal % 4


def _joins(fabric: Any) -> set[frozenset[tuple[str, int]]]:
    mate = fabric.graph.mate.tolist()
    return {frozenset((_pin(fabric, t), _pin(fabric, u))) for t, u in enumerate(mate) if u > t}


def _ports(fabric: Any) -> set[tuple[tuple[str, int], tuple[str, int]]]:
    ends = zip(
        fabric.source_terminals.tolist(), fabric.destination_terminals.tolist(), strict=True
    )
    return {(_pin(fabric, start), _pin(fabric, end)) for start, end in ends}


if __name__ == "__main__":
    {"write": write, "build": build, "compare": compare}[sys.argv[1]](Path(sys.argv[2]))
