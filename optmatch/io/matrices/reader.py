"""Demand matrices from the files of other tools: rows are sources.

Tables of text have a module of their own. Here are Matrix Market, arrays of NumPy and SciPy,
instances of QOBLIB, and networks of SNDlib (XML and JSON) and REPETITA.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from optmatch.io.fields import shorten
from optmatch.io.matrices.tables import (
    BYTES,
    EXACT as EXACT,
    LAYOUTS,
    Traffic,
    account_for_unit,
    check_matrix,
    check_sparse,
    is_coflow_benchmark,
    is_whole,
    number_ports,
    read_coflow_benchmark,
    read_number,
    read_table,
    size_unit,
    sparse_matrix,
    stated_unit,
)
from optmatch.io.rails.chakra import is_trace, read_chakra, read_groups, siblings
from optmatch.io.text import (
    check_content,
    decode,
    describe_tree,
    describing,
    parse_json,
    pointer,
    read_arrays,
    read_bytes,
    unzip,
)
from optmatch.model import FormatError, InputError, frozen, largest, naming
from optmatch.model.accounts import Level, accounting, take
from optmatch.model.files import file_path, path_name
from optmatch.problems.demands.matrices import (
    fill_matrix,
    from_graph as from_graph,
    is_sparse,
    sparse_entries,
)

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


def read_sndlib_xml(content: bytes, path: str) -> Traffic:
    """Read the demands between the nodes of a network of SNDlib [1]_, in the unit of the file.

    `content` is the XML, and `path` names the file in errors. All nodes are ports, in the order of
    the file, whether they have a demand or not. Demands of one pair add up. The result has a
    sparse matrix in bytes, or in the unit of a rate, and the names of its ports.

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
    take(_XML_TAGS, dict.fromkeys(element.tag for element in root.iter()), path=path)

    # Nodes by their ids, the unit of all demands, and the demands.
    nodes = [node.get("id", "") for node in root.iter("node")]
    if root.tag != "network" or not nodes:
        raise FormatError("no network of SNDlib: nodes are missing", path=path)

    # Demands are in one unit, and each has its ends, its amount and its routing unit.
    unit = "".join(element.text or "" for element in root.iter("unit"))
    demands = []
    for number, demand in enumerate(root.iter("demand")):
        place = f"{path}: demand {demand.get('id', number)}"
        tags = ("source", "target", "demandValue", "routingUnit")
        demands.append((place, *((demand.findtext(tag) or "").strip() for tag in tags)))
    return _traffic_of_nodes(nodes, unit, demands, path)


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
    demands = []
    listed = tree["demands"]
    for k, demand in enumerate(listed if isinstance(listed, list) else [None]):
        where = pointer("", "demands", k)
        if not isinstance(demand, dict):
            raise FormatError("a demand is an object", path=path, where=where)
        take(_JSON_KEYS, demand, where, path)

        # The amount is a number in the unit of the network.
        amount = demand.get("demand_value")
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise FormatError(
                f"demand_value = {shorten(amount)}: a number is expected", path=path, where=where
            )
        source = str(demand.get("source"))
        target = str(demand.get("target"))
        routing_unit = str(demand.get("routing_unit", ""))
        demands.append((f"{path}:{where}", source, target, repr(amount), routing_unit))
    return _traffic_of_nodes(nodes, str(unit), demands, path)


