"""The names that a trace of PyTorch's profiler may have, and what the reader does with them."""

from __future__ import annotations

from optmatch.model.accounts import Level

_UNREAD = "they are not read, as if they were not there"
_ABOUT_RUN = "about the run and its machine, not about its communication"
_ABOUT_SHAPES = "shapes and values of tensors, which records tell by their sizes"

TRACE = Level(
    "key of the trace",
    ("traceEvents", "distributedInfo"),
    {
        **dict.fromkeys(
            ("schemaVersion", "deviceProperties", "traceName", "displayTimeUnit", "trace_id"),
            _ABOUT_RUN,
        ),
        **dict.fromkeys(
            ("with_*", "record_shapes", "profile_memory", "cu*", "hip*", "roc*", "host*", "xpu*"),
            _ABOUT_RUN,
        ),
        "baseTimeNanoseconds": "the zero of all times; only differences count",
        "baseTimeNanosecond": "the zero of all times; only differences count",
        "metadata": _ABOUT_RUN,
    },
    _UNREAD,
)
JOB = Level(
    "key of distributedInfo",
    ("rank", "world_size", "pg_config"),
    {
        "backend": "the events tell their library",
        "pg_count": "the groups are listed",
        "nccl_version": _ABOUT_RUN,
    },
    _UNREAD,
)
GROUP = Level(
    "key of a group",
    ("pg_name", "pg_desc", "ranks"),
    {
        "backend_config": "the events tell their library",
        "pg_size": "the ranks are listed, or are all ranks",
        "group_count": "the groups are listed",
        "nccl_comm": _ABOUT_RUN,
        "uid": "the name tells the group",
    },
    _UNREAD,
)
PHASE = Level(
    "phase of events",
    ("X",),
    {
        "M": "names of processes and threads",
        **dict.fromkeys("stf", "arrows between events"),
        **dict.fromkeys("iI", "moments without duration"),
        **dict.fromkeys("CNDO", "counters and objects"),
        **dict.fromkeys("bne", "spans of asynchronous work, which are no operations"),
    },
    _UNREAD,
)
RECORD = Level(
    "argument of records of communication",
    (
        *("Collective name", "In msg nelems", "Out msg nelems", "dtype", "External id", "Seq"),
        *("Process Group Name", "Process Group ID", "Process Group Ranks", "Group size"),
        *("Global rank start", "Global rank stride", "In split size", "Out split size"),
        *("Src Rank", "Dst Rank", "Rank"),
    ),
    {
        "Process Group Description": "the name tells the group",
        **dict.fromkeys(("Input *", "Output *", "Concrete Inputs"), _ABOUT_SHAPES),
        **dict.fromkeys(("Ev Idx", "Record function id", "Sequence number"), _ABOUT_RUN),
        **dict.fromkeys(("Fwd thread id", "Fwd *", "Call stack", "Python *"), _ABOUT_RUN),
        "Is asynchronized op": "when a call returned does not count, but when its kernel ran",
        "Is Async": "when a call returned does not count, but when its kernel ran",
        "Reduction*": "which numbers are reduced how takes the same bytes",
        "Comms Id": "the name tells the group",
        "commHash": "the name tells the group",
    },
    _UNREAD,
)
