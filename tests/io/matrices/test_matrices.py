"""Demand matrices from foreign files, models of traffic, and the command that writes both."""

import io
import json
import re
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.io
import scipy.sparse

import optmatch as om
from optmatch.io import from_graph, loads, read_matrix
from optmatch.problems.demands.traffic import MODELS
from tests.helpers.command import call, put

MATRIX = [[0.0, 30.0, 1.5], [12.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "0,30,1.5\n12,0,0\n"),
        ("a.csv", "# rows = sources\nfrom,x,y,z\na,0,30,1.5\nb,12,0,0\n"),
        ("a.csv", "x;y;z\n0;30;1.5\n\n12;0;0  # half\n"),
        ("a.tsv", "0\t30\t1.5\r\n12\t0\t0\r\n"),
        ("a.txt", " 0   30 1.5\n12 0 0"),
        ("a.CSV", "\ufeffa, 0, 3e1, 1.5\nb, 12, 0, 0\n"),
    ],
)
def test_text(tmp_path: Path, name: str, text: str) -> None:
    """Separators, names of rows and columns, comments, marks of byte order."""
    path = put(tmp_path, name, text)
    assert read_matrix(path).tolist() == MATRIX
    assert read_matrix(path, transposed=True).tolist() == np.array(MATRIX).T.tolist()


def test_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", MATRIX)
    assert read_matrix(tmp_path / "a.npy").tolist() == MATRIX
    np.savez(tmp_path / "one.npz", demand=np.array(MATRIX, dtype=np.float32))
    assert read_matrix(tmp_path / "one.npz").tolist() == MATRIX
    np.savez(tmp_path / "two.npz", a=[[1]], b=[[2**53]])
    assert read_matrix(tmp_path / "two.npz", name="b").tolist() == [[2.0**53]]
    with pytest.raises(om.FormatError, match="several matrices, choose one by name: a, b"):
        read_matrix(tmp_path / "two.npz")
    with pytest.raises(om.FormatError, match="name = 'c': unknown; known are a, b"):
        read_matrix(tmp_path / "two.npz", name="c")


@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("kind", [int, float])
def test_matrix_market(tmp_path: Path, symmetry: str, sparse: bool, kind: type) -> None:
    given: Any = np.array([[0, 3, 5], [3, 0, 0], [5, 0, 7]], dtype=kind)
    if symmetry == "general":
        given = given[:2] * (1 if kind is int else 0.1)
    buffer = io.BytesIO()
    scipy.io.mmwrite(
        buffer, scipy.sparse.coo_matrix(given) if sparse else given, symmetry=symmetry
    )
    path = put(tmp_path, "a.mtx", buffer.getvalue())
    assert read_matrix(path).tolist() == given.tolist()


def test_matrix_market_patterns_and_duplicates(tmp_path: Path) -> None:
    """A pattern is ones; entries of one place add up."""
    header = "%%MatrixMarket matrix coordinate {} general\n% note\n2 2 3\n"
    path = put(tmp_path, "a.mtx", header.format("pattern") + "1 2\n1 2\n2 1\n")
    assert read_matrix(path).tolist() == [[0.0, 2.0], [1.0, 0.0]]


def test_qoblib_stacks_columns(tmp_path: Path) -> None:
    instance = {"n": 2, "scaled_doubly_stochastic_matrix": [1, 2, 3, 4], "weights": [1]}
    path = put(tmp_path, "q.json", json.dumps({"_license": "CC-BY-4.0", "7": instance}))
    assert read_matrix(path).tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert read_matrix(path, name="7").tolist() == [[1.0, 3.0], [2.0, 4.0]]