def _traffic_of_nodes(
    nodes: list[str], unit: str, demands: Sequence[tuple[str, ...]], path: str
) -> Traffic:
    """Make a sparse matrix of demands between nodes, which are ports, in the unit of the file.

    A demand is five texts: its place in messages, its source, its target, its amount, and its
    routing unit, of which only 1 is read. Without a unit amounts are bytes.
    Demands of one pair add up.
    """
    bytes_each = 1.0
    if unit.strip():
        size = size_unit(_SNDLIB_RATES.get(unit.strip().upper(), unit.strip()), path)
        if size is None:
            rule = f"unit {shorten(unit.strip())}: bytes, bits or a rate of them"
            raise FormatError(rule, path=path)
        account_for_unit(size)
        bytes_each = size.bytes_each

    # Only demands of which a unit takes the capacity 1 are read.
    amounts = []
    for place, _, _, amount, routing_unit in demands:
        if routing_unit.strip() and read_number(routing_unit.strip(), place) != 1.0:
            raise FormatError(
                f"routing unit {shorten(routing_unit.strip())}: only demands of the routing unit 1"
                " are read",
                path=place,
            )
        amounts.append(bytes_each * read_number(amount, place))

    # Nodes are ports, in their order.
    if len(set(nodes)) != len(nodes):
        raise FormatError("two nodes have the same id", path=path)
    port_of = {node: port for port, node in enumerate(nodes)}
    for place, source, target, *_ in demands:
        for node in (source, target):
            if node not in port_of:
                raise FormatError(f"{shorten(node)}: no node of this network", path=place)
    sources = [port_of[demand[1]] for demand in demands]
    targets = [port_of[demand[2]] for demand in demands]
    matrix = sparse_matrix(sources, targets, amounts, (len(nodes), len(nodes)), path)
    return Traffic(matrix, tuple(nodes))


_REPETITA_COLUMNS = ["label", "src", "dest", "bw"]


