"""Content that is far too large is refused in a second and 200 MiB, with the variable to raise."""

import gzip
import io
import json
import re
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import optmatch as om
from optmatch.fabrics import NetlistError, netlist_from_tree
from optmatch.io import dumps, loads, read_chakra, read_matrix, read_netlist
from optmatch.io.rails.chakra import read_groups
from optmatch.io.rails.phases import read_phase_list, read_recorded_step
from tests.helpers.command import call, put
from tests.helpers.fuzzing import memory

NPY = b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f8', 'fortran_order': False, 'shape': (%b)}"
MEBIBYTE = bytes(1 << 20)
FILE = (
    '{"format": "optmatch/problem/1", "kind": "all-to-all",'
    ' "fabric": {"type": "hex-mesh", "rows": 10000, "cols": 10000}}'
)
LAUGH = b"%c: &%c [*%c, *%c]\n"
LINE = "DP start_backend: 1 start_idx: 0 end_backend: 1 end_idx: 9 len: 1000000000\n"


def bomb() -> bytes:
    """Return an archive whose directory states an array of nearly 4 GiB."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", (NPY % b"536870900,").ljust(127) + b"\n" + MEBIBYTE)
    size = (128 + len(MEBIBYTE)).to_bytes(4, "little")
    return packed.getvalue().replace(size, b"\xf0\xff\xff\xff")


def crowd() -> bytes:
    """Return an archive whose directory names half a million arrays."""
    entry = b"PK\1\2" + bytes(24) + b"\1\0" + bytes(16) + b"a"
    size = (500_000 * len(entry)).to_bytes(4, "little")
    return entry * 500_000 + b"PK\5\6" + bytes(8) + size + bytes(6)


FILES: dict[str, tuple[bytes, Callable[[Path], object]]] = {
    "a.npz": (bomb(), read_matrix),
    "b.npz": (crowd(), read_matrix),
    "a.npy": ((NPY % b"9999999, 9999999").ljust(127) + b"\n", read_matrix),
    "a.mtx": (b"%%MatrixMarket matrix coordinate real general\n99999 99999 0\n", read_matrix),
    "a.json": (b'{"1": {"n": 99999, "scaled_doubly_stochastic_matrix": [1]}}', read_matrix),
    "a.0.et": (gzip.compress(MEBIBYTE, mtime=0) * 300 + b"\0\0\0\x40", lambda p: read_chakra([p])),
    "b.0.et": (b"\xff\xff\xff\xff\x0f" + MEBIBYTE, lambda path: read_chakra([path])),
    "a.yml": (b"[" * 100_000, read_netlist),
    "b.yml": (b"".join(LAUGH % (k + 1, k + 1, k, k) for k in range(97, 120)), read_netlist),
    "c.json": (b'{"a": [0, 1000000000]}', read_groups),
    "d.json": (
        b'[{"rank": 1000000000, "operation": "compute", "compute_s": 1}]',
        lambda path: read_phase_list(path, {}),
    ),
    "a.csv": (
        b"rank,group,operation,count,size_bytes\n0,a,all-reduce,1000000000,1\n",
        lambda path: read_phase_list(path, {"a": (0, 1)}),
    ),
    "a_0_rank0.txt": (
        LINE.encode() * 4,
        lambda path: read_recorded_step(path.with_name("a"), {"dp": (0,)}),
    ),
}  # fmt: skip
MADE: dict[str, Callable[[], object]] = {
    "hexagons": lambda: om.HexMesh(10_000, 10_000),
    "a long mesh": lambda: om.TriangularMesh(10**5, 1),
    "a file": lambda: loads(FILE),
    "Benes": lambda: om.Benes(10**7),
    "crossbar": lambda: om.Crossbar(10**5),
    "Clements": lambda: om.Clements(10**9),
    "ideal": lambda: om.IdealSwitch(10**9),
    "pairs": lambda: om.AllToAll(om.IdealSwitch(10**6)),
    "planes": lambda: om.Demand.from_matrix([[0]], delay_s=0.0, planes=10**9),
    "ranks": lambda: om.Parallelism(dp=10**9),
    "collective": lambda: om.Collective("all-reduce", 10**9, 1.0),
    "racks": lambda: om.RackFabric(racks=10**9),
    "depth": lambda: loads("[" * 100_000),
}


def refuse(make: Callable[[], object]) -> str:
    """Return the message, if it came in time: in that of users, without coverage."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        started, before = time.process_time(), memory(reset=True)
        with pytest.raises(om.InputError) as caught:
            make()
        spent_s, grown = time.process_time() - started, memory() - before
    finally:
        sys.settrace(tracer)
    assert spent_s < 1
    assert grown < 200
    return str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_files(name: str, tmp_path: Path) -> None:
    content, read = FILES[name]
    path = put(tmp_path, name, content)
    assert name in refuse(lambda: read(path))


