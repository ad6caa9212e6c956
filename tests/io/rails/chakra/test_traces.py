"""Chakra traces: every node is read, sends of ranks add up, damage is named."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.io import read_chakra, read_matrix
from optmatch.io.rails.chakra import (
    COLLECTIVE,
    MISSING,
    NODE_TYPES,
    Node,
    decode_nodes,
    node_class,
    read_groups,
    read_step,
    read_trace,
    siblings,
    trace_bytes,
)
from tests.helpers.chakra import collective, send, trace, workload_graph
from tests.helpers.command import put

few = settings(max_examples=20)  # each writes files

WIDTHS = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64")


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    """Draw a trace: numbers in any order, dependencies on any other node, odd attributes."""
    numbers = draw(st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=12))
    known = st.sampled_from(("comm_size", "comm_src", "comm_dst", "comm_tag", "num_ops"))
    return [
        Node(
            id=number,
            kind=draw(st.integers(0, 12)),
            name=draw(st.text(max_size=3)),
            parents=draw(st.lists(st.sampled_from(numbers), max_size=3)),
            duration_us=draw(st.integers(0, 2**63 - 1)),
            attributes={
                **draw(st.dictionaries(known, st.integers(0, 2**31 - 1))),
                **draw(st.dictionaries(st.just("pg_name"), st.text(min_size=1, max_size=2))),
                **draw(st.dictionaries(st.just("is_cpu_op"), st.booleans())),
            },
        )
        for number in numbers
    ]


@few
@given(nodes(), st.booleans())
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, given: list[Node], compress: bool
) -> None:
    path = tmp_path_factory.mktemp("trace") / "run.7.et"
    content = trace_bytes(given)
    path.write_bytes(gzip.compress(content) if compress else content)
    found = read_trace(path)
    assert found.node_id.tolist() == [node.id for node in given]
    assert found.kind.tolist() == [node.kind for node in given]
    assert found.duration_us.tolist() == [float(node.duration_us) for node in given]
    for k, node in enumerate(given):
        places = found.parent[found.child == k]
        assert found.node_id[places].tolist() == list(node.parents)
        group = found.group_names[found.group[k]] if found.group[k] >= 0 else None
        assert group == node.attributes.get("pg_name")
        for name, column in (
            ("comm_size", found.size_bytes),
            ("comm_src", found.source),
            ("comm_dst", found.destination),
            ("comm_tag", found.tag),
            ("num_ops", found.operations),
        ):
            assert column[k] == node.attributes.get(name, MISSING)


@st.composite
def encoded(draw: st.DrawFn) -> tuple[bytes, dict[str, Any]]:
    """Encode a node as another writer might: fields in any order, apart, twice, or unknown."""
    make_node = node_class()
    numbers = st.sampled_from((0, 1, 2**32, 2**63 - 1, 2**64 - 2, 2**64 - 1))
    parts: list[tuple[str, Any]] = []
    for name, last in (("id", 2**64 - 1), ("type", 8), ("duration_micros", 2**63 - 1)):
        values = draw(st.lists(st.integers(0, last) | numbers.filter(last.__ge__), max_size=2))
        parts += [(name, value) for value in values]
    for name in ("data_deps", "ctrl_deps", "data_deps"):
        parts.append((name, draw(st.lists(numbers, max_size=2))))
    names, widths = st.sampled_from(("comm_size", "comm_tag", "other")), st.sampled_from(WIDTHS)
    tagged = st.tuples(names, widths, st.integers(0, 2**31 - 1))
    for name, width, value in draw(st.lists(tagged, max_size=4)):
        parts.append(("attr", [{"name": name.encode(), f"{width}_val": value}]))
    parts.append(("name", draw(st.binary(max_size=3))))
    parts = draw(st.permutations(parts))
    content = b"".join(
        draw(st.sampled_from((b"", b"\x42\x03\x0a\x01x")))  # inputs, which nobody reads
        + make_node(**{name: value}).SerializeToString()
        for name, value in parts
    )
    last_of: dict[str, Any] = {"data_deps": [], "ctrl_deps": []}
    for name, value in parts:
        if name.endswith("deps"):
            last_of[name] += value
        elif name == "attr":
            named, told = value[0].values()
            last_of[named.decode()] = told
        elif value or name not in last_of:  # what is 0 is not written
            last_of[name] = value
    return content, last_of


def beyond_int64() -> bytes:
    """Write a send whose destination takes 64 bits without a sign."""
    node = node_class()(id=6, type=5)
    node.attr.add(name=b"comm_dst", uint64_val=2**63)
    return framed(node.SerializeToString())


def framed(content: bytes) -> bytes:
    """Put the length in front, in more bytes than it needs."""
    return bytes([len(content) % 128 + 128, len(content) // 128]) + content


@given(st.lists(encoded(), max_size=6))
def test_any_order_of_fields(given: list[tuple[bytes, dict[str, Any]]]) -> None:
    stream = trace_bytes([]) + b"".join(framed(content) for content, _ in given)
    found = decode_nodes(stream, "run.0.et", 0)
    wanted = [last for _, last in given]
    for column, name in ((found.node_id, "id"), (found.kind, "type")):
        assert column.tolist() == [last.get(name, 0) for last in wanted]
    durations_us = [float(last.get("duration_micros", 0)) for last in wanted]
    assert found.duration_us.tolist() == durations_us
    for k, last in enumerate(wanted):
        parents = found.parent[found.child == k]
        assert parents.tolist() == last["data_deps"] + last["ctrl_deps"]
        told = found.size_bytes[k], found.tag[k]
        assert told == (last.get("comm_size", MISSING), last.get("comm_tag", MISSING))


@pytest.mark.parametrize("compress", [False, True])
def test_a_cut_at_every_byte(tmp_path: Path, compress: bool) -> None:
    """It is refused by the place where the node begins that is cut."""
    given = [send(1, comm_dst=1, comm_size=300), Node(2, parents=[1], duration_us=200)]
    ends = [len(trace_bytes(given[:k])) for k in range(3)]
    content = gzip.compress(trace_bytes(given)) if compress else trace_bytes(given)
    path = tmp_path / "run.0.et"
    for at in range(len(content)):
        path.write_bytes(content[:at])
        if compress or at not in ends:
            begun = max((end for end in ends if end <= at), default=0)
            place = r"(byte 0: |cannot be read)" if compress else f"byte {begun}: "
            with pytest.raises(om.FormatError, match=rf"run\.0\.et: {place}"):
                read_trace(path)
        else:
            assert read_trace(path).node_id.tolist() == [1, 2][: ends.index(at)]


def jsonized(given: list[Node]) -> str:
    """Write nodes as the jsonizer of Chakra does: integers of 64 bits as text, zeros left out."""
    objects: list[dict[str, Any]] = [{"version": "0.0.4"}]
    for node in given:
        attributes: list[dict[str, Any]] = []
        for name, value in node.attributes.items():
            width = {bool: "boolVal", int: "int64Val", str: "stringVal"}[type(value)]
            shown = str(value) if width == "int64Val" else value
            attributes.append({"name": name, width: shown})
        fields = {
            "id": str(node.id),
            "name": node.name,
            "type": NODE_TYPES[node.kind] if node.kind < len(NODE_TYPES) else node.kind,
            "dataDeps": [str(parent) for parent in node.parents],
            "durationMicros": str(node.duration_us),
            "attr": attributes,
        }
        objects.append({key: value for key, value in fields.items() if value not in ("0", [], "")})
    return "".join(json.dumps(one, indent=2) for one in objects)


@few
@given(nodes(), st.sampled_from((workload_graph, jsonized)), st.booleans())
def test_json_says_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    given: list[Node],
    write: Callable[[list[Node]], str],
    compress: bool,
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    numbers = {node.id: k for k, node in enumerate(given)}  # those of 64 bits are for messages
    given = [
        node._replace(id=numbers[node.id], parents=[numbers[one] for one in node.parents])
        for node in given
    ]
    text = write(given).encode()
    (folder / "run.3.json").write_bytes(gzip.compress(text) if compress else text)
    (folder / "run.3.et").write_bytes(trace_bytes(given))
    one, two = (read_trace(folder / f"run.3.{ending}") for ending in ("json", "et"))
    for name, column in one._asdict().items():
        if name != "path_of_rank":
            assert np.array_equal(column, getattr(two, name)), name
    assert siblings(folder / "run") == [folder / "run.3.et"]
    assert siblings(folder / "run.3.json") == [folder / "run.3.json"]


@pytest.mark.parametrize("spelling", ["ctrl_deps", "ctrlDeps"])
def test_control_dependencies_of_json(tmp_path: Path, spelling: str) -> None:
    """Both spellings count, beside data dependencies; leniently not where they make a circle."""
    entries = [
        {"Id": 1, "NodeType": 4, "durationMicros": 7, spelling: [2]},
        {"Id": 2, "NodeType": 4, "runtime": 5, "data_deps": [], spelling: []},
        {"Id": 3, "NodeType": 4, "dataDeps": [1], spelling: [2]},
    ]
    path = put(tmp_path, "run.0.json", json.dumps({"workload_graph": entries}))
    found = read_trace(path)
    assert found.duration_us.tolist() == [7, 5, 0]
    assert found.child.tolist() == [0, 2, 2]
    assert found.parent.tolist() == [1, 0, 1]
    assert found.is_control.tolist() == [True, False, True]
    entries[1][spelling] = [1]
    path.write_text(json.dumps({"workload_graph": entries}))
    skipped: list[str] = []
    assert read_step(tmp_path / "run", skipped=skipped).dep.tolist() == [0]
    assert "no control dependency of this file counts" in skipped[0]


def test_a_listed_attribute_goes_before_one_beside(tmp_path: Path) -> None:
    listed = [{"name": "comm_size", "int64_val": 9}, {"name": "pg_name", "string_val": "b"}]
    node = {"Id": 1, "NodeType": 5, "comm_size": 8, "pg_name": "a", "attr": listed}
    found = read_trace(put(tmp_path, "run.0.json", json.dumps({"workload_graph": [node]})))
    assert found.size_bytes.tolist() == [9]
    assert found.group_names == ("b",)


def test_keys_of_json_that_are_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "run.0.json"
    entries = [{"Id": k, "NodeType": 4, "is_cpu_op": True, "follows": [1]} for k in range(3)]
    path.write_text(json.dumps({"workload_graph": entries}))
    read_trace(path)
    assert "unknown key of nodes: follows" in caplog.text
    entries[2]["id"] = 5
    path.write_text(json.dumps({"workload_graph": entries}))
    with pytest.raises(om.FormatError, match="Id and id are the same key"):
        read_trace(path)


def test_files_of_other_kinds_are_named(tmp_path: Path) -> None:
    """By each reader that may be given one by mistake."""
    execution_trace = json.dumps({"schema": "1.1.1", "pid": 1, "nodes": []})
    for name in ("run.0.json", "run.0.et", "run.json"):
        (tmp_path / name).write_text(execution_trace)
        with pytest.raises(om.FormatError, match=r"an execution trace of PyTorch: .*--chakra"):
            read_trace(tmp_path / name)
    with pytest.raises(om.FormatError, match=r"an execution trace of PyTorch: .*--chakra"):
        read_matrix(tmp_path / "run.json")
    (tmp_path / "run.json").write_text('{"traceEvents": []}')
    for read in (siblings, om.load, read_groups):
        with pytest.raises(om.FormatError, match=r"a trace of PyTorch's profiler, .*--kineto"):
            read(tmp_path / "run.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no Chakra trace"),
        ("[]", "no Chakra trace"),
        ('{"rows": 3}', "no Chakra trace"),
        ('{"workload_graph": 3}', "/workload_graph: 3: a list of nodes"),
        ('["workload_graph"]', "/workload_graph: None: a list of nodes"),
        ('{"workload_graph": [{"Id": 1}, 4]}', "node number 1: 4: an object is expected"),
        ('{"workload_graph": [{"Id": 1, "Id": 1}]}', "'Id' occurs twice"),
        ('{"workload_graph": [{"Id": "x"}]}', "node x: Id = 'x': a whole number"),
        ('{"workload_graph": [{"Id": -1}]}', "node -1: .* id field: Value out of range: -1"),
        ('{"workload_graph": [{"NodeType": "SLEEP"}]}', "number 0: NodeType = 'SLEEP': a whole"),
        ('{"workload_graph": [{"Id": 1, "runtime": 0.5}]}', "node 1: runtime = 0.5: a whole"),
        ('{"workload_graph": [{"Id": 1, "runtime": null}]}', "node 1: runtime = None: a whole"),
        ('{"workload_graph": [{"Id": null}]}', "node number 0: Id = None: a whole"),
        ('{"workload_graph": [{"Id": 1, "NodeType": null}]}', "node 1: NodeType = None: a whole"),
        ('{"workload_graph": [{"Id": 1, "data_deps": null}]}', "node 1: data_deps = None: a who"),
        ('{"workload_graph": [{"Id": 1, "data_deps": ["1"]}]}', "node 1: data_deps = '1': a who"),
        (f'{{"workload_graph": [{{"Id": {2**64 - 1}}}]}}', r"numbers are below 2\*\*63"),
        ('{"workload_graph": [{"Id": 1, "involved_dim": null}]}', "node 1: involved_dim = None"),
        ('{"workload_graph": [{"Id": 1, "comm_size": 2.0}]}', "node 1: comm_size = 2.0: a whole"),
        ('{"version": "1"}{"id": "1", "runtime": 2.0}', "node 1: runtime = 2.0: a whole"),
        (
            '{"version": "1"}{"id": "1", "attr": [{"name": "involved_dim", "boolList": null}]}',
            "node 1: attr: .*: an attribute has a value",
        ),
        ('{"workload_graph": [{"Id": 1, "data_deps": 1}]}', "data_deps must be in .*which is 1"),
        ('{"workload_graph": [{"Id": 1, "data_deps": [2]}]}', "node 1: waits for node 2"),
        ('{"workload_graph": [{"Id": 1}, {"Id": 1}]}', "node 1: is there twice"),
        ('{"workload_graph": [{"Id": 1, "comm_tag": true}]}', "node 1: comm_tag = True: a whole"),
        ('{"workload_graph": [{"Id": 1, "comm_size": 1e999}]}', "a number is finite"),
        (f'{{"workload_graph": [{{"Id": 1, "comm_size": {2**63}}}]}}', "node 1: comm_size = 92"),
        ('{"workload_graph": [{"Id": 1', "not JSON"),
        ('{"version": "1"}{"id": "1"', "no object of JSON"),
        ('{"version": "1"}[]', r"node number 0: \[\]: an object is expected"),
        (' {"version": "1"}\n{"id": "1"} 7\n', "node number 1: 7: an object is expected"),
        ('{"version": "1"}{"id": "1", "attr": [{}]}', "node 1: an attribute has no name"),
        ('{"version": "1"}{"id": "1", "attr": 3}', "attr = 3: a list is expected"),
        ('{"version": "1"}{"id": "1", "attr": [{"name": "comm_size"}]}', "comm_size = None"),
        (b'{"version": "\xff"}', "no Chakra trace"),
        (b'{"version": "1"}{"name": "\xff"}', "no Chakra trace"),
    ],
)
def test_flaws_of_json_are_named(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = put(tmp_path, "run.0.json", text)
    with pytest.raises(om.FormatError, match=message) as caught:
        read_trace(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (send(8, comm_dst=1, comm_size=1), "node 8: rank 1: ranks are 0 .. 0"),
        (send(8, comm_size=1), "node 8: its other end is not told; ranks that it could be: none"),
        (send(8, comm_dst=0, comm_size="big"), "node 8: comm_size = b'big': a whole number"),
        (send(8, comm_dst=0, comm_size=True), "node 8: comm_size = True: a whole number"),
        (send(8, comm_dst=0), "node 8: comm_size is missing"),
        (collective(8, "ALL_REDUCE", None), "node 8: comm_size is missing"),
        (collective(8, "REDUCE", 1, root=1), "node 8: its root, rank 1, is no member of group of"),
        (collective(8, "ALL_REDUCE", 1, pg_name="2"), "node 8: group 2: its members are not kno"),
        (collective(8, "ALL_REDUCE", 1, pg_name="3"), "node 8: rank 0 is no member of group 3"),
        (
            Node(8, COLLECTIVE, attributes={"comm_type": 99, "comm_size": 1}),
            "node 8: comm_type = 99",
        ),
        (Node(8, duration_us=2**63), "node 8: duration_micros = 9223372036854775808: numbers are"),
        (send(8, comm_dst=0, comm_size=-1), "node 8: comm_size is missing or negative"),
        (Node(8, parents=[5]), "node 8: waits for node 5, which is not there"),
        (collective(8, "GATHER", 1, pg_name="4"), "node 8: group 4: rank 9: ranks are 0 .. 0"),
    ],
)
def test_flaws_of_nodes_are_named(tmp_path: Path, node: Node, message: str) -> None:
    paths = trace(tmp_path, [node])
    with pytest.raises(om.FormatError, match=message) as caught:
        read_chakra(paths, groups={"3": (1, 2), "4": (0, 9)})
    assert str(paths[0]) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "byte 0: a trace begins with a description of it"),
        (trace_bytes([Node(3)])[8:], "byte 0: a trace begins with a description of it"),
        (trace_bytes([Node(3), Node(3)]), "node 3: is there twice"),
        (trace_bytes([Node(3)]) + b"\x80", "node number 1, after node 3, is cut off"),
        (trace_bytes([Node(3)]) + b"\x02\x0b\x00\x00", r"byte 13: node number 1, .* is damaged"),
        (trace_bytes([]) + b"\x04\x08\x01\x52\x03", "byte 8: node number 0 is cut off"),
        (gzip.compress(trace_bytes([Node(1)]), mtime=0)[:-9], "cannot be read"),
        (trace_bytes([]) + b"\x05\x08\x07\x52\x01\x00\x02\x08\x08", "node number 0 is damaged"),
        (trace_bytes([]) + b"\x05\x08\x07\x52\x01\x0a", "byte 8: node number 0 is cut off"),
        (
            trace_bytes([send(6, comm_dst=1)]) + b"\x05\x08\x07\x52\x01\x0a",
            "node number 1, after node 6, is cut off",
        ),
        (
            trace_bytes([]) + beyond_int64(),
            "node 6: comm_dst = 9223372036854775808: numbers are below 2",
        ),
        (b"\x01\x0a" + trace_bytes([]), "byte 0: a trace begins with a description of it"),
        (
            trace_bytes([Node(3)]) + b"\xff" * 12,
            "byte 13: node number 1, after node 3, is damaged",
        ),
        (trace_bytes([]) + b"\xff" * 9 + b"\x01", "byte 8: node number 0 is cut off"),
        (trace_bytes([Node(3)]) + b"\x03\x08\x80\x80\x00", "number 1, after node 3, is damaged"),
    ],
)
def test_damage_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = put(tmp_path, "run.0.et", content)
    with pytest.raises(om.FormatError, match=message) as caught:
        read_trace(path)
    assert str(path) in str(caught.value)


def test_ranks_must_be_complete(tmp_path: Path) -> None:
    paths = trace(tmp_path, [], [])
    with pytest.raises(om.FormatError, match=r"ranks \[1\]: a file for each of 0 .. 0"):
        read_chakra(paths[1:])
    with pytest.raises(om.FormatError, match=r"named name.RANK.et"):
        read_matrix(tmp_path / "trace.et")
    with pytest.raises(om.FormatError, match="cannot be read"):
        read_chakra([tmp_path / "none.0.et"])
    with pytest.raises(om.FormatError, match=r"no file name.RANK.et"):
        siblings(tmp_path / "none")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "an object is expected"),
        ('{"1": 3}', "/1: 3: a list of ranks"),
        ('{"1": []}', "a list of ranks"),
        ('{"1": [0, 4]}', r"/1/1: group 1: rank 4: ranks are 0 .. 3"),
        ('{"1": [0, "a"]}', r"group 1: rank 'a'"),
        ('{"1": [0, 2, 0]}', r"/1/2: group 1: rank 0 is a member twice"),
        ('{"1": [0], "1": [1]}', "occurs twice"),
        ("{", "not JSON"),
    ],
)
def test_flaws_of_groups_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = put(tmp_path, "groups.json", text)
    with pytest.raises(om.FormatError, match=message) as caught:
        read_groups(path, n_ranks=4)
    assert str(path) in str(caught.value)