def read_repetita(content: bytes, path: str) -> Traffic:
    """Read a ``.demands`` file of REPETITA [1]_: numbers of nodes, from 0, and a bandwidth.

    `content` is the file ``path``. Nodes have the labels of the ``.graph`` file beside it, if
    there is one: ``Abilene.graph`` of ``Abilene.0000.demands``. A line such as ``edge_0 0 5 1000``
    is a demand with a bandwidth of 1000 from node 0 to node 5.

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
    source_ports, target_ports, numbers = number_ports(sources, targets, path)
    n_ports = len(numbers if nodes is None else nodes)
    matrix = sparse_matrix(source_ports, target_ports, amounts, (n_ports, n_ports), path)
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


_HEADER = "%%MatrixMarket matrix coordinate|array real|integer|pattern general|symmetric"
_FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern")

T = TypeVar("T")

_Line = tuple[str, list[str]]
"""The place of a line that is no comment, and its words."""


def read_market(content: bytes, path: str) -> Any:
    """Read a matrix in the format Matrix Market: sparse of coordinates, else full.

    Entries that occur twice add up, as the format wants it. The first line names the layout, the
    type of the entries and the symmetry; lines that begin with ``%`` are comments, and the first
    other line has the sizes. `content` is the file, and `path` its name in errors.
    """
    numbered = enumerate(decode(content, path).split("\n"), start=1)
    lines = [(f"{path}:{number}", line) for number, line in numbered if line.strip()]

    # The first line is such as ``%%MatrixMarket matrix coordinate real general``. Kinds of
    # matrices that are no demand are refused.
    place = f"{path}:1"
    words = (lines[0][1] if lines else "").lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise FormatError(f"not Matrix Market: {_HEADER} is expected", path=place)
    layout, field, symmetry = words[2:]
    if field not in _FIELDS or symmetry not in ("general", "symmetric"):
        raise FormatError(
            f"{field} {symmetry}: a demand is real, general or symmetric", path=place
        )
    if layout not in ("coordinate", "array") or (layout, field) == ("array", "pattern"):
        raise FormatError(f"{layout} {field}: {_HEADER} is expected", path=place)

    # Of a symmetric matrix one half is stated. The line of sizes has rows, columns, and of
    # coordinates the number of entries.
    is_symmetric = symmetry == "symmetric"
    body = [(place, line.split()) for place, line in lines[1:] if line.lstrip()[:1] != "%"]
    if not body:
        raise FormatError("the line with the size is missing", path=f"{path}:{len(lines) + 1}")

    unit = stated_unit(content, path)
    if unit is not BYTES:
        raise FormatError(f"the entries are in {unit.text}: bytes are expected", path=path)
    place, sizes = body[0]
    n_sizes = 3 if layout == "coordinate" else 2
    if len(sizes) != n_sizes or not all(word.isascii() and word.isdecimal() for word in sizes):
        raise FormatError(
            f"{shorten(' '.join(sizes))}: {n_sizes} whole numbers are expected", path=place
        )
    if max(map(len, sizes)) > 18:
        raise FormatError(f"{shorten(max(sizes, key=len))}: a size far too large", path=place)

    # Only a square matrix can be symmetric, and its parts are as many as announced.
    rows, columns, *count = map(int, sizes)
    if is_symmetric and rows != columns:
        raise FormatError(f"{rows} x {columns}: symmetric, but not square", path=place)
    if layout == "array":
        check_content("entries", rows * columns, path)
        return _read_array(body[1:], (rows, columns), is_symmetric, path)
    check_content("entries", count[0], path)
    n_words = 2 if field == "pattern" else 3
    entries = _counted(body[1:], count[0], path)
    return _read_coordinates(entries, (rows, columns), n_words, is_symmetric, path)


def _read_coordinates(
    lines: Sequence[_Line], shape: tuple[int, int], n_words: int, is_symmetric: bool, path: str
) -> Any:
    """Read entries by row and column, both from 1; of a symmetric matrix one half.

    A line has `n_words`: row, column, and value; entries of a pattern have no value, and are 1.
    The result is a sparse matrix of this `shape`.
    """
    places: list[tuple[int, int]] = []
    values: list[float] = []
    for place, words in lines:
        if len(words) != n_words:
            raise FormatError(f"{shorten(' '.join(words))}: no entry", path=place)
        for word, largest_index in zip(words, shape, strict=False):
            if not (is_whole(word) and 1 <= int(word) <= largest_index):
                raise FormatError(
                    f"{shorten(word)}: rows or columns are 1 .. {largest_index}", path=place
                )
        row = int(words[0]) - 1
        column = int(words[1]) - 1
        value = 1.0 if n_words == 2 else read_number(words[2], place)

        # An entry beside the diagonal of a symmetric matrix counts at two places.
        places.append((row, column))
        values.append(value)
        if is_symmetric and row != column:
            places.append((column, row))
            values.append(value)

    # Entries of one place add up.
    pairs = np.array(places, dtype=np.int64).reshape(-1, 2)
    return sparse_matrix(pairs[:, 0], pairs[:, 1], np.array(values), shape, path)


def _read_array(
    lines: Sequence[_Line], shape: tuple[int, int], symmetric: bool, path: str
) -> NDArray[np.float64]:
    """Read a full matrix column by column; a symmetric one has columns from the diagonal on.

    A line is its place, for messages, and its words; there may be any number of values on a line.
    `shape` are the rows and columns that the file announces. A file of 2 x 2 with the values 1, 2,
    3 and 4 has the rows 1 3 and 2 4; a symmetric one with 1, 2 and 3 has 1 2 and 2 3.
    """
    rows, columns = shape
    needed = rows * (rows + 1) // 2 if symmetric else rows * columns
    entries = [(place, word) for place, words in lines for word in words]
    values = np.array(
        [read_number(word, place) for place, word in _counted(entries, needed, path)]
    )
    if not symmetric:
        return values.reshape(rows, columns, order="F")
    matrix = np.zeros((rows, rows))
    # The lower half by columns is, transposed, the upper half by rows.
    row_of, column_of = np.triu_indices(rows)
    matrix[row_of, column_of] = values
    matrix[column_of, row_of] = values
    return matrix


def _counted(entries: Sequence[T], count: int, path: str) -> Sequence[T]:
    """Return entries, each with its place in front, if they are as many as were announced."""
    if len(entries) != count:
        place = entries[count][0] if len(entries) > count else path  # type: ignore[index]
        raise FormatError(f"{len(entries)} entries, but {count} are announced", path=place)
    return entries


STDIN = "-"
_STDIN_NAME = "<stdin>"
_QOBLIB = "scaled_doubly_stochastic_matrix"


_INSTANCE = Level(
    "key of an instance",
    (_QOBLIB, "n"),
    {
        "id": "the key of the instance tells it",
        "scale": "all lines of a matrix have this sum",
        **dict.fromkeys(("weights", "permutations"), "a known answer is no part of the problem"),
    },
    "they are not read, as if they were not there",
)


def read_traffic(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    layout: str | None = None,
    transposed: bool = False,
) -> Traffic:
    r"""Read the demand of a file and the names of its ports; the ending says how.

    Parameters
    ----------
    path
        - ``.csv``, ``.tsv`` or ``.txt``: numbers between commas, semicolons, tabs or blanks, with
          ``#`` before comments; beside semicolons and tabs also with decimal commas. A first line
          and a first column may have names. Or a list of edges, whose first line names its columns
          (``source, destination, bytes``, or words like these, in any order), or that has words as
          ports. Or a trace of coflow-benchmark, whose coflows are added up.
        - ``.npy``, ``.npz``: also what `scipy.sparse.save_npz` writes.
        - ``.mtx``: Matrix Market.
        - ``.json``: a list of rows; instances of QOBLIB, whose columns are stacked; networks of
          SNDlib.
        - ``.xml``: networks of SNDlib.
        - ``.demands``: REPETITA.

        All may be packed by gzip (``.csv.gz``). ``"-"`` is stdin: its first bytes tell the format.
    name
        Which array of an ``.npz`` or instance of a ``.json``; needed where there are several.
    layout
        For a table that could be two things: ``"numbers"``, ``"header"``, ``"index"``,
        ``"labelled"`` or ``"edges"``.
    transposed
        Whether rows are destinations in the file.

    Returns
    -------
    Traffic
        ``demand_bytes[source, destination]`` of float64: a full array, or a sparse array of SciPy
        if the file lists entries; not necessarily square. And the names of the ports.

    Raises
    ------
    FormatError
        Naming file, place and value of the first thing that is no number; or both readings of a
        table that could be two things.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "demand.csv"
    ...     _ = file.write_text("src,dst,bytes\nBerlin,Paris,30\nParis,Berlin,12.5\n")
    ...     traffic = read_traffic(file)
    >>> traffic.demand_bytes.toarray().tolist(), traffic.names
    ([[0.0, 30.0], [12.5, 0.0]], ('Berlin', 'Paris'))
    """
    if layout is not None and layout not in LAYOUTS:
        raise InputError(f"layout = {layout!r}: one of {', '.join(LAYOUTS)}", where="layout")

    # The reader of a file is that of its ending, of stdin that of its first bytes.
    is_stdin = path_name(path) == STDIN
    file = _STDIN_NAME if is_stdin else path_name(path)
    if is_stdin:
        packed = sys.stdin.buffer.read(largest("bytes") + 1)
        check_content("bytes", len(packed), _STDIN_NAME)
        content = unzip(packed, file)

        # Its first bytes, without the byte order mark of UTF-8 and blanks; else it is a table.
        start = content[:64].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
        reader: Reader = _read_text
        for beginning, reader_of_format in _READER_OF_BEGINNING.items():
            if start.startswith(beginning):
                reader = reader_of_format
    else:
        suffix = _suffix_of(path)
        if suffix not in _READERS:
            known_suffixes = ", ".join([*_READERS, ".et"])
            raise FormatError(
                f"suffix {suffix!r}: matrices end in {known_suffixes}", path=path_name(path)
            )
        reader = _READERS[suffix]
        content = unzip(read_bytes(path), file)
    # Whatever was read becomes one matrix of float64, and errors name the file.
    with naming(file), accounting(file):
        if layout is not None and reader is not _read_text:
            raise FormatError(f"layout = {layout!r}: for tables of text")
        result = reader(content, file) if layout is None else _read_text(content, file, layout)
        if name is not None and not isinstance(result, Mapping):
            raise FormatError(f"name = {name!r}: files of this kind hold one matrix")
        if isinstance(result, Mapping):
            result = _choose(result, name)

        # One matrix, checked, and turned if it is to be.
        traffic = result if isinstance(result, Traffic) else Traffic(result)
        matrix: Any = traffic.demand_bytes
        matrix = check_sparse(matrix) if is_sparse(matrix) else check_matrix(matrix)
    if transposed and is_sparse(matrix):
        matrix = matrix.T.tocsr()
    elif transposed:
        matrix = np.ascontiguousarray(matrix.T)
    return Traffic(matrix, traffic.names)


def holds_traffic(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file holds traffic: by its ending, of JSON by its structure."""
    suffix = _suffix_of(path)
    if suffix != ".json":
        return suffix in _READERS
    tree = parse_json(unzip(read_bytes(path), path_name(path)), path_name(path))
    if isinstance(tree, dict):
        has_instance = any(isinstance(one, dict) and _QOBLIB in one for one in tree.values())
        return has_instance or is_sndlib_json(tree)
    return isinstance(tree, list)


