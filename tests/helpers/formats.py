"""A small valid input of every format, and its reader."""

import gzip
import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import optmatch as om
from optmatch.commands.sweep import generated
from optmatch.fabrics import FABRICS
from optmatch.io import (
    dumps,
    load,
    loads,
    read_device,
    read_jobs,
    read_matrix,
    read_netlist,
    read_resources,
)
from optmatch.io.cells import read_cells, write_cells
from optmatch.io.exports import exported
from optmatch.io.files import write_device
from optmatch.io.rails.chakra import (
    COLLECTIVE,
    RECEIVE,
    SEND,
    Node,
    read_chakra,
    read_groups,
    read_step,
    siblings,
    trace_bytes,
)
from optmatch.io.rails.phases import read_phase_list, read_recorded_step
from optmatch.io.rails.triggers import read_triggers
from optmatch.io.text import digest
from optmatch.model import DEVICES, CellDevice
from optmatch.solvers.reroutes.states import hold_matching
from optmatch.sweeps.sweep import read_spec
from tests.helpers.chakra import workload_graph

DATA = Path(__file__).resolve().parents[1] / "data"
INSTANCES = DATA.parents[1] / "instances"

Files = dict[str, bytes]


class Seed(NamedTuple):
    """The files of one input, and the reader of the first of them."""

    files: Files
    read: Callable[[Path], object]


FABRIC_FIELDS: dict[str, dict[str, Any]] = {
    "hex-mesh": {"rows": 3, "cols": 3, "ports": [0, 5, 9]},
    "square-mesh": {"rows": 2, "cols": 3, "tx": [0, 1], "rx": [2, 3]},
    "triangular-mesh": {"rows": 3, "cols": 3, "ports": 2},
    "smartlight": {"ports": 6},
    "rack": {},
    "faulty": {"fabric": {"type": "hex-mesh", "rows": 2, "cols": 2}, "stuck_bar": [1]},
    "netlist": {
        "instances": ["m"],
        "connections": {},
        "ports": [["w", "m,a1"], ["v", "m,a2"], ["e", "m,b1"], ["f", "m,b2"]],
    },
}
"""The least fields of fabrics; of others the size."""

_NETLIST = {
    "instances": {"m1": "mzi", "m2": {"component": "mzi", "settings": {"length": 1.5}}},
    "connections": {"m1,o3": "m2,o2", "m1,o4": "m2,o1"},
    "ports": {"in0": "m1,o2", "in1": "m1,o1", "out0": "m2,o3", "out1": "m2,o4"},
}
_YAML = """instances:
  m1: {component: mzi, settings: &s {length: 1.5}}
  m2: {component: mzi, settings: *s}
connections:
  m1,o3: m2,o2
  m1,o4: m2,o1
ports: {in0: "m1,o2", in1: "m1,o1", out0: "m2,o3", out1: "m2,o4"}
"""
_PHASES = """rank, group, operation, count, size_bytes, compute_s, peer
0, d0, all-reduce, 3, 1e9, 0.5,
1, d0, all-reduce, 3, 1e9, 0.25,
0, p0, send, , 8, , 2
2, p0, recv, , 8, , 0
3, , compute, , , 1.5,
"""
_GROUPS = b'{"d0": [0, 1], "p0": [0, 2]}'
_PAIR = b'{"1": [0, 1], "dp": [0, 1], "pp": [0, 1]}'
_RECORDING = "Node: n1, Rank: 0, Tid: 7\n" + "".join(
    f"{kind} start_backend: {1 + (kind == 'DP')} start_idx: {k} end_backend: 1 end_idx: {k}"
    f" len: 1, start_time: {k}.5, end_time: {k + 1}.0\n"
    for k in range(6)
    for kind in ("PP", "DP")
)


