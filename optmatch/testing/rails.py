"""Small rail jobs, and the best plans of tiny ones by trying every order of every port."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product

from hypothesis import strategies as st

from optmatch.fabrics import IdealSwitch
from optmatch.problems import RailJob, TransformerModel
from optmatch.problems.rail_step import RECV, SEND
from optmatch.verify.rail_times import list_before, measure_work


@st.composite
def rail_problems(draw: st.DrawFn, *, tiny: bool = False) -> RailJob:
    """Draw a job of a few ranks with a pipeline, replicas, or both.

    Parameters
    ----------
    draw
        Given by hypothesis.
    tiny
        Whether `best_rail` is to be able to solve it: one port, few communications.

    Examples
    --------
    >>> rail_problems(tiny=True)
    rail_problems(tiny=True)
    """
    dp, pp = draw(st.sampled_from([(1, 2), (2, 1), (2, 2), (1, 3)]))
    tp = 1 if tiny else draw(st.sampled_from([1, 2]))
    ports = 1 if tiny else draw(st.sampled_from([1, 1, 2]))
    model = TransformerModel(
        layers=pp * (1 if tiny else draw(st.sampled_from([1, 2]))),
        hidden=16,
        heads=2,
        sequence=8,
        vocabulary=draw(st.sampled_from([10, 200])),
        ffn=32,
    )
    return RailJob(
        fabric=IdealSwitch(dp * pp * ports),
        n_gpus=dp * pp * tp,
        gpus_per_server=tp,
        dp=dp,
        tp=tp,
        pp=pp,
        zero_stage=0 if tiny else draw(st.sampled_from([0, 1, 3])),
        ports_per_gpu=ports,
        port_bytes_per_s=1e9,
        delay_s=draw(st.sampled_from([0.0, 1e-6, 1e-5, 1e-4])),
        model=model,
        batch=dp,
        peak_flops_per_s=draw(st.sampled_from([1e9, 1e12])),
    )


def smallest_rails() -> Iterator[RailJob]:
    """List jobs in which next to nothing rides a rail: one GPU, or one server."""
    model = TransformerModel(layers=1, hidden=4, heads=1, sequence=2, vocabulary=4, ffn=4)
    yield RailJob(fabric=IdealSwitch(1), n_gpus=1, gpus_per_server=1, model=model)
    yield RailJob(fabric=IdealSwitch(1), n_gpus=2, gpus_per_server=2, tp=2, model=model)
    yield RailJob(fabric=IdealSwitch(2), n_gpus=2, gpus_per_server=1, dp=2, model=model, batch=2)


@lru_cache(maxsize=64)
def best_rail(problem: RailJob) -> float | None:
    """Find the least step time, for one port per GPU and switching per circuit.

    Notes
    -----
    Every order in which the communications of the whole job can follow one another, and for every
    port whom it faces when the step begins: whom it faces first in that order, or last. Nobody is
    folded, and nothing but the definition of a step is shared with methods.
    """
    return min(_step_s(problem, *choice) for choice in _choices(problem))


def _events(job: RailJob) -> tuple[list[list[int]], list[set[int]], list[float]]:
    """Return the operations, the predecessors and the duration of each event."""
    step = job.step()
    number: dict[int, int] = {}
    of = [
        number.setdefault(int(m) if m >= 0 else -1 - k, len(number))
        for k, m in enumerate(step.match)
    ]
    parts: list[list[int]] = [[] for _ in number]
    for k, event in enumerate(of):
        parts[event].append(k)
    before: list[set[int]] = [set() for _ in number]
    for one, two in zip(*(column.tolist() for column in list_before(step)), strict=True):
        before[of[two]].add(of[one])
    lasts = measure_work(job).full_s
    return parts, before, [float(lasts[row[0]]) for row in parts]


def _facing(job: RailJob, operations: Sequence[int]) -> dict[tuple[int, int], int]:
    """Return whom each port faces: by rank and side, 0 to send and 1 to receive."""
    step, found = job.step(), dict[tuple[int, int], int]()
    for k in operations:
        rank, members = int(step.rank[k]), step.groups[step.group[k]].ranks
        place = members.index(rank)
        if step.kind[k] == SEND:
            found[rank, 0] = int(step.peer[k])
        elif step.kind[k] == RECV:
            found[rank, 1] = int(step.peer[k])
        else:
            found[rank, 0] = members[(place + 1) % len(members)]
            found[rank, 1] = members[place - 1]
    return found


def _choices(
    job: RailJob,
) -> Iterator[tuple[list[int], dict[tuple[int, int], list[int]], dict[tuple[int, int], int]]]:
    """Yield an order of events, who uses each port in that order, and whom it faces at first."""
    parts, before, _ = _events(job)
    rail = job.step().rail
    riding = [bool(rail[row[0]] >= 0) for row in parts]
    faces = [_facing(job, row) if on else {} for row, on in zip(parts, riding, strict=True)]
    seen = set[tuple[tuple[tuple[int, int], tuple[int, ...]], ...]]()
    for order in _orders(before, riding):
        users: dict[tuple[int, int], list[int]] = {}
        for event in order:
            for port in faces[event]:
                users.setdefault(port, []).append(event)
        key = tuple(sorted((port, tuple(row)) for port, row in users.items()))
        if key in seen:
            continue
        seen.add(key)
        options = [
            sorted({faces[row[0]][port], faces[row[-1]][port]}) for port, row in users.items()
        ]
        for chosen in product(*options):
            yield order, users, dict(zip(users, chosen, strict=True))


def _orders(before: list[set[int]], riding: list[bool]) -> Iterator[list[int]]:
    """Yield orders of all events; what rides no rail comes as soon as it can."""

    def extend(order: list[int], left: set[int]) -> Iterator[list[int]]:
        ready = sorted(event for event in left if not before[event] & left)
        quiet = [event for event in ready if not riding[event]]
        if not left:
            yield order
        for event in quiet[:1] or ready:
            yield from extend([*order, event], left - {event})

    yield from extend([], set(range(len(before))))


def _step_s(
    job: RailJob,
    order: list[int],
    users: dict[tuple[int, int], list[int]],
    first: dict[tuple[int, int], int],
) -> float:
    """Time one choice."""
    parts, before, lasts = _events(job)
    rail = job.step().rail
    end = [0.0] * len(parts)
    free = dict.fromkeys(users, 0.0)
    face = dict(first)
    for event in order:
        start = max((end[one] for one in before[event]), default=0.0)
        facing = _facing(job, parts[event]) if rail[parts[event][0]] >= 0 else {}
        for port, whom in facing.items():
            start = max(start, free[port] + (job.delay_s if face[port] != whom else 0.0))
        end[event] = start + lasts[event]
        for port, whom in facing.items():
            free[port], face[port] = end[event], whom
    back = [free[port] + job.delay_s for port in users if face[port] != first[port]]
    return max([0.0, *end, *back])