def read_matrix(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    layout: str | None = None,
    transposed: bool = False,
    groups: str | os.PathLike[str] | None = None,
    skipped: list[str] | None = None,
) -> NDArray[np.float64]:
    r"""Read a demand matrix as a full array without port names; the ending of the file says how.

    Parameters
    ----------
    path
        As `read_traffic` takes it; or ``.et``, ``.RANK.json``: the Chakra trace of one rank, those
        of the others beside it.
    name, layout, transposed
        As of `read_traffic`: which of several matrices, what a table is that could be two things,
        and whether rows are destinations in the file. A trace has neither names nor layouts.
    groups
        The file of communicator groups that belongs to a trace.
    skipped
        A list: what a cut trace does not tell is left out, and added to it, see `read_chakra`.

    Returns
    -------
    NDArray
        ``matrix[source, destination]``, float64, not necessarily square: the numbers of the file,
        which `Demand.from_matrix` takes as bytes; of a trace the bytes that ranks send.

    Raises
    ------
    FormatError
        As of `read_traffic`; or if the matrix has more entries than `optmatch.model.SIZES` allows.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "demand.csv"
    ...     _ = file.write_text("from,rack 1,rack 2\nrack 1,0,30\nrack 2,12.5,0\n")
    ...     read_matrix(file).tolist()
    [[0.0, 30.0], [12.5, 0.0]]
    """
    file = path_name(path)
    if file != STDIN and is_trace(path):
        members = None if groups is None else read_groups(groups)
        matrix = check_matrix(read_chakra(siblings(path), groups=members, skipped=skipped))
        return np.ascontiguousarray(matrix.T) if transposed else matrix
    if groups is not None or skipped is not None:
        raise FormatError("groups and cut files: of a trace, name.RANK.et", path=file)
    matrix = read_traffic(path, name=name, layout=layout, transposed=transposed).demand_bytes
    if not is_sparse(matrix):
        return matrix  # type: ignore[no-any-return]
    check_content("entries", matrix.shape[0] * matrix.shape[1], file)
    return fill_matrix(sparse_entries(matrix), "matrix").copy()


