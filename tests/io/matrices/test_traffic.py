"""Traffic as people have it: labels, lists of edges, packed files, network libraries, flows."""

import gzip
import io
import json
import resource
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse

import optmatch as om
from optmatch.io import loads, read_flows, read_matrix, read_traffic
from tests.helpers.command import call, put


def read(folder: Path, name: str, content: str | bytes, **options: Any) -> tuple[Any, Any]:
    """Read a file as lists and names."""
    traffic = read_traffic(put(folder, name, content), **options)
    matrix = traffic.demand_bytes
    dense = matrix.toarray() if scipy.sparse.issparse(matrix) else matrix
    return dense.tolist(), traffic.names


EDGES = [[0.0, 30.0, 0.0], [0.0, 0.0, 20.0], [10.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    "text",
    [
        "src,dst,bytes\n0,1,30\n1,2,20\n2,0,10\n",
        "bytes;Source;Destination\n30;0;1\n20;1;2\n10;2;0\n",
        ",src,dst,bytes\n0,0,1,30\n1,1,2,20\n2,2,0,10\n",
        "from to weight\n0 1 12\n0 1 18\n1 2 20\n2 0 10\n",
    ],
)
def test_a_list_of_edges_is_no_matrix(tmp_path: Path, text: str) -> None:
    """By the names of its columns, with the index that pandas writes; the same pair adds up."""
    assert read(tmp_path, "edges.csv", text) == (EDGES, None)


def test_edges_between_words_need_no_header(tmp_path: Path) -> None:
    wanted = ([[0.0, 1.5], [2.0, 0.0]], ("Paris", "Rome"))
    assert read(tmp_path, "a.txt", "Paris Rome 1.5\nRome Paris 2\n") == wanted
    assert read(tmp_path, "a.csv", "x,y,z\nParis,Rome,1.5\nRome,Paris,2\n") == wanted


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("0,1,30\n1,2,20\n2,0,10\n", "numbers", "edges"),
        ("0 1 5\n1 2 5\n2 3 5\n3 0 5\n", "numbers", "edges"),
        ("a,b,c\n0,1,30\n1,2,20\n2,0,10\n", "header", "edges"),
        ("0,1\n0,5\n3,0\n", "numbers", "header"),
        ("10,20\n0,5\n3,0\n", "numbers", "header"),
        ("0,0,5\n1,3,0\n", "numbers", "index"),
        ("rack,a,b\n0,0,5\n1,3,0\n", "header", "labelled"),
    ],
)
def test_two_readings_are_both_named(tmp_path: Path, text: str, first: str, second: str) -> None:
    """And each of them can be asked for."""
    path = put(tmp_path, "a.csv" if "," in text else "a.txt", text)
    with pytest.raises(
        om.FormatError, match=rf"could be .* or .*: say layout {first} or .*{second}"
    ):
        read_matrix(path)
    results = [read_matrix(path, layout=layout).tolist() for layout in (first, second)]
    assert results[0] != results[1]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (",0,1\n0,0,5\n1,3,0\n", None),
        (",a,b\n0,0,5\n1,3,0\n", ("a", "b")),
        ("x,0,1\n0,0,5\n1,3,0\n", None),
        (",10,20\n10,0,5\n20,3,0\n", ("10", "20")),
        ("10,20\n10,0,5\n20,3,0\n", ("10", "20")),
        ('"a b","c, d"\n0,5\n3,0\n', ("a b", "c, d")),
        ("a,0,5\nb,3,0\n", ("a", "b")),
        ("a;b\n0;5,0\n3,0;0\n", ("a", "b")),
    ],
)
def test_labels_are_kept(tmp_path: Path, text: str, names: Any) -> None:
    """Labels of numbers too, where they stand in both places; and decimal commas."""
    assert read(tmp_path, "a.csv", text) == ([[0.0, 5.0], [3.0, 0.0]], names)


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("labels", [["a", "b"], [0, 1], [7, 3]])
def test_what_pandas_writes(tmp_path: Path, labels: list[Any], index: bool) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([[0, 5], [3, 0]], labels, labels)
    path = put(tmp_path, "a.csv", frame.to_csv(index=index))
    names = None if labels == [0, 1] else tuple(map(str, labels))
    if not index and labels != ["a", "b"]:
        with pytest.raises(om.FormatError, match="say layout numbers or header"):
            read_traffic(path)
        traffic = read_traffic(path, layout="header")
    else:
        traffic = read_traffic(path)
    assert (traffic.demand_bytes.tolist(), traffic.names) == ([[0.0, 5.0], [3.0, 0.0]], names)