MARKET = "%%MatrixMarket matrix coordinate real general\n"
BROKEN = [
    ("a.csv", "0,1\n2,x\n", ":2: 'x': a number is expected"),
    ("a.csv", "0,1\n2\n", ":2: 1 numbers, but 2 in the lines before"),
    ("a.csv", "0,nan\n", r"matrix\[0, 1\] = nan: not a finite number"),
    ("a.csv", "0,9007199254740993\n", ":1: 9007199254740993: whole numbers above"),
    ("a.csv", "# nothing\n", "no numbers in it"),
    ("a.csv", b"\xff\xfe", "byte 0 is 0xff: a file is UTF-8 text"),
    ("a.xls", "", "suffix '.xls': matrices end in .csv"),
    ("a.npy", "no array", "is no file of arrays"),
    ("a.npz", "PK\x03\x04 cut off", "is (damaged|no file of arrays)"),
    ("a.mtx", "1 2 3\n", ":1: not Matrix Market"),
    ("a.mtx", MARKET.replace("real", "complex") + "1 1 0\n", "complex general: a demand is real"),
    ("a.mtx", MARKET.replace("general", "hermitian") + "1 1 0\n", "real hermitian: a demand is"),
    ("a.mtx", MARKET.replace("coordinate real", "array pattern") + "1 1\n1\n", "pattern"),
    ("a.mtx", MARKET, ":2: the line with the size is missing"),
    ("a.mtx", MARKET + "2 2 1\n1 1 4.5\0 3\n", ":3: .* no entry"),
    ("a.csv", "0,1_0\n", "'1_0': a number is expected"),
    ("a.csv", "0," + "1" * 5000 + "\n", "whole numbers above"),
    ("a.json", '{"1": {"n": -1, "scaled_doubly_stochastic_matrix": [1]}}', "n = -1 does not"),
    ("a.mtx", MARKET + "2 2\n", ":2: '2 2': 3 whole numbers"),
    ("a.mtx", MARKET + "2 2 1\n", "0 entries, but 1 are announced"),
    ("a.mtx", MARKET + "2 2 1\n1 1 5\n2 2 5\n", ":4: 2 entries, but 1 are"),
    ("a.mtx", MARKET + "2 2 1\n3 1 5\n", ":3: '3': rows or columns are 1 .. 2"),
    ("a.mtx", MARKET + "2 2 1\n1 0 5\n", ":3: '0': rows or columns are"),
    ("a.mtx", MARKET + "2 2 1\n1 1 five\n", ":3: 'five': a number is expected"),
    ("a.mtx", MARKET + "2 2 1\n1 1\n", ":3: '1 1': no entry"),
    ("a.mtx", MARKET + "2 -2 1\n", ":2: '2 -2 1': 3 whole numbers"),
    ("a.mtx", MARKET + "2 2 1\n1 1 1e999\n", "a number is finite"),
    ("a.mtx", MARKET + f"{10**20} 2 1\n", "a size far too large"),
    ("a.mtx", MARKET + f"{10**9} 3 1\n1 1 1\n", "1000000000 ports: at most"),
    ("a.mtx", MARKET + "1000000 1000000 1\n1 1 1\n", "1000000000000 entries: at most"),
    ("a.mtx", MARKET + "2 2 9000000000\n1 1 1\n", "9000000000 entries: at most"),
    (
        "a.mtx",
        MARKET.replace("real", "integer") + "1 1 1\n1 1 9007199254740993\n",
        "9007199254740993: whole numbers above",
    ),
    ("a.mtx", MARKET.replace("general", "symmetric") + "2 3 0\n", "symmetric, but not square"),
    ("a.json", "{}", "an instance of QOBLIB .key 'scaled_doubly"),
    ("a.json", "{", "not JSON"),
    ("a.json", '{"1": {"n": 2, "scaled_doubly_stochastic_matrix": [1]}}', "/1/n: n = 2 does not"),
    ("a.json", '{"1": {"n": 1, "scaled_doubly_stochastic_matrix": ["1"]}}', "'1': a number is"),
    ("a.csv", "from,a,b\na,1,2\nc,3,4\n", "row 'c' stands where column 'b' does"),
    ("a.csv", "from,a,b\nb,1,2\na,3,4\n", "row 'b' stands where column 'a' does"),
    ("a.csv", ",1,2\n2,0,5\n1,3,0\n", "row '2' stands where column '1' does"),
    ("a.csv", "from,a,a\na,1,2\na,3,4\n", "'a' names 2 rows or columns"),
    ("a.csv", "x,1,2\nx,3,4\n", "'x' names 2 rows or columns"),
    ("a.csv", "0,1\n2,\n", ":2: '': .* could be 0 or a value that is missing"),
    ("a.csv", "x;y\n0;1,234\n2,345;0\n", "could be 1.234 .* or 1234 with a comma before"),
    ("a.csv", "time,src,dst,bytes\n0,1,0,5\n", "a list of flows .*read_flows"),
    ("a.csv", "src,dst,bytes\n0,1\n", ":2: 2 fields: an edge has 3"),
    ("a.csv", ",dst,src\n", "column '' is no traffic"),
    ("a.csv", "src,dst,bytes\n0,1,x\n", ":2: 'x': a number is expected"),
    ("a.csv", "src,dst,bytes\n", "no edges below the names of its columns"),
    ("a.json", "[[0, true], [3, 0]]", "/0/1: True: a number is expected"),
    ("a.json", '[[0, 1], ["3", 0]]', "/1/0: '3': a number is expected"),
    ("a.csv", "src,dst,bytes\n0,9999999999,1\n", "10000000000 ports: at most"),
    ("a.csv", "src,dst,size_gb\na,b,5\n", "'gb' could be bits or bytes"),
    ("a.csv", "src,dst,bytes,bits\na,b,1,8\n", "several columns of traffic"),
    ("a.csv", "0;1,5\n2.5;0\n", "one decimal"),
    ("a.json", '{"traffic": [[0, 5], [3, 0]]}', "a list of rows of numbers"),
    ("a.txt", "?SNDlib native format; type: network; version: 1.0\n", "SNDlib's native format"),
    (
        "a.csv",
        "src,dst,bytes\n0,1,9007199254740992\n0,1,5\n",
        "add up to 9007199254740996, and whole",
    ),
]