def _suffix_of(path: str | os.PathLike[str]) -> str:
    """Return the ending of a file in small letters, before that of gzip; empty without one."""
    endings = [suffix.lower() for suffix in file_path(path).suffixes]
    if endings[-1:] == [".gz"]:
        endings.pop()
    return endings[-1] if endings else ""


def _choose(matrices: Mapping[str, Any], name: str | None) -> Any:
    """Return the matrix of a name, or the only one of a file if the name is None."""
    if name is None and len(matrices) == 1:
        return next(iter(matrices.values()))
    known_keys = ", ".join(sorted(matrices, key=lambda key: (len(key), key)))
    if name is None:
        raise FormatError(f"holds several matrices, choose one by name: {known_keys}")
    if name not in matrices:
        raise FormatError(f"name = {name!r}: unknown; known are {known_keys}")
    return matrices[name]


def _read_text(content: bytes, path: str, layout: str | None = None) -> Traffic:
    """Read a table of text, or a trace of coflow-benchmark, whose coflows are added up."""
    if is_coflow_benchmark(content) and layout is None:
        flows = read_coflow_benchmark(content, path)
        shape = (flows.n_ports, flows.n_ports)
        matrix = sparse_matrix(flows.source, flows.destination, flows.size_bytes, shape, path)
        return Traffic(matrix, flows.names)
    with describing(content):
        return read_table(content, path, layout)


