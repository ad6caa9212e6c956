"""`optmatch generate`: files of all-to-alls and matchings, and refused options."""

from pathlib import Path
from typing import Any

import pytest

import optmatch as om
from optmatch.commands.shared.options import draw_ports
from optmatch.fabrics import SmartLightMesh
from optmatch.io.switches.plans import list_planned_switches
from optmatch.model import CellDevice
from tests.helpers.command import (
    call,
    refused,
    snapshot,
)


def test_generate_writes_a_file_and_never_over_another(tmp_path: Path) -> None:
    path = tmp_path / "mesh.json"
    command = ("generate", "all-to-all", "--rows", "4", "--cols", "4", "--ports", "8", "-o", path)
    done = call(*command)
    assert done.stdout == ""
    assert done.stderr == (
        f"optmatch: {path}: written: all-to-all on hex mesh 4 x 4, 8 ports, delay 0 s, no answer"
        " is below 274 cells\n"
    )
    assert om.load(path) == om.AllToAll(om.HexMesh(4, 4, ports=8))
    again = call(*command, code=2)
    known = "is there already; --force replaces it, in Python force=True"
    assert again.stderr == f"optmatch: {path}: {known}\n"
    call(*command, "--force")


@pytest.mark.parametrize(
    ("options", "fabric"),
    [
        ("--rows 3 --cols 2 --ports 0,4,9", om.HexMesh(3, 2, ports=[0, 4, 9])),
        ("--rows 3 --cols 2 --ports 0,", om.HexMesh(3, 2, ports=[0])),
        ("--rows 3 --cols 2 --tx 0,5 --rx 7,2", om.HexMesh(3, 2, tx=[0, 5], rx=[7, 2])),
        ("--fabric smartlight --ports 12", SmartLightMesh(ports=12)),
        ("--fabric square-mesh --rows 2 --cols 2", om.SquareMesh(2, 2)),
        ("--fabric triangular-mesh --rows 2 --cols 2", om.TriangularMesh(2, 2)),
        ("--fabric ideal-switch --size 5", om.IdealSwitch(5)),
    ],
)
def test_generate_knows_every_fabric(options: str, fabric: om.Fabric) -> None:
    from optmatch.io import loads

    done = call("generate", "all-to-all", *options.split(), "--slot", "0.5", "--delay", "0.01")
    assert loads(done.stdout) == om.AllToAll(fabric, slot_s=0.5, delay_s=0.01)


def test_generate_lets_slots_wait_for_their_cells() -> None:
    from optmatch.io import loads

    done = call("generate", "all-to-all", "--fabric", "benes", "--size", "4", "--delay", "cells")
    cells = CellDevice.of("smartlight", om.Benes(4).n_cells)
    assert loads(done.stdout) == om.AllToAll(om.Benes(4), delay_s="cells", cells=cells)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("all-to-all --fabric smartlight --rows 2", "--rows: no option of smartlight"),
        ("all-to-all --rows 2", "--cols: needed for hex-mesh"),
        ("all-to-all --fabric octagon", "'octagon' is not one of 'hex-mesh'"),
        ("all-to-all --rows -2 --cols 2", "rows = -2: must be >= 1"),
        ("all-to-all --rows 2 --cols 2 --ports 0,20", "ports[1] = 20: perimeter terminals are"),
        ("all-to-all --rows 2 --cols 2 --ports 3,3", "ports[1] = 3: is ports[0] already"),
        ("all-to-all --rows 2 --cols 2 --ports 4 --delay soon", "'soon': seconds, or cells"),
        (
            "all-to-all --fabric benes --size 4 --delay cells --device ideal",
            "delay_s = 'cells': no cell has a settling time",
        ),
        (
            "all-to-all --fabric ideal-switch --size 4 --delay cells",
            "delay_s = 'cells': a device of each cell is needed",
        ),
        (
            "all-to-all --rows 2 --cols 2 --ports 4 --device mems-crossbar",
            "--device: does not matter for --objective total-cells",
        ),
        ("all-to-all --rows 2 --cols 2 --ports a,b", "'a,b': whole numbers, separated by commas"),
        ("all-to-all --rows 2 --cols 2 --delay nan", "'nan': seconds, or cells"),
        ("routing --fabric ideal-switch --size 2", "either --matching or --random-matching"),
        ("routing --fabric ideal-switch --size 2 --matching 1", "matching has 1 entries"),
        ("routing --fabric ideal-switch --size 2 --matching 1,1", "share destination 1"),
        ("routing --rows 2 --cols 2 --ports 2 --matching 0,1", "cannot meet itself"),
        ("demand --model uniform --size 2 --delay 0 --coflows 2", "only together"),
        (
            "demand --model uniform --fabric ideal-switch --size 2 --delay 0 --coflows 3"
            " --objective weighted-completion-s",
            "3 groups of 2 entries",
        ),
    ],
)
def test_generate_refuses(command: str, message: str, tmp_path: Path) -> None:
    refused(message, "generate", *command.split(), "-o", tmp_path / "a.json")
    assert snapshot(tmp_path) == {}