@pytest.mark.parametrize("name", MADE)
def test_constructors(name: str) -> None:
    assert re.search("OPTMATCH_MAX_|nested too deeply", refuse(MADE[name]))


@pytest.mark.parametrize(
    "arguments",
    [
        "all-to-all --rows 99999 --cols 99999",
        "demand --delay 0 --model uniform --fabric ideal-switch --size 99999",
        "demand --delay 0 --model permutations --count 1000000000 --fabric ideal-switch --size 9",
        "demand --delay 0 --model zipf-moe --tokens 1000000000 --fabric ideal-switch --size 9",
        "demand --delay 0 --model solstice --large 1000000000 --fabric ideal-switch --size 9",
        "demand --delay 0 --model zipf-moe --exponent 1e308 --fabric ideal-switch --size 9",
        "port-sharing --resources 1000000000000",
        "port-sharing --jobs 1000000000",
        "port-sharing --load 1e308",
        "slice-allocation --shape 99999x9999x9999",
        "slice-allocation --shape 2x2x1 --routes 1000000000",
        "rail-job --preset gpt3-175b-fsdp --gpus 1024 --ports-per-gpu 10000000",
        "rail-job --preset gpt3-175b-fsdp --gpus 1024 --measured-step 1e30",
        "demand --delay 0 --model uniform --bytes inf --fabric ideal-switch --size 9",
    ],
)
def test_the_command(arguments: str) -> None:
    started, before = time.process_time(), memory(reset=True)
    call("generate", *arguments.split(), code=2)
    assert time.process_time() - started < 1
    assert memory() - before < 200


def test_what_is_said_in_few_bytes_is_refused_or_read_at_once(tmp_path: Path) -> None:
    started = time.process_time()
    twice = {f"n{k}": {"instances": {"a": f"n{k + 1}", "b": f"n{k + 1}"}} for k in range(40)}
    last = {"instances": {"m": "mzi"}, "ports": {"in": "m,o1"}}
    with pytest.raises(om.InputError, match="at most 1000000"):
        netlist_from_tree({**twice, "n40": last})
    within = {"a": {"instances": {"x": "b"}}, "b": {"instances": {"x": "b"}}}
    with pytest.raises(NetlistError, match="part of itself"):
        netlist_from_tree(within)
    phases = put(
        tmp_path,
        "phases.csv",
        "rank,group,operation,size_bytes\n0,g,all-reduce,9\n100000,g,all-reduce,9\n",
    )
    assert read_phase_list(phases, {"g": (0, 100_000)}).rank.tolist() == [0, 100_000]
    assert time.process_time() - started < 3
    tree = json.loads(dumps(om.Routing(om.IdealSwitch(2), [1, 0])))
    tree["arrays"] = {"file": "x" * 5000 + ".npz", "sha256": "0" * 64}
    (tmp_path / "a.json").write_text(json.dumps(tree))
    with pytest.raises(om.InputError, match=r"the name of an \.npz file") as caught:
        om.load(tmp_path / "a.json")
    assert len(caught.value.message) < 4000