def _read_npy(content: bytes, path: str) -> Any:
    """Read an array, arrays by name, or the sparse matrix that SciPy saves as several arrays.

    The result is an array of a ``.npy`` file, a dict of those of a ``.npz`` file, or a matrix in
    compressed rows.
    """
    arrays = read_arrays(content, path)
    if {"format", "shape", "data"} <= set(arrays):
        # `scipy.sparse.save_npz` writes ``format`` (csr, csc, bsr, coo or dia), ``shape``,
        # ``data``, and the indices of that format, of which compressed ones are checked here.
        from scipy.sparse import csr_array, load_npz

        # Arrays that contradict each other make SciPy raise errors of several kinds.
        try:
            shape = tuple(int(side) for side in arrays["shape"])
            if arrays["data"].dtype.kind not in "iufb" or len(shape) != 2:
                raise ValueError(f"data of {arrays['data'].dtype}, shape {shape}")
            matrix = load_npz(io.BytesIO(content))
            if hasattr(matrix, "check_format"):
                matrix.check_format(full_check=True)
            return csr_array(matrix)
        except (ValueError, KeyError, TypeError, IndexError, NotImplementedError) as exc:
            raise FormatError(f"is no sparse matrix of SciPy: {exc}", path=path) from exc
    return arrays[""] if list(arrays) == [""] else arrays


def _read_json(content: bytes, path: str) -> Any:
    """Read matrices of instances of QOBLIB, by name, or the demands of a network of SNDlib.

    A square list of lists is a matrix itself. An instance is an object with `n` and, under the key
    `_QOBLIB`, the n * n entries of its matrix.
    """
    tree = parse_json(content, path)
    is_square = isinstance(tree, list) and all(
        isinstance(row, list) and len(row) == len(tree) for row in tree
    )
    if is_square and tree:
        return frozen("matrix", tree, 2, np.float64)
    if is_sndlib_json(tree):
        return read_sndlib_json(tree, path)

    # Else an object of instances, each with its own entry.
    entries = tree.items() if isinstance(tree, dict) else ()
    instances = {
        key: entry for key, entry in entries if isinstance(entry, dict) and _QOBLIB in entry
    }
    if not instances:
        rule = (
            "a list of rows of numbers, [[0, 5], [3, 0]], an instance of QOBLIB (key"
            f" {_QOBLIB!r}) or a network of SNDlib (nodes and demands) is expected"
        )
        raise FormatError(f"{rule}{describe_tree(tree)}", path=path)
    for entry in instances.values():
        take(_INSTANCE, entry, path=path)

    # An instance is ``n``, and n * n numbers column by column.
    matrices = {}
    for key, entry in instances.items():
        stacked = entry[_QOBLIB]
        n = entry.get("n")
        if type(n) is not int or n < 1 or not isinstance(stacked, list) or len(stacked) != n * n:
            raise FormatError(
                f"n = {shorten(n)} does not fit its matrix", where=pointer("", key, "n")
            )
        for k, value in enumerate(stacked):
            if type(value) not in (int, float):
                raise FormatError(
                    f"{shorten(value)}: a number is expected", where=pointer("", key, _QOBLIB, k)
                )
        matrices[key] = np.array(stacked).reshape(n, n, order="F")
    return matrices


Reader = Callable[[bytes, str], Any]
"""Returns a `Traffic`, a matrix, or several matrices by name."""

_READER_OF_BEGINNING: dict[bytes, Reader] = {
    b"\x93numpy": _read_npy,
    b"pk": _read_npy,
    b"%%matrixmarket": read_market,
    b"{": _read_json,
    b"<": read_sndlib_xml,
    b"demands": read_repetita,
}
_READERS: dict[str, Reader] = {
    ".csv": _read_text,
    ".tsv": _read_text,
    ".txt": _read_text,
    ".npy": _read_npy,
    ".npz": _read_npy,
    ".mtx": read_market,
    ".json": _read_json,
    ".xml": read_sndlib_xml,
    ".demands": read_repetita,
}