def _nodes(rank: int) -> list[Node]:
    """Return the trace of one of two ranks."""
    size: dict[str, int | str] = {"comm_size": 9, "comm_tag": 4}
    collective: dict[str, int | str] = {"comm_size": 8, "comm_type": 0, "pg_name": "1"}
    return [
        Node(1, SEND, "to", attributes={**size, "comm_dst": 1 - rank}),
        Node(2, RECEIVE, "", [1], attributes={**size, "comm_src": 1 - rank}),
        Node(3, COLLECTIVE, "", [2], attributes=collective),
        Node(4, duration_us=5, parents=[3]),
    ]


_MARKET = "%%MatrixMarket matrix coordinate real general\n% a\n3 3 2\n1 2 4.5\n3 1 2\n"
_QOBLIB = '{"7": {"n": 2, "scaled_doubly_stochastic_matrix": [1, 2, 3, 4], "scale": 5}}'
_COFLOWS = """{"format": "optmatch/problem/1", "kind": "demand",
"fabric": {"type": "ideal-switch", "n": 3}, "demand_bytes": [[0, 2, 1], [0, 0, 0], [3, 0, 0]],
"delay_s": 0.5, "objective": "weighted-completion-s", "weights": [1, 2.5],
"deadlines_s": [9, 80], "groups": [[-1, 0, 1], [-1, -1, -1], [1, -1, -1]]}"""
_PORTS = "cpu,data,arrival_s,departure_s,plane\n4,1,0,5,0\n8,2.5,1,9,1\n"
_JOBS = "demand,cpu,cap.0,cap.1\n1,6,1,1\n1,0,2,0\n"
_SPEC = """problems = ["*.json"]
methods = ["default", "ilp"]
seeds = [1, 3]
[limits]
time_s = 2.5
[[generate]]
command = "all-to-all --fabric ideal-switch --size {size}"
name = "all-{size}"
size = [3, 4]
"""


CHIP = CellDevice.of("smartlight", om.Benes(4).n_cells).draw({"bar_loss_db": 0.1}, 0)
"""The chip of the tables of cells."""


def places_in(tree: Any) -> Iterator[tuple[Any, Any]]:
    """List the places of a tree of JSON: a list or an object, and the index or key of an entry."""
    entries: Any = ()
    if isinstance(tree, dict):
        entries = list(tree.items())
    elif isinstance(tree, list):
        entries = list(enumerate(tree))
    for key, value in entries:
        yield tree, key
        yield from places_in(value)


def seeds() -> dict[str, list[Seed]]:
    """Return valid inputs of each format."""
    small = [p for p in sorted(INSTANCES.glob("*/*.json")) if p.stat().st_size < 10_000]
    good = sorted((DATA / "good").glob("*.json")) + sorted((DATA / "answers").glob("*.json"))
    problems = [p.read_bytes() for p in [*small, *good] if not p.match("*.schedule.json")]
    problems += [*fabrics(), _COFLOWS.encode()]
    schedules = [p.read_bytes() for p in good if p.match("*.schedule.json")]
    device = write_device(DEVICES["smartlight"]).encode()
    quick = ("routing", "demand", "collective", "sharing-flow", "slice")
    starts = [(DATA / "answers" / f"{name}.schedule.json").read_bytes() for name in quick]
    traces: list[Files] = [
        {f"a.{rank}.et": trace_bytes(_nodes(rank)) for rank in range(2)},
        {f"a.{rank}.et": gzip.compress(trace_bytes(_nodes(rank)), mtime=0) for rank in range(2)},
        {f"a.{rank}.json": workload_graph(_nodes(rank)).encode() for rank in range(2)},
    ]
    triggers = str(exported(_plan(), "triggers")).encode()
    return {
        "problem": [Seed({"a.json": text}, read_and_verify) for text in problems],
        "schedule": [Seed({"a.json": text}, read_and_verify) for text in schedules],
        "arrays": [Seed(_beside(text), read_and_verify) for text in schedules],
        "device": [Seed({"a.json": device}, read_device)],
        "matrix": [Seed({name: text}, _demand) for name, text in _matrices().items()],
        "trace": [Seed({**files, "g.json": _PAIR}, _trace) for files in traces],
        "netlist": [
            Seed({"a.yml": _YAML.encode()}, _netlist),
            Seed({"a.json": json.dumps(_NETLIST).encode()}, _netlist),
        ],
        "phases": [
            Seed({"a.csv": _PHASES.encode(), "g.json": _GROUPS}, _phases),
            Seed({"a.json": _as_json(_PHASES), "g.json": _GROUPS}, _phases),
        ],
        "recording": [
            Seed(
                {f"a_{k}_rank0.txt": _RECORDING.encode() for k in range(2)} | {"g.json": _PAIR},
                _recording,
            )
        ],
        "memory": [Seed({"a.db": _memory()}, _controller)],
        "cells": [
            Seed({name: write_cells(CHIP, as_json=name == "a.json").encode()}, _cells)
            for name in ("a.csv", "a.json")
        ],
        "start": [Seed({"a.json": text}, _start) for text in starts],
        "triggers": [Seed({"a.json": triggers}, _triggers)],
        "spec": [Seed({"a.toml": _SPEC.encode(), "a.json": problems[0]}, _spec)],
        "table": [
            Seed({"a.csv": _PORTS.encode(), "b.csv": _JOBS.encode()}, _sharing),
            Seed({"b.csv": _JOBS.encode(), "a.csv": _PORTS.encode()}, _sharing),
            Seed({"a.csv": _packed(_PORTS), "b.csv": _JOBS.encode()}, _sharing),
        ],
    }


