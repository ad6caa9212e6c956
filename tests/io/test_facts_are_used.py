"""A fact that a reader uses is renamed, changed or removed: the answer changes, or a word is said.

Each mutant changes one name or one value of a file as others write it. It may be refused, by an
`InputError` and nothing else. A name that the reader uses and that has become another one changes
what is read, or the new name stands in the warning.
"""

import copy
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import optmatch as om
from optmatch.io.matrices import read_flows, read_traffic
from optmatch.io.rails.chakra import read_trace
from optmatch.io.rails.kineto import read_recording

N_MUTANTS = 60 * int(os.environ.get("OPTMATCH_EXAMPLES", "1"))

RECORD = {
    "External id": 10,
    "Collective name": "all_to_allv",
    "In msg nelems": 400,
    "Out msg nelems": 200,
    "Group size": 3,
    "dtype": "Float",
    "Process Group Name": "0",
    "Process Group Ranks": "[0, 1, 2]",
    "In split size": "[0, 100, 300]",
    "Out split size": "[0, 200, 0]",
    "Seq": 4,
}
KINETO = {
    "schemaVersion": 1,
    "traceEvents": [
        {
            **{"ph": "X", "cat": "cpu_op", "name": "record_param_comms"},
            **{"pid": 1, "tid": 1, "ts": 1000, "dur": 20, "args": RECORD},
        },
        {
            **{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC"},
            **{"pid": 1, "tid": 1, "ts": 1100, "dur": 2},
            "args": {"correlation": 77, "External id": 10},
        },
        {
            **{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_SendRecv(x)"},
            **{"pid": 0, "tid": 20, "ts": 2000, "dur": 500, "args": {"correlation": 77}},
        },
        {
            **{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7},
            **{"ts": 2600, "dur": 100, "args": {"stream": 7}},
        },
    ],
    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 3},
}
CHAKRA = {
    "workload_graph": [
        {"Id": 1, "NodeType": 4, "runtime": 5, "num_ops": 7, "data_deps": []},
        {
            **{"Id": 2, "NodeType": 7, "comm_type": 0, "comm_size": 1000, "data_deps": [1]},
            **{"pg_name": "a", "involved_dim": [True, True]},
        },
        {
            **{"Id": 3, "NodeType": 5, "comm_dst": 1, "comm_size": 10, "comm_tag": 3},
            **{"data_deps": [2], "ctrl_deps": [1]},
        },
    ]
}
NETWORK = {
    "nodes": [{"id": "A"}, {"id": "B"}, {"id": "C"}],
    "demands": [
        {"id": "d", "source": "A", "target": "B", "demand_value": 5.0, "routing_unit": 1},
        {"id": "e", "source": "C", "target": "A", "demand_value": 7.0, "routing_unit": 1},
    ],
    "unit": "kbytes",
}
XML = """<network><meta><unit>MBYTE</unit></meta><nodes><node id="A"/><node id="B"/></nodes>
<demands><demand id="d"><source>A</source><target>B</target><routingUnit>1</routingUnit>
<demandValue>5.0</demandValue></demand></demands></network>"""
TABLES = {
    "edges.csv": "src,dst,size_kbytes\na,b,5\nb,c,7\nc,a,9\n",
    "matrix.csv": "from/to (GB),a,b,c\na,0,5,1\nb,7,0,2\nc,1,1,0\n",
    "flows.csv": "arrival_ms,src,dst,bytes,weight,deadline_ms\n5,a,b,3,1,20\n7,b,a,4,2,30\n",
    "market.mtx": "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 5\n2 1 7\n",
    "network.xml": XML,
}


class Mutant(NamedTuple):
    """A file with one change."""

    name: str
    content: str
    change: str
    """What was changed, for messages."""
    new_name: str = ""
    """The new name of a key that readers account for; empty if something else has changed."""


def places_of(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to each key and entry of a tree of JSON."""
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in parts:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places_of(value, (*path, key))


def change_tree(name: str, tree: Any, rng: np.random.Generator) -> Mutant:
    """Rename a key, change a value, or remove either."""
    changed = copy.deepcopy(tree)
    places = [path for path in places_of(tree) if isinstance(path[-1], str)]
    *way, key = places[rng.integers(len(places))]
    parent = changed
    for step in way:
        parent = parent[step]
    value = parent.pop(key)
    kind = str(rng.choice(["renamed", "removed", "changed"]))
    if kind == "renamed":
        parent[f"{key}_new"] = value
    elif kind == "changed":
        parent[key] = change_value(value, rng)
    where = "/".join(map(str, [*way, key]))
    is_event = len(way) >= 2 and way[0] == "traceEvents" and way[1:] != [0, "args"]
    new_name = f"{key}_new" if kind == "renamed" and not is_event else ""
    return Mutant(name, json.dumps(changed), f"{where} {kind}", new_name)


def change_value(value: Any, rng: np.random.Generator) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, list):
        return value[:-1] if value else [1]
    return {}


def change_text(name: str, text: str, rng: np.random.Generator) -> Mutant:
    """Change a word of a text, or remove it."""
    marks = [k for k, mark in enumerate(text) if mark.isalnum()]
    place = int(marks[rng.integers(len(marks))])
    begin, end = place, place
    while begin and text[begin - 1].isalnum():
        begin -= 1
    while end < len(text) and text[end].isalnum():
        end += 1
    word = text[begin:end]
    new = str(rng.choice([word + "x", "", str(int(word) + 1) if word.isdigit() else "other"]))
    return Mutant(name, text[:begin] + new + text[end:], f"{word!r} becomes {new!r}")


def draw_traffic(rng: np.random.Generator) -> Mutant:
    """Change one of the files of traffic."""
    names = [*TABLES, "network.json"]
    name = str(names[rng.integers(len(names))])
    if name == "network.json":
        return change_tree(name, NETWORK, rng)
    return change_text(name, TABLES[name], rng)


def draw_traces(rng: np.random.Generator) -> Mutant:
    """Change a trace of the profiler, or one of Chakra."""
    if rng.random() < 0.6:
        return change_tree("kineto.0.json", KINETO, rng)
    return change_tree("chakra.0.json", CHAKRA, rng)


def read(path: Path) -> str:
    """Read a file, and return all that was read as one text."""
    if path.name.startswith("flows"):
        flows = read_flows(path)
        return repr([None if part is None else np.asarray(part).tolist() for part in flows])
    if path.name.startswith("kineto"):
        recording = read_recording(path)
        return repr(
            [getattr(recording, name) for name in ("rank", "world", "members", "calls")]
            + [recording.computing, recording.talking]
        )
    if path.name.startswith("chakra"):
        return repr([np.asarray(part).tolist() for part in read_trace(path)[1:16]])
    traffic = read_traffic(path)
    full = getattr(traffic.demand_bytes, "toarray", lambda: traffic.demand_bytes)()
    return repr((full.tolist(), traffic.names))


@pytest.mark.parametrize("draw", [draw_traffic, draw_traces])
def test_a_changed_fact_changes_the_answer_or_is_named(
    tmp_path: Path,
    draw: Callable[[np.random.Generator], Mutant],
    caplog: pytest.LogCaptureFixture,
) -> None:
    rng = np.random.default_rng(20261129)
    originals = {
        **TABLES,
        "network.json": json.dumps(NETWORK),
        "kineto.0.json": json.dumps(KINETO),
        "chakra.0.json": json.dumps(CHAKRA),
    }
    before = {}
    for name, content in originals.items():
        (tmp_path / name).write_text(content)
        before[name] = read(tmp_path / name)

    silent = []
    for _ in range(N_MUTANTS):
        mutant = draw(rng)
        caplog.clear()
        path = tmp_path / mutant.name
        path.write_text(mutant.content)
        with caplog.at_level(logging.WARNING):
            try:
                after = read(path)
            except om.InputError:
                continue
        if after == before[mutant.name] and mutant.new_name not in caplog.text:
            silent.append(f"{mutant.name}: {mutant.change}")
    assert not silent, "\n".join(sorted(set(silent)))
