"""`optmatch info` says of traffic and traces what was used, and what was passed over."""

import json
from pathlib import Path

from tests.helpers.command import call


def _info(path: Path) -> str:
    result = call("info", path)
    return result.output


def test_columns_of_traffic(tmp_path: Path) -> None:
    path = tmp_path / "traffic.csv"
    path.write_text("src,dst,packets,bytes\na,b,1,500\nb,a,2,700\n")
    output = _info(path)
    assert "column src, dst, bytes: used" in output
    assert "column packets: passed over" in output


def test_names_in_a_trace_that_nobody_knows(tmp_path: Path) -> None:
    node = {"Id": 1, "NodeType": 4, "runtime": 5, "data_deps": [], "tensor_size": 3, "newer": 1}
    path = tmp_path / "t.0.json"
    path.write_text(json.dumps({"workload_graph": [node]}))
    output = _info(path)
    assert "tensor_size: passed over" in output
    assert "newer: unknown" in output
