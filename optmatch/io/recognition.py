"""What a file looks like that another reader was given by mistake, and which command reads it.

Readers add the sentence of `describe_content` or `describe_tree` to the error with which they
refuse a file. Nothing here decides how a file is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from optmatch.model import FormatError

_HEAD_BYTES = 4096
"""The part at the begin of a file that tells formats of text apart."""

_CHAKRA_MESSAGES = re.compile(rb"[\x04-\x7f]\x0a[\x02-\x20]\d+\.[\d.]+")
"""The message in front of a Chakra trace: its length, then the version of the schema."""
_CHAKRA_NODE_KEYS = ("NodeType", "ctrl_deps", "ctrlDeps", "dataDeps")
_SIMAI_FIRST_LINE = re.compile(
    r"\s*(?:HYBRID_\w+|MICRO|DATA|MODEL|DLRM)\b.*(?:\n|model_parallel_NPU_group)"
)
_SERVING_COLUMNS = re.compile(r"(?=.*latency)(?=.*(?:ttft|queuing_delay|tpot))", re.IGNORECASE)

_PROFILER_TRACE = "a trace of PyTorch's profiler, which rail-trace and demand read by --kineto"
_CHAKRA_TRACE = "a Chakra trace, which rail-trace reads by --chakra and demand by --matrix"
_EXECUTION_TRACE = (
    "an execution trace of PyTorch: Chakra's chakra_trace_link and chakra_converter make of it,"
    " and of the profiler's trace of the same step, one that --chakra reads"
)
_SIMAI_WORKLOAD = (
    "a workload of SimAI or of astra-sim 1: its layers are no trace; generate rail-job states the"
    " same job by its degrees, and a list of its operations is read by --phases"
)
_SERVING_RESULTS = (
    "a table of requests by LLMServingSim, which has no traffic: its Chakra traces (*.et), made"
    " for astra-sim, are read by --chakra"
)


def describe_content(content: bytes) -> str:
    """Say what content looks like, and what reads it, as the end of a sentence; perhaps empty.

    Examples
    --------
    >>> from optmatch.io.recognition import describe_content
    >>> describe_content(b'{"schema": "1.1.1", "nodes": []}')[:45]
    ': it looks like an execution trace of PyTorch'
    """
    if content.startswith(b"SQLite format 3"):
        return _sentence("a database of SQLite: a store is read by report and verify --all")
    if b"ustar" in content[257:265]:
        return _sentence("a tar archive: unpack it, and name the files in it")
    if content[:2] == b"PK":
        return _sentence("a zip archive: unpack it, and name the files in it")

    # Binary formats have been told by their first bytes; texts follow by their beginnings.
    if _CHAKRA_MESSAGES.match(content):
        return _sentence(_CHAKRA_TRACE)

    head = content[:_HEAD_BYTES].decode(errors="replace")
    if head.lstrip()[:1] in ("{", "["):
        try:
            return describe_tree(json.loads(content, strict=False))
        except (ValueError, RecursionError):  # damaged, or no single value
            if '"traceEvents"' in head:
                return _sentence(_PROFILER_TRACE)
            is_chakra = re.search(r'"type"\s*:\s*"\w+_NODE"|"workload_graph"', head)
            return _sentence(_CHAKRA_TRACE) if is_chakra else ""

    # Text is known by its first line.
    first_line = head.partition("\n")[0]
    if first_line.startswith("?SNDlib native"):
        return _sentence("SNDlib's native format: its XML has the same demands and is read")
    if "<algo" in head:
        return _sentence(
            "a program of MSCCL: export writes such programs, and no command reads one"
        )
    if _SIMAI_FIRST_LINE.match(head):
        return _sentence(_SIMAI_WORKLOAD)
    if _SERVING_COLUMNS.match(first_line):
        return _sentence(_SERVING_RESULTS)
    if first_line.startswith("%%MatrixMarket"):
        return _sentence("a matrix, which generate demand reads by --matrix")
    return ""


@contextmanager
def describing(content: bytes) -> Iterator[None]:
    """Add what the content of a file looks like to each `FormatError` of this context."""
    try:
        yield
    except FormatError as exc:
        description = describe_content(content)
        if not description:
            raise
        message = f"{exc.message}{description}"
        raise FormatError(message, where=exc.where, path=exc.path) from exc


def describe_tree(tree: Any) -> str:
    """Say what a tree of JSON looks like by its keys, as `describe_content` does."""
    if isinstance(tree, list):
        return _describe_list(tree)
    if not isinstance(tree, dict):
        return ""
    tag = tree.get("format")
    if isinstance(tag, str) and tag.startswith("optmatch/"):
        return _sentence(f"a file of optmatch ({tag[:60]}), which solve, verify and info read")

    # Traces and plans of other tools, by their keys.
    if "traceEvents" in tree:
        return _sentence(_PROFILER_TRACE)
    if "workload_graph" in tree:
        return _sentence(_CHAKRA_TRACE)
    if "nodes" in tree and ("schema" in tree or "pid" in tree):
        return _sentence(_EXECUTION_TRACE)
    if "threadblocks" in str(tree.get("gpus"))[:_HEAD_BYTES]:
        return _sentence("a plan of MSCCL++: export writes such plans, and no command reads one")
    values = list(tree.values())
    if values and all(
        isinstance(ranks, list) and ranks and all(type(rank) is int for rank in ranks)
        for ranks in values
    ):
        return _sentence("a file of communicator groups, which --groups reads")
    return ""


def _describe_list(entries: list[Any]) -> str:
    """Say what a list of JSON looks like, by its first entry."""
    first = entries[0] if entries else None
    if isinstance(first, dict) and "rank" in first and "operation" in first:
        return _sentence("a list of phases, which rail-trace reads by --phases")
    if isinstance(first, dict) and any(key in first for key in _CHAKRA_NODE_KEYS):
        return _sentence('the nodes of a Chakra trace without {"workload_graph": ...} around them')
    if isinstance(first, dict) and "ph" in first and "name" in first:
        return _sentence('trace events without {"traceEvents": ...} around them')
    if isinstance(first, list) and len(first) == 4 and isinstance(first[0], int):
        return _sentence("a timeline of memory by PyTorch's profiler, which has no communication")
    return ""


def _sentence(description: str) -> str:
    return f": it looks like {description}"
