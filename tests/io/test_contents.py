"""Foreign files are bounded: in bytes before and after unpacking, in headers, in depth."""

import gzip
import io
import json
import os
import subprocess
import sys
import threading
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import optmatch as om
from optmatch.io import dumps, loads
from optmatch.io.files import solution_from_tree
from optmatch.io.text import as_cell, decode, describe_content, read_arrays, read_bytes, unzip
from tests.helpers.command import DATA, call, process, put, refused
from tests.helpers.formats import places_in


def array(shape: str, size: int, kind: str = "<f8") -> bytes:
    """Return an array whose header states a shape, and so many zeros."""
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(size)


def zipped(
    shape: str, size: int, *, kind: str = "<f8", packing: int = zipfile.ZIP_DEFLATED
) -> bytes:
    """Return an archive with one such array."""
    return archive({"a.npy": array(shape, size, kind)}, packing)


def archive(members: dict[str, bytes], packing: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return an archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", packing) as written:
        for name, content in members.items():
            written.writestr(name, content)
    return packed.getvalue()


def patched(at: int, at_end: int, value: bytes) -> bytes:
    """Return an archive with another value in both headers of its array."""
    content = bytearray(zipped("(2, 3)", 48))
    end = content.index(b"PK\x01\x02")
    content[at : at + len(value)] = content[end + at_end : end + at_end + len(value)] = value
    return bytes(content)


PAIR = archive(dict.fromkeys(("a.npy", "b.npy"), array("(2,)", 16)))
TWICE = PAIR.replace(b"b.npy", b"a.npy")


@pytest.mark.parametrize(
    "packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_any_packing_that_python_knows_is_read(packing: int) -> None:
    assert read_arrays(zipped("(2, 3)", 48, packing=packing), "a.npz")["a"].shape == (2, 3)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (patched(6, 8, b"\1\0"), "is encrypted"),
        (patched(8, 10, b"\x09\0"), "compression method is not supported"),
        (patched(14, 16, b"abcd"), "Bad CRC-32"),
        (patched(22, 24, b"\x0a\0\0\0"), "Bad CRC-32"),
        (patched(22, 24, b"\xff\xff\xff\xfe"), "534773759 entries: at most"),
        (patched(18, 20, b"\5\0\0\0"), "Bad CRC-32"),
        (archive({"a/": b"", "a.npy": array("(2, 3)", 48)}), "no file of arrays"),
        (archive({"a.npy": array("(2, 3)", 40)}), "no file of arrays"),
        (archive({"a.txt": b"words"}), "no file of arrays"),
        (zipped("(2, -3)", 48), "no file of arrays"),
        (zipped("(2.0, 3)", 48), "no file of arrays"),
        (zipped("(0, 1000000000000)", 0), "1000000000000 entries: at most"),
        (zipped("(1000000000,)", 0, kind="|S0"), "1000000000 entries: at most"),
        (zipped("(2,)", 16, kind="|O"), "type object"),
        (TWICE, "'a.npy' is in it 2 times"),
        (zipped("(1000000, 1000000)", 8), r"an array of shape \(1000000, 1000000\)"),
        *[(zipped("(2, 3)", 48)[:cut], "") for cut in (1, 30, 60, -1)],
    ],
    ids=lambda value: type(value).__name__,  # archives tell the time, and names of tests may not
)
def test_odd_members_are_refused(content: bytes, complaint: str) -> None:
    with pytest.raises(om.FormatError, match=rf"a\.npz: .*{complaint}"):
        read_arrays(content, "a.npz")


def test_an_archive_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTMATCH_MAX_ENTRIES", "50000")
    with pytest.raises(om.FormatError, match=r"a\.npz: 1000\d\d entries: at most 50000 \(OPTMAT"):
        read_arrays(zipped("(100000,)", 800_000), "a.npz")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_byte_that_is_no_text_is_named_by_its_place(mark: bytes) -> None:
    content = mark + b"abc\xff"
    place = f"byte {len(mark) + 3} is 0xff"
    with pytest.raises(om.FormatError, match=place):
        decode(content, "a")
    passed_over: list[str] = []
    assert decode(content, "a", passed_over) == "abc\N{REPLACEMENT CHARACTER}"
    assert place in passed_over[0]


