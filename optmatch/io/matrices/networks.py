"""Traffic of network libraries: SNDlib (XML and JSON) and REPETITA."""

from __future__ import annotations

from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from optmatch.io.contents import decode, read_bytes
from optmatch.io.fields import shorten
from optmatch.io.matrices.columns import size_unit, warn_of_rate
from optmatch.io.matrices.numbers import is_whole, read_number
from optmatch.io.matrices.traffic import Edges, Traffic, number_ports, sparse_matrix
from optmatch.io.text import pointer
from optmatch.model import FormatError
from optmatch.model.accounts import Level, accounting
from optmatch.model.files import file_path


class _NodeDemand(NamedTuple):
    """What one node of a network sends to another."""

    place: str
    """The file and the place in it, for messages."""
    source: str
    target: str
    amount: float


_NOT_TRAFFIC = "about links and routes, not about the traffic"
_NOT_READ = "they are not read, as if they were not there"
_XML_TAGS = Level(
    "tag of a network",
    (
        *("network", "networkStructure", "nodes", "node", "meta", "unit"),
        *("demands", "demand", "source", "target", "routingUnit", "demandValue"),
    ),
    {
        **dict.fromkeys(("granularity", "time", "origin"), "says when it was measured"),
        **dict.fromkeys(("coordinates", "x", "y"), "places of nodes are no traffic"),
        **dict.fromkeys(("links", "link", "*Module*", "*apacity", "*ost"), _NOT_TRAFFIC),
        **dict.fromkeys(("admissiblePaths", "admissiblePath", "linkId"), _NOT_TRAFFIC),
        "maxPathLength": _NOT_TRAFFIC,
    },
    _NOT_READ,
)
_JSON_KEYS = Level(
    "key of a demand",
    ("source", "target", "demand_value", "routing_unit"),
    {
        **dict.fromkeys(("id", "name"), "a label"),
        **dict.fromkeys(("max_path_length", "admissible_paths"), _NOT_TRAFFIC),
    },
    _NOT_READ,
)
_SNDLIB_RATES = {"BITPERSEC": "bit/s", "KBITPERSEC": "kbit/s", "MBITPERSEC": "Mbit/s"}
_SNDLIB_RATES |= {"GBITPERSEC": "Gbit/s", "TBITPERSEC": "Tbit/s"}


def _bytes_each(unit: str, path: str) -> float:
    """Return the bytes of the unit of demands that a network's description names; 1 without one.

    The numbers of a rate are kept, with a warning.
    """
    named = unit.strip()
    if named == "":
        return 1.0
    size = size_unit(_SNDLIB_RATES.get(named.upper(), named), path)
    if size is None:
        raise FormatError(f"unit {shorten(named)}: bytes, bits or a rate of them", path=path)
    warn_of_rate(size)
    return size.bytes_each


def _check_routing_unit(routing_unit: str, place: str) -> None:
    """Refuse a demand of which one unit takes another capacity than 1."""
    if routing_unit.strip() and read_number(routing_unit.strip(), place) != 1.0:
        raise FormatError(
            f"routing unit {shorten(routing_unit.strip())}: only demands of the routing unit 1 are"
            " read",
            path=place,
        )


def read_sndlib_xml(content: bytes, path: str) -> Traffic:
    """Read the demands between the nodes of a network of SNDlib [1]_, in the unit of the file.

    All nodes are ports, in the order of the file, whether they have a demand or not. Demands of
    one pair add up.

    References
    ----------
    .. [1] Orlowski, Wessäly, Pióro and Tomaszewski (2010). SNDlib 1.0 -- Survivable network design
       library. *Networks* 55(3). https://doi.org/10.1002/net.20371
    """
    if b"<!DOCTYPE" in content:
        raise FormatError("a document type in it: SNDlib has none", path=path)
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as exc:
        raise FormatError(f"not XML: {exc}", path=path) from exc
    for element in root.iter():
        element.tag = str(element.tag).rpartition("}")[2]  # without the name space
    with accounting(path) as account:
        account.take(_XML_TAGS, dict.fromkeys(element.tag for element in root.iter()))

    # Nodes by their ids, the unit of all demands, and the demands.
    nodes = [node.get("id", "") for node in root.iter("node")]
    if root.tag != "network" or not nodes:
        raise FormatError("no network of SNDlib: nodes are missing", path=path)

    # Demands are in one unit, and each has its ends and its amount.
    unit = "".join(element.text or "" for element in root.iter("unit"))
    bytes_each = _bytes_each(unit, path)
    demands = []
    for number, demand in enumerate(root.iter("demand")):
        place = f"{path}: demand {demand.get('id', number)}"
        ends = [(demand.findtext(key) or "").strip() for key in ("source", "target")]
        amount = (demand.findtext("demandValue") or "").strip()
        _check_routing_unit(demand.findtext("routingUnit") or "", place)
        size_bytes = bytes_each * read_number(amount, place)
        demands.append(_NodeDemand(place, ends[0], ends[1], size_bytes))
    return _traffic_of_nodes(nodes, demands, path)


def is_sndlib_json(tree: Any) -> bool:
    """Tell whether a JSON file is a network of SNDlib, as sikorski-as/sndlib writes it."""
    return isinstance(tree, dict) and isinstance(tree.get("nodes"), list) and "demands" in tree