def test_packed_and_from_stdin(tmp_path: Path) -> None:
    text = b"%%MatrixMarket matrix coordinate unsigned-integer general\n2 2 2\n1 2 5\n2 1 3\n"
    wanted = [[0.0, 5.0], [3.0, 0.0]]
    assert read_matrix(put(tmp_path, "a.mtx.gz", gzip.compress(text))).tolist() == wanted
    array = io.BytesIO()
    np.save(array, wanted)
    for content in (text, gzip.compress(text), b"a,b\n0,5\n3,0\n", array.getvalue()):
        result = call("generate", "demand", "--matrix", "-", "--delay", "0", input=content)
        assert loads(result.stdout).demand_bytes.tolist() == wanted  # type: ignore[union-attr]


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr", "dia"])
def test_sparse_files_stay_sparse(tmp_path: Path, layout: str) -> None:
    """Twenty thousand ports would be 3 GB in full."""
    places = ([0, 19_999], [1, 0])
    matrix = scipy.sparse.coo_array(([5.0, 2.0], places), shape=(20_000, 20_000))
    path = tmp_path / "a.npz"
    scipy.sparse.save_npz(path, matrix.asformat(layout))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    traffic = read_traffic(path, transposed=True)
    assert traffic.demand_bytes.nnz == 2
    assert traffic.demand_bytes[1, 0] == 5.0
    with pytest.raises(om.FormatError, match="400000000 entries: at most 100000000"):
        read_matrix(path)
    with pytest.raises(om.InputError, match="20000 x 20000: 400000000 entries: at most"):
        om.Demand.from_matrix(traffic.demand_bytes, delay_s=0.0)
    with pytest.raises(om.InputError, match="400000000 entries: at most"):
        om.Demand.from_matrix(nx.empty_graph(20_000), delay_s=0.0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB


def test_damaged_sparse_files(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, format="csr", shape=[2, 2], data=[1.0], indices=[7], indptr=[0, 1, 1])
    with pytest.raises(om.FormatError, match="is no sparse matrix of SciPy"):
        read_traffic(path)


XML = """<?xml version="1.0" encoding="ISO-8859-1"?>
<network xmlns="http://sndlib.zib.de/network" version="1.0"><networkStructure><nodes>
<node id="A"/><node id="B"/><node id="C"/></nodes></networkStructure><demands>
<demand id="d"><source>C</source><target>A</target><demandValue>2.5</demandValue></demand>
<demand id="e"><source>C</source><target>A</target><demandValue>1</demandValue></demand>
</demands></network>"""
NETWORK = {
    "nodes": [{"id": "A"}, {"id": "B"}, {"id": "C"}],
    "demands": [{"source": "C", "target": "A", "demand_value": 3.5}],
}


def test_sndlib(tmp_path: Path) -> None:
    """All nodes are ports, with their names, also those without demand."""
    wanted = ([[0.0] * 3, [0.0] * 3, [3.5, 0.0, 0.0]], ("A", "B", "C"))
    assert read(tmp_path, "n.xml", XML) == wanted
    assert read(tmp_path, "n.json", json.dumps(NETWORK)) == wanted
    for name, text, message in (
        ("n.xml", XML.replace("<source>C", "<source>X"), "demand d: 'X': no node"),
        ("n.xml", "<a/>", "no network of SNDlib"),
        ("n.xml", "<a>", "not XML"),
        ("n.json", json.dumps(NETWORK).replace("3.5", "null"), "demand_value = None"),
        ("n.json", json.dumps(NETWORK).replace('"target": "A"', '"target": "X"'), "'X': no node"),
    ):
        with pytest.raises(om.FormatError, match=message):
            read_traffic(put(tmp_path, name, text))


def test_repetita(tmp_path: Path) -> None:
    """Numbers of nodes, with labels from the graph beside it."""
    text = "DEMANDS 2\nlabel src dest bw\nd0 0 1 5\nd1 1 0 3\n"
    matrix = [[0.0, 5.0], [3.0, 0.0]]
    assert read(tmp_path, "Net.0000.demands", text) == (matrix, None)
    put(tmp_path, "Net.graph", "NODES 2\nlabel x y\nOslo 1 2\nRiga 3 4\n\nEDGES 0\n")
    assert read(tmp_path, "Net.0000.demands", text) == (matrix, ("Oslo", "Riga"))
    with pytest.raises(om.FormatError, match="2 demands, but '3' are announced"):
        read_traffic(put(tmp_path, "b.demands", text.replace("DEMANDS 2", "DEMANDS 3")))


def test_coflow_benchmark(tmp_path: Path) -> None:
    """Several coflows want the same ports; each has its arrival, and all are one demand."""
    text = "3 2\n1 500 2 0 1 1 2:6.0\n2 100 1 0 2 2:1.0 1:4\n"
    path = put(tmp_path, "trace.txt", text)
    flows = read_flows(path)
    assert flows.time_s.tolist() == [0.1, 0.1, 0.5, 0.5]
    assert flows.coflow.tolist() == [1, 1, 0, 0]
    assert flows.source.tolist() == [0, 0, 0, 1]
    assert flows.destination.tolist() == [2, 1, 2, 2]
    assert flows.size_bytes.tolist() == [1e6, 4e6, 3e6, 3e6]
    assert (flows.n_ports, flows.names) == (3, None)
    assert read_matrix(path).tolist() == [[0.0, 4e6, 4e6], [0.0, 0.0, 3e6], [0.0, 0.0, 0.0]]
    for broken, message in (
        (text.replace("2:6.0", "3:6.0"), "'3': racks are 0 .. 2"),
        (text.replace("3 2\n", "3 5\n"), "2 coflows, but 5 are announced"),
        (text.replace("500 2", "500 9"), "the number of mappers and their racks"),
    ):
        with pytest.raises(om.FormatError, match=message):
            read_flows(put(tmp_path, "broken.txt", broken))


def test_flows_in_a_table(tmp_path: Path) -> None:
    text = "bytes,time,src,dst,coflow\n5,2.5,a,b,x\n7,1,b,c,y\n1,1,c,a,x\n"
    flows = read_flows(put(tmp_path, "flows.csv", text))
    assert flows.time_s.tolist() == [1.0, 1.0, 2.5]
    assert flows.size_bytes.tolist() == [7.0, 1.0, 5.0]
    assert flows.coflow.tolist() == [1, 0, 0]
    assert flows.names == ("a", "b", "c")
    for broken, message in (
        ("time,src,bytes\n1,0,5\n", "0 columns of destination"),
        ("time,src,dst,bytes,colour\n1,0,1,5,3\n", "column 'colour' is unknown"),
        ("time,src,dst,bytes\n-1,0,1,5\n", ":2: '-1': must be finite and >= 0"),
        ("time,src,dst,bytes\n1,0,1\n", ":2: 3 fields, but 4 columns"),
    ):
        with pytest.raises(om.FormatError, match=message):
            read_flows(put(tmp_path, "broken.csv", broken))


def test_weights_of_graphs_are_exact_or_refused() -> None:
    graph = nx.MultiDiGraph()
    graph.add_edge("a", "b", weight=2**60)
    assert om.Demand.from_matrix(graph, delay_s=0).demand_bytes[0, 1] == 2**60
    graph.add_edge("a", "b", weight=1)
    with pytest.raises(om.InputError, match=r"\[0, 1\]: entries add up to .* not exact"):
        om.Demand.from_matrix(graph, delay_s=0)
    for weight in (10**400, 2**60 + 1, np.int64(2**60 + 1), np.uint64(2**64 - 1)):
        with pytest.raises(om.InputError, match=r"edge 'a' - 'b': weight = .*: above 2"):
            om.Demand.from_matrix(nx.DiGraph([("a", "b", {"weight": weight})]), delay_s=0)


def test_sparse_sums_are_exact_or_refused() -> None:
    matrix = scipy.sparse.coo_array(([2**53, 1, 1], ([0, 0, 0], [1, 1, 1])), shape=(2, 2))
    with pytest.raises(om.InputError, match=r"\[0, 1\]: entries add up to .* not exact"):
        om.Demand.from_matrix(matrix, delay_s=0)


def test_labels_in_another_order_are_refused_truly() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([[0, 1], [2, 0]], ["a", "b"], ["b", "a"])
    with pytest.raises(om.InputError, match="the same labels in another order"):
        om.Demand.from_matrix(frame, delay_s=0)
    counting = pandas.DataFrame([[0, 1], [2, 0]], columns=[1, 0])
    with pytest.raises(om.InputError, match="the same labels in another order"):
        om.Demand.from_matrix(counting, delay_s=0)
    ordered = om.Demand.from_matrix(frame[frame.index], delay_s=0)
    assert ordered.demand_bytes.tolist() == [[1.0, 0.0], [0.0, 2.0]]


def test_names_reach_problems_and_flows(tmp_path: Path) -> None:
    """From the file into the problem, and from there into what `simulate` prints."""
    path = str(put(tmp_path, "a.csv", "src,dst,bytes\nOslo,Riga,5\nRiga,Oslo,3\n"))
    problem, plan = str(tmp_path / "p.json"), str(tmp_path / "s.json")
    generate = ["generate", "demand", "--matrix", path, "--delay", "0.5"]
    call(*generate, "-o", problem)
    assert om.load(problem).fabric.port_names == ("Oslo", "Riga")  # type: ignore[union-attr]
    call("solve", problem, "--seed", "0", "-o", plan)
    result = call("simulate", "--flows", plan)
    assert "Oslo -> Riga: 5 B, 5.5 s" in result.output
    wide = call(*generate, "--fabric", "ideal-switch", "--size", "3")
    assert loads(wide.stdout).fabric.port_names == ("Oslo", "Riga", "2")  # type: ignore[union-attr]