def test_gzip_is_unpacked_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(b"a" * 5000) + gzip.compress(b"b")
    assert unzip(packed, "a") == b"a" * 5000 + b"b"
    assert unzip(b"plain", "a") == b"plain"
    with pytest.raises(om.FormatError, match=r"cannot be read: .* ended before"):
        unzip(packed[:20], "a")
    monkeypatch.setenv("OPTMATCH_MAX_BYTES", "4000")
    with pytest.raises(om.FormatError, match="at most 4000"):
        unzip(packed, "a")


def test_a_file_is_bounded_and_a_name_may_be_odd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path, "a.json", b"[" * 5000)
    monkeypatch.setenv("OPTMATCH_MAX_BYTES", "4000")
    with pytest.raises(om.FormatError, match="at most 4000"):
        om.load(path)
    with pytest.raises(om.FormatError, match="cannot be read"):
        read_bytes("a\0b")


@pytest.mark.parametrize("text", ['{"a\\ud800": 1}', '["\\udfff x"]', '{"format": "\\uD9"}'])
def test_halves_of_surrogates_are_refused(text: str) -> None:
    with pytest.raises(om.FormatError):
        loads(text)


def test_what_lies_beside_a_file_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optmatch.io.files.MOST_BYTES", -1)
    problem = om.Demand(om.IdealSwitch(20), np.ones((20, 20)) - np.eye(20))
    om.save(problem, tmp_path / "a.json")
    (arrays,) = tmp_path.glob("*.npz")
    other = tmp_path / "other"
    arrays.rename(other)
    arrays.symlink_to(other)
    with pytest.raises(om.FormatError, match="no regular file"):
        om.load(tmp_path / "a.json")
    arrays.unlink()
    os.mkfifo(arrays)
    with pytest.raises(om.FormatError, match="no regular file"):
        om.load(tmp_path / "a.json")
    arrays.unlink()
    other.with_name(arrays.name).write_bytes(b"secret")
    with pytest.raises(om.FormatError, match=r"has another$"):
        om.load(tmp_path / "a.json")


def test_a_pipe_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    problem = om.AllToAll(om.IdealSwitch(3))
    om.save(problem, pipe)
    reader.join(10)
    assert loads(found[0]) == problem
    assert pipe.is_fifo()


def test_a_pipe_is_waited_for_aloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    text = dumps(om.AllToAll(om.HexMesh(2, 2, ports=4)))
    monkeypatch.setattr("optmatch.io.text._PATIENCE_S", 0.0)
    monkeypatch.setattr("optmatch.io.text._log.warning", lambda *_: pipe.write_text(text))
    shown = call("info", pipe)
    assert "hex-mesh" in shown.stdout


def test_what_is_already_open_is_written_to(tmp_path: Path) -> None:
    command = "generate demand --delay 1 --model uniform --fabric ideal-switch --size 400 -o"
    piped = process(*command.split(), "/dev/stdout").stdout.encode()
    program = [sys.executable, "-m", "optmatch", *command.split(), "/dev/stdout"]
    with (tmp_path / "a.json").open("wb") as file:
        subprocess.run(program, stdout=file, check=True)
    assert (tmp_path / "a.json").read_bytes() == piped
    assert isinstance(loads(piped), om.Demand)
    assert len(list(tmp_path.iterdir())) == 1
    answer = DATA / "answers" / "all-to-all.schedule.json"
    call("export", answer, "--to", "netlist", "-o", "/dev/null", code=2)


def test_arrays_for_which_there_is_no_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "load", load)
    with pytest.raises(om.FormatError, match=r"a\.npz: its arrays need more memory than there is"):
        read_arrays(zipped("(2, 3)", 48), "a.npz")


def test_a_seed_is_a_whole_number() -> None:
    problem = om.AllToAll(om.IdealSwitch(3))
    for seed in ("x", 1.5, -1, True):
        with pytest.raises(om.InputError, match="seed"):
            om.solve(problem, seed=seed)  # type: ignore[arg-type]
    with pytest.raises(om.InputError, match="problem"):
        om.solve("x")  # type: ignore[arg-type]


