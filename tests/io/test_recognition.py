"""What files look like that a reader was given by mistake."""

import json
from pathlib import Path

import pytest

from optmatch.io.text import describe_content
from tests.helpers.command import refused

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
    file = tmp_path / "execution.json"
    file.write_text(json.dumps({"schema": "1.1.1", "pid": 3, "nodes": []}))
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