def test_random_matchings_repeat_and_use_every_port() -> None:
    """The same seed gives the same; an involution on bidirectional ports, one idle if odd."""
    mesh, switch = om.HexMesh(4, 4, ports=7), om.IdealSwitch(6)
    drawn = draw_ports(mesh.n_ports, mesh.bidirectional, 3)
    assert drawn == draw_ports(7, True, 3) != draw_ports(7, True, 4)
    assert drawn.count(-1) == 1
    assert all(drawn[drawn[i]] == i != drawn[i] for i in range(7) if drawn[i] >= 0)
    for seed in range(20):
        drawn = draw_ports(switch.n_ports, switch.bidirectional, seed)
        assert sorted(drawn) == list(range(6)) and all(i != j for i, j in enumerate(drawn))
    assert draw_ports(1, False, 0) == [0]


def test_coflows_are_drawn_over_all_entries() -> None:
    from optmatch.io import loads

    options = "--fabric ideal-switch --size 5 --model uniform --delay 1 --seed 2 --coflows 6"
    done = call("generate", "demand", *options.split(), "--objective", "weighted-completion-s")
    problem = loads(done.stdout)
    assert isinstance(problem, om.Demand) and problem.groups is not None
    assert ((problem.groups >= 0) == (problem.demand_bytes > 0)).all()
    assert set(problem.groups.ravel().tolist()) == set(range(-1, 6))
    assert len(problem.weights) == 6 and set(problem.weights) <= set(range(1, 11))


# Collectives at the command line.


def test_a_collective_has_the_fields_of_its_options(tmp_path: Path) -> None:
    path = tmp_path / "reduce.json"
    options = (
        "all-reduce --ranks 8 --bytes 1e6 --alpha 1.7e-6 --hop 1e-6 --delay 1e-5 --late 3=0.1"
    )
    call("generate", "collective", *options.split(), "-o", path)
    assert om.load(path) == om.Collective(
        "all-reduce", 8, 1e6, alpha_s=1.7e-6, hop_s=1e-6, delay_s=1e-5, late_s={"3": 0.1}
    )


def test_an_uneven_all_to_all_comes_from_a_matrix(tmp_path: Path) -> None:
    matrix, path = tmp_path / "bytes.csv", tmp_path / "uneven.json"
    matrix.write_text("0,6,0\n0,0,2\n1,1,0\n")
    call("generate", "collective", "all-to-all", "--matrix", matrix, "-o", path)
    problem: Any = om.load(path)
    assert problem.demand.tolist() == [[0, 6, 0], [0, 0, 2], [1, 1, 0]]
    assert problem.size_bytes == 7.0
    wrong = call(
        "generate", "collective", "all-to-all", "--matrix", matrix, "--ranks", "3", code=2
    )
    assert "either --ranks and --bytes, or --matrix" in wrong.stderr
    wrong = call("generate", "collective", "all-to-all", "--ranks", "3", code=2)
    assert "--ranks and --bytes, or --matrix" in wrong.stderr


@pytest.mark.parametrize(("n_ports", "first"), [(1, "b"), (2, "b.0")])
def test_ranks_have_the_names_that_the_matrix_gives_them(
    tmp_path: Path, n_ports: int, first: str
) -> None:
    """They were lost, and exports called ranks by their numbers."""
    matrix, path = tmp_path / "bytes.csv", tmp_path / "uneven.json"
    matrix.write_text("from,b,a,c\nb,0,6,0\na,0,0,2\nc,1,1,0\n")
    options = ["--matrix", matrix, "--ports-per-rank", n_ports, "--size", 3 * n_ports + 1]
    call("generate", "collective", "all-to-all", *map(str, options), "-o", path)
    problem: Any = om.load(path)
    assert problem.demand.tolist() == [[0, 6, 0], [0, 0, 2], [1, 1, 0]]
    assert problem.fabric.labels[0] == first
    assert problem.fabric.labels[-1] == str(3 * n_ports)
    for switch in list_planned_switches(om.solve(problem, seed=0)):
        assert switch.labels[0] == first


def test_a_size_alone_is_that_of_an_ideal_switch(tmp_path: Path) -> None:
    """It was passed over without `--fabric`."""
    path = tmp_path / "gather.json"
    sizes = "--ranks 4 --bytes 1e6 --size 9"
    call("generate", "collective", "all-gather", *sizes.split(), "-o", path)
    problem: Any = om.load(path)
    assert problem.fabric == om.IdealSwitch(9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("all-reduce --ranks 0 --bytes 1", "n_ranks = 0: must be >= 1"),
        ("all-reduce --ranks 4 --bytes -1", "size_bytes = -1: must be >= 0"),
        ("all-reduce --ranks 4 --bytes 1 --late 4=1", "late_s = '4': a rank of 4"),
        ("all-reduce --ranks 4 --bytes 1 --late x", "'x': 63=10ms, separated by commas"),
        ("all-sum --ranks 4 --bytes 1", "'all-sum' is not one of"),
        ("all-reduce --ranks 4 --bytes 1 --fabric ideal-switch --size 3", "a switch of 4 ports"),
    ],
)
def test_bad_options_are_named(options: str, message: str) -> None:
    refused(message, "generate", "collective", *options.split())


def test_a_method_that_does_not_fit_says_which_do(tmp_path: Path) -> None:
    path = tmp_path / "six.json"
    om.save(om.Collective("all-gather", 6, 6.0), path)
    refused(
        "these are: best, bruck, direct, mixed-radix, ring",
        "solve",
        path,
        "--method",
        "halving-doubling",
    )