def test_a_spreadsheet_runs_no_name() -> None:
    assert [as_cell(entry) for entry in ("=A1", "@x", "+1", "-1", "a", -1)] == [
        "'=A1", "'@x", "'+1", "'-1", "a", -1
    ]  # fmt: skip


def test_the_limit_can_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTMATCH_MAX_CELLS", "10")
    with pytest.raises(om.InputError, match="OPTMATCH_MAX_CELLS"):
        om.HexMesh(3, 3)
    monkeypatch.setenv("OPTMATCH_MAX_CELLS", "1000")
    problem = om.AllToAll(om.HexMesh(3, 3))
    assert loads(dumps(problem)) == problem


# What files look like that a reader was given by mistake.


FILES = {
    "an execution trace of PyTorch": '{"schema": "1.1.1", "pid": 3, "nodes": []}',
    "a trace of PyTorch's profiler": '{"schemaVersion": 1, "traceEvents": []}',
    "a Chakra trace": '{"workload_graph": []}',
    "a file of communicator groups": '{"1": [0, 1], "2": [2, 3]}',
    "a list of phases": '[{"rank": 0, "operation": "compute", "compute_s": 1}]',
    "a file of optmatch (optmatch/problem/1)": '{"format": "optmatch/problem/1"}',
    "a timeline of memory": "[[-1, 1, 37888, 7], [-1, 1, 512, 7]]",
    "the nodes of a Chakra trace without": '[{"Id": 1, "NodeType": 4}]',
    "trace events without": '[{"ph": "X", "name": "gemm", "ts": 0}]',
    "a program of MSCCL": '<algo name="ring" nchannels="1">\n</algo>\n',
    "a plan of MSCCL++": '{"name": "a", "gpus": [{"id": 0, "threadblocks": []}]}',
    "a workload of SimAI": (
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1\n12\n"
        "embedding_layer -1 556000 ALLREDUCE 16777216 1 NONE 0 1 NONE 0 1\n"
    ),
    "a table of requests by LLMServingSim": (
        "instance id,request id,model,input,output,arrival,end_time,latency,queuing_delay,TTFT\n"
    ),
    "a matrix, which generate demand reads": "%%MatrixMarket matrix array real general\n",
    "a zip archive": "PK\x03\x04",
    "a database of SQLite": "SQLite format 3\x00",
}


@pytest.mark.parametrize(("name", "text"), FILES.items(), ids=str)
def test_files_are_recognised(name: str, text: str) -> None:
    assert describe_content(text.encode()).startswith(f": it looks like {name}")


def test_damaged_and_unknown_files() -> None:
    damaged = b'{"traceEvents": [{"ph": "X", '
    assert "profiler" in describe_content(damaged)
    for unknown in (b"", b"\x00\xff", b"1,2\n3,4\n", b"[]", b"3", b'{"a": 1}'):
        assert describe_content(unknown) == ""


def test_a_trace_of_another_kind_is_refused_by_its_name(tmp_path: Path) -> None:
    file = put(tmp_path, "execution.json", json.dumps({"schema": "1.1.1", "pid": 3, "nodes": []}))
    refused(
        "an execution trace of PyTorch",
        "generate",
        "rail-trace",
        "--kineto",
        file,
        "-o",
        tmp_path / "out.json",
    )
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize("path", sorted(DATA.glob("answers/*.json")), ids=lambda path: path.name)
def test_an_array_in_the_place_of_any_value_is_read_or_refused(path: Path) -> None:
    """A file may put an array of its archive anywhere; one place of each name is tried."""
    tree = json.loads(path.read_text())
    places = {key: holder for holder, key in places_in(tree) if isinstance(key, str)}
    for key, holder in places.items():
        value = holder[key]
        holder[key] = np.arange(3)
        with suppress(om.OptMatchError):
            solution_from_tree(tree)
        holder[key] = value
    assert solution_from_tree(tree).problem
