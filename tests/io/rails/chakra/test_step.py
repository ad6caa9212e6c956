"""Steps from Chakra traces: operations, matches and groups; ambiguous nodes are named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import optmatch as om
from optmatch.io.rails.chakra import (
    COLLECTIVE,
    COLLECTIVES,
    RECEIVE,
    SEND,
    Node,
    TraceOptions,
    groups_text,
    read_step,
    step_traces,
    trace_bytes,
)
from optmatch.problems.rails.training.step import OPERATIONS, Dimension, Group, Step

COMPUTE, ALL_TO_ALL, SENDS, RECEIVES = map(
    OPERATIONS.index, ("compute", "all-to-all", "send", "recv")
)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """Draw a step of up to four servers of one GPU: pipelines and collectives in any order."""
    n_ranks = draw(st.integers(2, 4))
    some = st.lists(st.integers(0, n_ranks - 1), unique=True, min_size=2, max_size=n_ranks)
    both: list[Dimension] = ["dp", "cp"]
    kinds = both[: draw(st.integers(0, 2))]
    groups = [Group(f"g{k}", kind, tuple(draw(some)), 0) for k, kind in enumerate(kinds)]
    pairs = [
        Group(f"p{k}", "pp", tuple(draw(some)[:2]), 0) for k in range(draw(st.integers(0, 2)))
    ]
    everything = [*groups, *pairs]
    rows: list[list[tuple[Any, ...]]] = [[] for _ in range(n_ranks)]
    for match in range(draw(st.integers(0, 8))):
        size = draw(st.integers(0, 2**40))
        rank = draw(st.integers(0, n_ranks - 1))
        rows[rank].append((COMPUTE, -1, 0, draw(st.integers(0, 10**6)) * 1e-6, -1, -1))
        if not everything:
            continue
        number = draw(st.integers(0, len(everything) - 1))
        ranks = everything[number].ranks
        if everything[number].dimension == "pp":
            one, two = draw(st.permutations(ranks))
            rows[one].append((SENDS, number, size, 0.0, two, match))
            rows[two].append((RECEIVES, number, size, 0.0, one, match))
        else:
            kind = draw(st.integers(1, 3))
            for member in ranks:
                rows[member].append((kind, number, size, 0.0, -1, match))
    used = {row[1] for of_rank in rows for row in of_rank} - {-1}
    kept = [group for k, group in enumerate(everything) if k in used]
    return _step(draw, rows, everything, kept)


def _step(draw: st.DrawFn, rows: Any, everything: list[Group], kept: list[Group]) -> Step:
    flat = [(rank, *row) for rank, of_rank in enumerate(rows) for row in of_rank]
    deps: list[list[int]] = []
    for k, row in enumerate(flat):
        before = [j for j in range(k) if flat[j][0] == row[0]]
        deps.append(draw(st.lists(st.sampled_from(before), unique=True)) if before else [])
    columns = list(zip(*flat, strict=True)) if flat else [()] * 7
    rank, kind, group, size, duration, peer, match = map(list, columns)
    return Step(
        groups=tuple(kept),
        rank=np.array(rank, dtype=np.int32),
        kind=np.array(kind, dtype=np.int8),
        group=np.array(
            [kept.index(everything[g]) if g >= 0 else -1 for g in group], dtype=np.int32
        ),
        size_bytes=np.array(size, dtype=np.float64),
        duration_s=np.array(duration, dtype=np.float64),
        peer=np.array(peer, dtype=np.int32),
        match=np.array(match, dtype=np.int32),
        dep_start=np.cumsum([0, *map(len, deps)]),
        dep=np.array([j for of_one in deps for j in of_one], dtype=np.int64),
    )


def write(folder: Path, ranks: list[bytes], groups: dict[str, Any]) -> tuple[Path, Path]:
    """Write traces and groups; return the prefix and the file of groups."""
    for rank, content in enumerate(ranks):
        (folder / f"run.{rank}.et").write_bytes(content)
    (folder / "groups.json").write_text(groups_text(groups))
    return folder / "run", folder / "groups.json"


def same_matches(one: Step, two: Step) -> bool:
    """Tell whether the same operations belong together, whatever their numbers."""
    pairs = set(zip(one.match.tolist(), two.match.tolist(), strict=True))
    return len(pairs) == len(set(one.match.tolist())) == len(set(two.match.tolist()))


@given(steps())
def test_a_step_survives_its_traces(tmp_path_factory: pytest.TempPathFactory, step: Step) -> None:
    n_ranks = max([step.n_ranks, *(max(g.ranks) + 1 for g in step.groups)])
    contents = step_traces(step) + [trace_bytes([])] * (n_ranks - step.n_ranks)
    groups = {group.name: group.ranks for group in step.groups}
    prefix, file = write(tmp_path_factory.mktemp("step"), contents or [trace_bytes([])], groups)
    dimensions = {group.name: group.dimension for group in step.groups}
    found = read_step(prefix, file, TraceOptions(dimensions=dimensions))
    for name in ("rank", "kind", "size_bytes", "peer", "dep_start", "dep"):
        assert getattr(found, name).tolist() == getattr(step, name).tolist(), name
    np.testing.assert_allclose(found.duration_s, step.duration_s, atol=5e-7)
    assert {g.name: g for g in found.groups} == {g.name: g for g in step.groups}
    assert [found.groups[k].name if k >= 0 else "" for k in found.group] == [
        step.groups[k].name if k >= 0 else "" for k in step.group
    ]
    assert same_matches(found, step)


def message(number: int, kind: int, size: int = 8, **attributes: int | str) -> Node:
    """Make a node that sends or receives."""
    return Node(number, kind, attributes={"comm_size": size, **attributes})


def collective(number: int, name: str, size: int = 8, **attributes: int | str) -> Node:
    """Make a collective."""
    return Node(
        number,
        COLLECTIVE,
        attributes={"comm_type": COLLECTIVES.index(name), "comm_size": size, **attributes},
    )


def read(folder: Path, *ranks: list[Node], groups: dict[str, Any], **options: Any) -> Step:
    """Write traces and read them as a step."""
    prefix, file = write(folder, [trace_bytes(nodes) for nodes in ranks], groups)
    return read_step(prefix, file, TraceOptions(**options))


def peers(step: Step) -> list[tuple[int, int]]:
    """List rank and other end of each message."""
    at = np.flatnonzero(step.peer >= 0)
    return [(int(step.rank[k]), int(step.peer[k])) for k in at]


def test_ends_that_are_not_told(tmp_path: Path) -> None:
    two = {"p": [1, 0], "q": [0, 1, 2]}
    step = read(
        tmp_path,
        [message(1, SEND, pg_name="p"), message(2, RECEIVE, pg_name="q", comm_tag=4)],
        [message(1, RECEIVE, pg_name="p"), message(2, SEND, 3, pg_name="q", comm_tag=5)],
        [
            message(1, SEND, pg_name="q", comm_tag=4),
            message(2, RECEIVE, 3, pg_name="q", comm_tag=5),
        ],
        groups=two,
    )
    assert peers(step) == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    assert [g.dimension for g in step.groups] == ["pp", "pp"]


def test_an_end_that_is_told_decides_another(tmp_path: Path) -> None:
    step = read(
        tmp_path,
        [message(1, SEND, pg_name="q")],
        [message(1, RECEIVE, pg_name="q", comm_src=0)],
        [message(1, RECEIVE, pg_name="q")],
        [message(1, SEND, pg_name="q")],
        groups={"q": [0, 1, 2, 3]},
    )
    assert peers(step) == [(0, 1), (1, 0), (2, 3), (3, 2)]


def test_pairs_without_a_group(tmp_path: Path) -> None:
    step = read(
        tmp_path,
        [message(1, SEND, comm_src=0, comm_dst=1), message(2, SEND, 5, comm_dst=1)],
        [message(9, RECEIVE, comm_src=0), message(7, RECEIVE, 5, comm_src=0)],
        groups={},
    )
    assert step.groups == (Group("pair.0-1", "pp", (0, 1), 0),)
    assert step.match.tolist() == [0, 1, 0, 1]


def test_dimensions_and_rails(tmp_path: Path) -> None:
    nodes = [
        collective(1, "ALL_REDUCE", pg_name="inside"),
        collective(2, "ALL_TO_ALL", pg_name="experts"),
        collective(3, "REDUCE_SCATTER_BLOCK", pg_name="across"),
        collective(4, "BARRIER", 0, pg_name="world"),
    ]
    inside = {"inside": [0, 1], "experts": [0, 2], "across": [0, 2], "world": [0, 1, 2, 3]}
    ranks = [nodes, nodes[:1], nodes[1:], []]
    with pytest.raises(om.FormatError, match=r"node 4: group world: rank 1 has no part in this"):
        read(tmp_path, *ranks, groups=inside, gpus_per_server=2)
    step = read(
        tmp_path,
        *ranks,
        groups=inside,
        gpus_per_server=2,
        leave_out=("world",),
        dimensions={"across": "cp"},
    )
    found = {g.name: (g.dimension, g.rail) for g in step.groups}
    assert found == {"inside": ("tp", -1), "experts": ("ep", 0), "across": ("cp", 0)}
    assert (step.duration_s == 0).all()


def test_a_stride_between_the_ranks_of_a_server(tmp_path: Path) -> None:
    """Where replicas are counted first, ranks 0 and 2 share a server."""
    nodes = [collective(1, "ALL_REDUCE", pg_name="tp"), collective(2, "ALL_REDUCE", pg_name="dp")]
    step = read(
        tmp_path,
        nodes,
        nodes[1:],
        nodes[:1],
        groups={"tp": [0, 2], "dp": [0, 1]},
        gpus_per_server=2,
        stride=2,
    )
    assert {g.name: g.rail for g in step.groups} == {"tp": -1, "dp": 0}


def test_computation_without_a_duration(tmp_path: Path) -> None:
    nodes = [
        Node(1, attributes={"num_ops": 10}),
        Node(2, duration_us=7, attributes={"num_ops": 9}),
    ]
    step = read(tmp_path, nodes, groups={}, flops_per_s=5.0)
    assert step.duration_s.tolist() == [2.0, 7e-6]


def test_nodes_before_what_they_wait_for(tmp_path: Path) -> None:
    nodes = [Node(1, parents=[3], duration_us=1), Node(2, duration_us=2), Node(3, duration_us=3)]
    step = read(tmp_path, nodes, groups={})
    assert np.rint(step.duration_s * 1e6).tolist() == [2.0, 3.0, 1.0]
    assert (step.dep_start.tolist(), step.dep.tolist()) == ([0, 0, 0, 1], [1])


@pytest.mark.parametrize(
    ("ranks", "complaint"),
    [
        ([[message(8, SEND, pg_name="q")], [], []], r"node 8: .* could be: none"),
        (
            [[message(8, SEND, comm_dst=1)], [], []],
            r"run\.0\.et: node 8: rank 1 never receives it",
        ),
        ([[message(8, RECEIVE, comm_src=1)], [], []], r"node 8: rank 1 never sends it"),
        ([[message(8, SEND, comm_dst=0)], [], []], r"node 8: rank 0: another of 0 .. 2"),
        ([[message(8, SEND, comm_dst=7)], [], []], r"node 8: rank 7: another of 0 .. 2"),
        (
            [[message(8, SEND, comm_src=2, comm_dst=1)], [], []],
            r"node 8: comm_src = 2 in the trace of rank 0",
        ),
        (
            [[message(8, SEND, 3, comm_dst=1)], [message(9, RECEIVE, 4, comm_src=0)], []],
            r"node 8: comm_size = 3, and 4 at rank 1",
        ),
        (
            [[message(8, SEND, pg_name="z")], [], []],
            r"node 8: group z: its members are not known; --groups FILE .* --to astra-groups",
        ),
        (
            [[collective(8, "ALL_REDUCE", pg_name="z")], [], []],
            r"node 8: group z: its members are not known; --groups FILE .* --to astra-groups",
        ),
        (
            [[], [], [collective(8, "ALL_REDUCE", pg_name="p")]],
            r"run\.2\.et: node 8: rank 2 is no member of group p",
        ),
        (
            [[collective(8, "ALL_REDUCE", pg_name="p")], [], []],
            r"run\.0\.et: node 8: group p: rank 1 has no part in this collective",
        ),
        (
            [
                [collective(8, "ALL_REDUCE", pg_name="p")],
                [collective(9, "ALL_GATHER", pg_name="p")],
                [],
            ],
            r"node 9: group p: kind, size or root differs from node 8 of rank 0",
        ),
        (
            [[message(8, SEND, pg_name="p", comm_dst=2)], [], [message(9, RECEIVE, comm_src=0)]],
            r"node 8: rank 2 is no member of group p",
        ),
        (
            [[Node(8, COLLECTIVE, attributes={"comm_type": 0, "pg_name": "p"})], [], []],
            r"node 8: comm_size is missing or negative",
        ),
        (
            [[Node(8, COLLECTIVE, attributes={"comm_type": 10, "comm_size": 1})], [], []],
            r"node 8: comm_type = 10: no type of collective",
        ),
        (
            [[collective(8, "GATHER", pg_name="p", comm_dst=2)], [], []],
            r"node 8: its root, rank 2, is no member of group p",
        ),
        (
            [[collective(k, "REDUCE", pg_name="p", root=k)] for k in range(2)] + [[]],
            r"run\.1\.et: node 1: group p: kind, size or root differs from node 0 of rank 0",
        ),
        (
            [[Node(1, parents=[2]), Node(2, parents=[1])], [], []],
            r"node 1: waits for itself, in a circle of 2 nodes by way of 2",
        ),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, ranks: list[list[Node]], complaint: str
) -> None:
    with pytest.raises(om.FormatError, match=complaint):
        read(tmp_path, *ranks, groups={"p": [0, 1], "q": [0, 1, 2]})


def test_a_barrier_is_an_all_reduce_of_nothing(tmp_path: Path) -> None:
    nodes = [[collective(1, "BARRIER", size, pg_name="p")] for size in (0, 4)]
    step = read(tmp_path, *nodes, groups={"p": [0, 1]})
    assert (step.kind.tolist(), step.size_bytes.tolist()) == ([1, 1], [0.0, 0.0])


@pytest.mark.parametrize(
    ("name", "like"),
    [("REDUCE", "BROADCAST"), ("GATHER", "ALL_GATHER"), ("SCATTER", "REDUCE_SCATTER_BLOCK")],
)
def test_a_root_is_no_matter_on_a_ring(tmp_path: Path, name: str, like: str) -> None:
    """A collective with a root takes as long as one that loads each link like that next to it."""
    told: list[dict[str, int | str]] = [{"pg_name": "p"}, {"pg_name": "p", "root": 1}]
    steps = [
        read(tmp_path, *[[collective(1, one, 9, **how)]] * 3, groups={"p": [2, 0, 1]})
        for how in told
        for one in (name, like)
    ]
    assert steps[0] == steps[1] == steps[2] == steps[3]


@pytest.mark.parametrize("name", ["SCATTER", "BROADCAST"])
def test_only_the_root_has_data(tmp_path: Path, name: str) -> None:
    sizes = [[collective(1, name, size, pg_name="p")] for size in (0, 8, 0)]
    step = read(tmp_path, *sizes, groups={"p": [0, 1, 2]})
    assert step.size_bytes.tolist() == [8.0] * 3
    sizes = [[collective(1, "GATHER", size, pg_name="p")] for size in (0, 8, 0)]
    with pytest.raises(om.FormatError, match=r"kind, size or root differs"):
        read(tmp_path, *sizes, groups={"p": [0, 1, 2]})


def test_a_group_of_one(tmp_path: Path) -> None:
    nodes = [collective(k, "ALL_REDUCE", pg_name=name) for k, name in enumerate("pq")]
    step = read(tmp_path, nodes, nodes[:1], groups={"p": [0, 1], "q": [0]})
    assert [group.name for group in step.groups] == ["p"]
    assert step.kind.tolist() == [1, COMPUTE, 1]
    assert step.duration_s.tolist() == [0.0] * 3


def test_groups_that_overlap(tmp_path: Path) -> None:
    first, second = (collective(k, "ALL_REDUCE", pg_name="pq"[k]) for k in (0, 1))
    ranks, groups = [[first], [first, second], [second]], {"p": [0, 1], "q": [1, 2]}
    complaint = r"node 1: rank 1 is in the groups p and q, both dp: .*--dimension q=cp"
    with pytest.raises(om.FormatError, match=complaint):
        read(tmp_path, *ranks, groups=groups)
    step = read(tmp_path, *ranks, groups=groups, dimensions={"q": "cp"})
    assert [group.dimension for group in step.groups] == ["dp", "cp"]

    # A trace may tell it, too; other descriptions of a group tell no dimension.
    for description, dimension in (("cp", "cp"), ("mesh_cp", "dp")):
        described = collective(1, "ALL_REDUCE", pg_name="q", pg_desc=description)
        step = read(tmp_path, [described], [described], [], groups={"q": [0, 1]})
        assert [group.dimension for group in step.groups] == [dimension]
    same = {"p": [0, 1], "q": [1, 0]}
    assert len(read(tmp_path, [first, second], [first, second], [], groups=same).groups) == 2


def test_a_group_on_several_rails(tmp_path: Path) -> None:
    node = collective(8, "ALL_REDUCE", pg_name="p")
    with pytest.raises(om.FormatError, match=r"node 8: group p: its ranks are on several rails"):
        read(tmp_path, [node], [], [], [node], groups={"p": [0, 3]}, gpus_per_server=2)
    with pytest.raises(om.InputError, match=r"dimensions\[p\] = 'x': one of dp"):
        TraceOptions(dimensions={"p": "x"})  # type: ignore[dict-item]
    with pytest.raises(om.InputError, match=r"stride = 0: must be >= 1"):
        TraceOptions(stride=0)


def test_options_keep_what_they_were_given() -> None:
    """They hash, and a dictionary that the caller changes afterwards changes no options."""
    told: dict[str, Any] = {"a": "cp"}
    options = TraceOptions(dimensions=told)
    told["b"] = "tp"
    assert options == TraceOptions(dimensions={"a": "cp"})
    assert hash(options) == hash(TraceOptions(dimensions={"a": "cp"}))