@pytest.mark.parametrize(("name", "content", "message"), BROKEN)
def test_broken_files_are_named(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    path = put(tmp_path, name, content)
    with pytest.raises(om.FormatError, match=message) as caught:
        read_matrix(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["x,y\na,b\n", "x,y,z,more\na,b,1,2\n", "x,y\na,b,1\n"])
def test_edges_without_known_names_have_three_fields(tmp_path: Path, text: str) -> None:
    """Nothing stands behind the amounts that could be dropped; and the names are as many."""
    with pytest.raises(om.FormatError, match=r":1: [24] fields: an edge has 3"):
        read_matrix(put(tmp_path, "a.csv", text), layout="edges")


def test_other_mistakes(tmp_path: Path) -> None:
    """A file that is not there, a name where there is one matrix, an array of three dimensions."""
    with pytest.raises(om.FormatError, match="cannot be read: No such file"):
        read_matrix(tmp_path / "none.csv")
    with pytest.raises(om.FormatError, match="hold one matrix"):
        read_matrix(put(tmp_path, "a.csv", "1,2"), name="x")
    np.save(tmp_path / "a.npy", np.zeros((1, 2, 3)))
    with pytest.raises(om.FormatError, match="matrix has 3 dimensions, not 2"):
        read_matrix(tmp_path / "a.npy")
    np.save(tmp_path / "c.npy", np.array([[1j]]))
    with pytest.raises(om.FormatError, match="matrix is not an array of numbers"):
        read_matrix(tmp_path / "c.npy")
    np.save(tmp_path / "b.npy", np.array([[2**53 + 1]]))
    with pytest.raises(om.FormatError, match="9007199254740993: above"):
        read_matrix(tmp_path / "b.npy")


def test_graphs() -> None:
    directed = nx.MultiDiGraph()
    directed.add_edge("a", "b", weight=3)
    directed.add_edge("a", "b", weight=4)
    directed.add_edge("b", "b")
    matrix, nodes = from_graph(directed)
    assert nodes == ["a", "b"]
    assert matrix.tolist() == [[0.0, 7.0], [0.0, 1.0]]
    mutual = nx.Graph()
    mutual.add_edge(0, 1, bytes=2.5)
    assert from_graph(mutual, "bytes")[0].tolist() == [[0.0, 2.5], [2.5, 0.0]]
    mutual.add_edge(0, 2, bytes="much")
    with pytest.raises(om.InputError, match="edge 0 - 2: bytes = 'much'"):
        from_graph(mutual, "bytes")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n", [1, 2, 9])
def test_models(name: str, n: int) -> None:
    options: dict[str, Any] = {"top": 1} if name == "zipf-moe" else {}
    first, again = (MODELS[name](n, np.random.default_rng(3), **options) for _ in range(2))
    assert first.tolist() == again.tolist()
    assert om.Demand.from_matrix(first, delay_s=0.0).exact
    if n == 9:
        other = MODELS[name](n, np.random.default_rng(4), **options)
        assert (other.tolist() == first.tolist()) == (name == "all-to-all")
        assert np.count_nonzero(first) >= n


def test_permutations_and_solstice_have_equal_lines() -> None:
    rng = np.random.default_rng(0)
    sums = MODELS["permutations"](16, rng, count=10, bytes=1).sum(axis=0)
    assert sums.tolist() == [10.0] * 16
    flows = MODELS["solstice"](32, rng, large=2, small=3, share=0.6, window=1e-3)
    assert flows.sum(axis=0) == pytest.approx(np.full(32, 1e-3), rel=1e-4)
    assert np.count_nonzero(flows, axis=1).max() <= 5
    largest = np.sort(flows, axis=1)[:, -2:].sum()
    assert largest == pytest.approx(0.6 * 32e-3, rel=0.2)
    noisy = MODELS["solstice"](32, rng, noise=0.01)
    assert len(set(noisy.sum(axis=0).tolist())) > 16


def test_mutual_models_suit_bidirectional_ports() -> None:
    for name in ("permutations", "solstice"):
        for n in (4, 7):
            demand = MODELS[name](n, np.random.default_rng(0), mutual=True)
            assert (demand == demand.T).all()
            assert demand.any()
            assert not demand.diagonal().any()


def test_experts_differ_in_popularity() -> None:
    """A token goes to different experts; with a large exponent nearly all go to one."""
    rng = np.random.default_rng(0)
    even = MODELS["zipf-moe"](8, rng, tokens=500, top=8, bytes=1)
    assert even.sum(axis=1).tolist() == [3500.0] * 8  # all experts but one's own
    skewed = MODELS["zipf-moe"](8, rng, tokens=500, top=1, exponent=8, bytes=1)
    assert skewed.sum(axis=0).max() > 0.9 * skewed.sum()
    with pytest.raises(om.InputError, match="top = 9: there are 8 experts"):
        MODELS["zipf-moe"](8, rng, top=9)


def generate(*arguments: str, code: int = 0) -> Any:
    """Run `optmatch generate demand`."""
    return call("generate", "demand", *arguments, code=code)


def test_generate_from_a_file(tmp_path: Path) -> None:
    """The switch fits the matrix, unless one is named; all options reach the problem."""
    path = str(put(tmp_path, "a.csv", "0,30\n12,0\n"))
    options = ("--rate", "2", "--delay", "0.5", "--planes", "3", "--packet-rate", "0.25")
    more = ("--min-slot", "1", "--quantum", "0.5", "--switching", "per-circuit", "--transposed")
    result = generate("--matrix", path, *options, *more)
    wanted = om.Demand(
        om.IdealSwitch(2),
        np.array([[0.0, 12.0], [30.0, 0.0]]),
        rate_bytes_per_s=2.0,
        delay_s=0.5,
        planes=3,
        packet_bytes_per_s=0.25,
        min_slot_s=1.0,
        quantum_s=0.5,
        switching="per-circuit",
    )
    assert loads(result.stdout) == wanted
    wide = generate("--matrix", path, "--fabric", "ideal-switch", "--size", "5", "--delay", "0")
    assert loads(wide.stdout).fabric.n_ports == 5  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "either --matrix, --model or --kineto"),
        (("--matrix", "a.csv", "--model", "uniform"), "either --matrix, --model or --kineto"),
        (("--matrix", "a.csv", "--tokens", "5"), "--tokens: only with --model"),
        (("--model", "uniform", "--size", "3", "--name", "x"), "are for --matrix"),
        (
            ("--model", "gravity", "--rows", "2", "--cols", "2", "--noise", "1"),
            "no option of grav",
        ),
        (
            (
                "--model",
                "gravity",
            ),
            "--rows: needed for hex-mesh",
        ),
        (("--matrix", "none.csv"), "none.csv: cannot be read"),
    ],
)
def test_generate_refuses(arguments: tuple[str, ...], message: str) -> None:
    result = generate("--delay", "0", *arguments, code=2)
    assert re.search(message, result.output)


def test_generate_asks_for_the_delay() -> None:
    options = ("--model", "all-to-all", "--fabric", "ideal-switch", "--size", "3")
    forgotten = generate(*options, code=2)
    assert "--delay: " in forgotten.output
    generate(*options, "--objective", "matchings")


@pytest.mark.parametrize("model", MODELS)
def test_generate_from_a_model(model: str) -> None:
    ideal = ("--fabric", "ideal-switch", "--size", "6", "--delay", "0", "--model", model)
    first, again, other = (generate(*ideal, "--seed", seed).stdout for seed in ("0", "0", "1"))
    assert first == again
    assert (first == other) == (model == "all-to-all")
    mesh = generate("--rows", "4", "--cols", "4", "--ports", "7", "--delay", "0", "--model", model)
    assert isinstance(loads(mesh.stdout), om.Demand)