def read_sndlib_json(tree: dict[str, Any], path: str) -> Traffic:
    """Read the demands of a network of SNDlib in JSON, as `read_sndlib_xml` does.

    The file has ``nodes``, each with an ``id``, and ``demands``, each with ``source``, ``target``
    and ``demand_value``.
    """
    nodes = []
    for k, node in enumerate(tree["nodes"]):
        if not isinstance(node, dict) or not isinstance(node.get("id"), str):
            raise FormatError("a node has an id", path=path, where=pointer("", "nodes", k))
        nodes.append(node["id"])

    # The unit of all demands, and then the demands.
    meta = tree.get("meta")
    unit = tree.get("unit", meta.get("unit", "") if isinstance(meta, dict) else "")
    bytes_each = _bytes_each(str(unit), path)
    demands = []
    listed = tree["demands"]
    for k, demand in enumerate(listed if isinstance(listed, list) else [None]):
        where = pointer("", "demands", k)
        if not isinstance(demand, dict):
            raise FormatError("a demand is an object", path=path, where=where)
        with accounting(path) as account:
            account.take(_JSON_KEYS, demand, where)

        # The amount is a number in the unit of the network.
        amount = demand.get("demand_value")
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise FormatError(
                f"demand_value = {shorten(amount)}: a number is expected", path=path, where=where
            )
        _check_routing_unit(str(demand.get("routing_unit", "")), path)
        value = bytes_each * read_number(repr(amount), path)
        source, target = str(demand.get("source")), str(demand.get("target"))
        demands.append(_NodeDemand(f"{path}:{where}", source, target, value))
    return _traffic_of_nodes(nodes, demands, path)


def _traffic_of_nodes(nodes: list[str], demands: list[_NodeDemand], path: str) -> Traffic:
    """Make a sparse matrix of demands (source, target, amount) between nodes, which are ports.

    Demands of one pair add up.
    """
    if len(set(nodes)) != len(nodes):
        raise FormatError("two nodes have the same id", path=path)
    port_of = {node: port for port, node in enumerate(nodes)}
    for demand in demands:
        for node in (demand.source, demand.target):
            if node not in port_of:
                raise FormatError(f"{shorten(node)}: no node of this network", path=demand.place)
    edges = Edges(
        np.array([port_of[demand.source] for demand in demands], dtype=np.int64),
        np.array([port_of[demand.target] for demand in demands], dtype=np.int64),
        np.array([demand.amount for demand in demands], dtype=np.float64),
    )
    return Traffic(sparse_matrix(edges, (len(nodes), len(nodes)), path), tuple(nodes))


_REPETITA_COLUMNS = ["label", "src", "dest", "bw"]


def read_repetita(content: bytes, path: str) -> Traffic:
    """Read a ``.demands`` file of REPETITA [1]_: numbers of nodes, from 0, and a bandwidth.

    Nodes have the labels of the ``.graph`` file beside it, if there is one: ``Abilene.graph`` of
    ``Abilene.0000.demands``.

    References
    ----------
    .. [1] Gay, Schaus and Vissicchio (2017). REPETITA: Repeatable experiments for performance
       evaluation of traffic-engineering algorithms. https://arxiv.org/abs/1710.08665
    """
    lines = [
        (f"{path}:{number}", line.split())
        for number, line in enumerate(decode(content, path).splitlines(), start=1)
        if line.strip()
    ]
    if not lines or lines[0][1][0].upper() != "DEMANDS":
        raise FormatError("DEMANDS and their number are expected", path=f"{path}:1")
    header = lines[0][1]
    body = [(place, words) for place, words in lines[1:] if words[0].lower() != "label"]
    for place, words in lines[1:]:
        if words[0].lower() == "label" and [word.lower() for word in words] != _REPETITA_COLUMNS:
            raise FormatError(
                f"columns {shorten(' '.join(words))}: {' '.join(_REPETITA_COLUMNS)} are expected",
                path=place,
            )
    if len(header) > 1 and (not is_whole(header[1]) or int(header[1]) != len(body)):
        raise FormatError(
            f"{len(body)} demands, but {shorten(header[1])} are announced", path=lines[0][0]
        )
    # Each line: a label, source, target, bandwidth.
    nodes = _repetita_labels(path)
    sources, targets, amounts = [], [], []
    for place, words in body:
        if len(words) != 4 or not (is_whole(words[1]) and is_whole(words[2])):
            raise FormatError(
                f"{shorten(' '.join(words))}: a label, two numbers of nodes and a bandwidth are"
                " expected",
                path=place,
            )
        if nodes is not None and max(int(words[1]), int(words[2])) >= len(nodes):
            raise FormatError(f"the graph beside it has nodes 0 .. {len(nodes) - 1}", path=place)
        sources.append(words[1])
        targets.append(words[2])
        amounts.append(read_number(words[3], place))
    edges, numbers = number_ports(sources, targets, amounts, path)
    n_ports = len(numbers if nodes is None else nodes)
    matrix = sparse_matrix(edges, (n_ports, n_ports), path)
    return Traffic(matrix, None if nodes is None else tuple(nodes))


def _repetita_labels(path: str) -> list[str] | None:
    """Return the labels of nodes, by number, in the graph beside a file; None without a graph."""
    stem = file_path(path).name.partition(".")[0]
    graph = file_path(path).with_name(f"{stem}.graph")
    if not graph.is_file():
        return None
    name = str(graph)

    # The first line is ``NODES 11``; a line of column names may follow, then a line for each node
    # that begins with its label.
    lines = decode(read_bytes(graph), name).splitlines()
    words = lines[0].split() if lines else []
    if len(words) != 2 or words[0].upper() != "NODES" or not is_whole(words[1]):
        raise FormatError("NODES and their number are expected", path=f"{name}:1")
    rows = [line.split() for line in lines[1:] if line.strip()]
    if rows and rows[0][0].lower() == "label":
        rows = rows[1:]
    labels = [row[0] for row in rows[: int(words[1])]]
    if len(labels) < int(words[1]) or len(set(labels)) < len(labels):
        raise FormatError(f"{words[1]} nodes of different labels are expected", path=name)
    return labels