def read_and_verify(path: Path) -> object:
    """Read a problem or an answer and verify it; digests that changed are put right once."""
    for _ in range(3):
        try:
            found = load(path)
            break
        except om.InputError as exc:
            right = re.search(r"in this file has (\w{64})", str(exc))
            beside = path.parent / "b.npz"
            if exc.where == "/problem_sha256" and right:
                sha256 = right[1]
            elif exc.where == "/arrays/sha256" and beside.exists():
                sha256 = digest(beside.read_bytes())
            else:
                raise
            tree = json.loads(path.read_bytes())
            part = tree if exc.where == "/problem_sha256" else tree["arrays"]
            part["problem_sha256" if part is tree else "sha256"] = sha256
            path.write_text(json.dumps(tree))
    else:
        found = load(path)
    if isinstance(found, om.Solution):
        return str(om.verify(found.problem, found))
    return loads(dumps(found)) == found or 1 / 0


def _memory() -> bytes:
    """Return the files of a controller after a failure and a refusal."""
    state = hold_matching(om.HexMesh(2, 2, ports=[0, 5, 10, 15]), [1, 0, -1, -1])
    controller = om.Rerouter(state)
    controller.apply(controller.fail(port=0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        controller.save(path)
        return path.read_bytes()


def _controller(path: Path) -> object:
    controller = om.Rerouter.load(path)
    controller.save(path)
    assert om.Rerouter.load(path).state == controller.state
    return controller.stand_ins


@cache
def _plan() -> om.Solution:
    """Return a small plan of rails."""
    answer: Any = load(DATA / "answers" / "rail-job.schedule.json")
    return answer  # type: ignore[no-any-return]


def _cells(path: Path) -> object:
    """Read what `generate device` writes, and take it as a chip."""
    cells = read_cells(path, CHIP.n_cells)
    path.write_text(write_cells(cells))
    assert read_cells(path, CHIP.n_cells) == cells
    for goal in ("worst-loss-db", "worst-snr-db"):
        chip = om.Routing(om.Benes(4), [1, 0, 3, 2], cells=cells, objective=goal)
        assert loads(dumps(chip)) == chip
        assert om.verify(chip, om.solve(chip, seed=0, limits=om.Limits(iterations=1))).valid
    return cells


def _start(path: Path) -> object:
    """Go on from a changed answer to the question that it answers now."""
    read_and_verify(path)
    start = load(path)
    if not isinstance(start, om.Solution):
        raise om.InputError("an answer is expected")
    found = om.solve(
        start.problem, start=start, seed=0, limits=om.Limits(iterations=1, time_s=0.1)
    )
    report = om.verify(start.problem, found)
    assert report.valid, report.violations
    return found


def _triggers(path: Path) -> object:
    job: Any = _plan().problem
    return read_triggers(path, job)


def _sharing(path: Path) -> object:
    resources = read_resources(path.with_name("a.csv"))
    return om.PortSharing(resources, read_jobs(path.with_name("b.csv"), resources)).lower_bound()


def _packed(table: str) -> bytes:
    """Return a table as Parquet."""
    from pyarrow import BufferReader, csv, parquet

    content = io.BytesIO()
    parquet.write_table(csv.read_csv(BufferReader(table.encode())), content)
    return content.getvalue()


def _spec(path: Path) -> object:
    return [task.key() for task in read_spec(path, generated)]


def _demand(path: Path) -> object:
    matrix = read_matrix(path)
    return om.Demand.from_matrix(matrix, om.IdealSwitch(max(1, *matrix.shape)), delay_s=1.0)


def _trace(path: Path) -> object:
    groups, prefix = path.with_name("g.json"), path.with_name("a")
    members, skipped = read_groups(groups), list[str]()
    read_chakra(siblings(path), groups=members, skipped=[])
    read_step(prefix, groups, skipped=skipped)
    read_chakra(siblings(path), groups=members)
    found = read_step(prefix, groups)
    assert not skipped, "strict reading refuses what lenient reading leaves out"
    return found


def _netlist(path: Path) -> object:
    fabric = read_netlist(path)
    return fabric.port_names, fabric.route_cells()


def _phases(path: Path) -> object:
    return read_phase_list(path, read_groups(path.with_name("g.json")))


def _recording(path: Path) -> object:
    return read_recorded_step(path.with_name("a"), read_groups(path.with_name("g.json")))


def fabrics() -> Iterator[bytes]:
    """Write a question on the least fabric of each kind."""
    for kind in FABRICS:
        tree: dict[str, Any] = {"format": "optmatch/problem/1", "kind": "all-to-all"}
        tree["fabric"] = {"type": kind, **FABRIC_FIELDS.get(kind, {"n": 4})}
        if kind == "rack":
            tree |= {"kind": "slice-allocation", "shape": [2, 2, 1]}
        yield dumps(loads(json.dumps(tree))).encode()


def _beside(text: bytes) -> Files:
    """Put the arrays of an answer, however small, into a file beside it."""
    tree, found = json.loads(text), dict[str, Any]()

    def refer(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: refer(value) for key, value in part.items()}
        if not isinstance(part, list) or np.ndim(part[:1]) != 2 or len(set(map(len, part))) > 1:
            return part
        found[f"a{len(found)}"] = np.array(part)
        return {"npz": f"a{len(found) - 1}"}

    tree["schedule"] = refer(tree["schedule"])
    content = io.BytesIO()
    np.savez_compressed(content, **found)
    tree["arrays"] = {"file": "b.npz", "sha256": digest(content.getvalue())}
    return {"a.json": json.dumps(tree).encode(), "b.npz": content.getvalue()}


def _matrices() -> Files:
    npy, npz = io.BytesIO(), io.BytesIO()
    np.save(npy, np.arange(9.0).reshape(3, 3))
    np.savez_compressed(npz, a=np.arange(4).reshape(2, 2))
    return {
        "a.csv": b"from,rack 1,rack 2\nrack 1,0,30\nrack 2,12.5,0\n",
        "a.txt": b"# a\n0 1 2\n3 0 1e3\n1 1 0\n",
        "a.mtx": _MARKET.encode(),
        "a.json": _QOBLIB.encode(),
        "a.npy": npy.getvalue(),
        "a.npz": npz.getvalue(),
    }


def _as_json(table: str) -> bytes:
    names, *rows = [line.split(", ") for line in table.replace(",\n", ", \n").splitlines()]
    return json.dumps(
        [{n: v.strip() for n, v in zip(names, row, strict=False) if v.strip()} for row in rows]
    ).encode()
