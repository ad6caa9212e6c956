"""Plans of rail jobs: times, states of the switches, circuits, routes, and rounds."""

from dataclasses import replace
from typing import Any

import numpy as np

import optmatch as om
from optmatch.problems.rails.execution.plan import ChordRoutes, RailPlan, RailTimeline
from optmatch.problems.rails.training.step import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    COMPUTE,
    RECV,
    SEND,
    Group,
    Step,
)
from optmatch.problems.rails.training.times import ends_s
from tests.verify.rules import Row, claim, forge, schedule


def job(
    groups: Any, operations: Any, network: Any = (), collectives: Any = (), deps: Any = ()
) -> om.RailJob:
    """Return a recorded step of ports that carry 1 byte a second, and change in 1 s.

    Operations are rows of rank, kind, group, bytes, seconds, peer and match; `deps` are pairs of
    an operation and the one that it depends on.
    """
    names = ("rank", "kind", "group", "size_bytes", "duration_s", "peer", "match")
    columns: Any = dict(zip(names, np.array(operations).T.tolist(), strict=True))
    after = [[before for own, before in deps if own == k] for k in range(len(operations))]
    step = Step(
        groups=tuple(groups),
        dep_start=np.cumsum([0, *map(len, after)]),
        dep=np.array([k for each in after for k in each], dtype=np.int64),
        **columns,
    )
    plain: Any = {"gpus_per_server": 1, "port_bytes_per_s": 1.0, "delay_s": 1.0, "latency_s": 0.0}
    return om.RailJob(
        network=om.RailNetwork(**plain | {"scale_up_bytes_per_s": 1.0} | dict(network)),
        workload=om.Workload(recorded=step),
        collectives=dict(collectives),
    )


def line(matchings: Any, starts: Any = (0.0,), rails: Any = (0,), **more: Any) -> RailTimeline:
    """Return states of a switch, each asked for when its reconfiguration starts."""
    given: Any = {"asked_s": starts} | more
    return RailTimeline(rails=rails, matchings=matchings, starts_s=starts, **given)


def plan(rails: Any, times: Any, step_s: float, ports: Any = None, relays: Any = ()) -> RailPlan:
    """Return a plan; all operations use port 0 where nothing else is said."""
    start, end = np.array(times, dtype=np.float64).T
    given: Any = {"relays": np.array(relays, dtype=np.int32).reshape(-1, 3)}
    given["ports"] = [1] * len(times) if ports is None else ports
    lines = rails if isinstance(rails, tuple) else (rails,)
    return RailPlan(rails=lines, start_s=start, end_s=end, step_s=step_s, **given)


def group(ranks: Any, dimension: Any = "dp", rail: int = 0) -> Group:
    """Return ranks on a rail."""
    return Group(f"{dimension}.{rail}", dimension, ranks, rail=rail)


def one(kind: int, members: int, size: float, fields: Any = (), collectives: Any = ()) -> Any:
    """Return a job of one collective."""
    rows = [[rank, kind, 0, size, 0, -1, 0] for rank in range(members)]
    return job([group(tuple(range(members)))], rows, fields, collectives)


def send(source: int, target: int, members: int, fields: Any = (), groups: Any = ()) -> Any:
    """Return a job of one message of 8 bytes."""
    rows = sorted([[source, SEND, 0, 8, 0, target, 0], [target, RECV, 0, 8, 0, source, 0]])
    return job([group(tuple(range(members)), "pp"), *groups], rows, fields)


THERE = line([[1, -1]])
"""A circuit from rank 0 to rank 1, all the time."""
MESSAGE_ROWS = [[0, COMPUTE, -1, 0, 1, -1, -1], [0, SEND, 0, 8, 0, 1, 0], [1, RECV, 0, 8, 0, 0, 0]]


def message(**fields: Any) -> om.RailJob:
    """Return a second of work, and a message of 8 bytes of its result."""
    return job([group((0, 1), "pp")], MESSAGE_ROWS, fields, deps=[(1, 0)])


def sent(rails: Any = THERE, step_s: float = 9.0, ports: Any = (0, 1, 1)) -> RailPlan:
    """Return the right plan of the message, over other states."""
    return plan(rails, TIMES, step_s, ports)


def timed(*times: Any) -> RailPlan:
    """Return a plan of the message with other times."""
    return plan(THERE, times, float(np.max(times)), [0, 1, 1])


TIMES = [[0, 1], [1, 9], [1, 9]]
MESSAGE = message()
STOPS = message(switching="all-stop")
LATENT = message(latency_s=0.25)
SMALL = forge(MESSAGE, network=forge(MESSAGE.network, radix=1))
SPARE = message(fabric=om.IdealSwitch(3))
CHIP = message(fabric=om.Benes(2))
MUTUAL = message(fabric=om.HexMesh(1, 1, ports=[0, 1]))
TWO_WAYS = message(fabric=om.Benes(4))
ABOVE, BELOW = [0, -1, 0, -1, 1, -1], [1, -1, -1, 0, 0, -1]
"""Light from port 0 to port 1 of a Benes network goes either way."""


def rerouted(starts_s: Any, states: Any, step_s: float, times: Any = ()) -> RailPlan:
    """Return a plan of the message over a circuit whose cells are set anew."""
    circuits = line([[1, -1, -1, -1]] * len(states), starts_s, cell_states=states)
    return plan(circuits, times or TIMES, step_s, [0, 1, 1])


BY_CHANCE = job(
    [group((0, 1)), group((0, 1), "pp")],
    [
        [0, ALL_REDUCE, 0, 4, 0, -1, 0],
        [0, SEND, 1, 8, 0, 1, 1],
        [1, ALL_REDUCE, 0, 4, 0, -1, 0],
        [1, RECV, 1, 8, 0, 0, 1],
    ],
)
"""A sum of 4 s and a message of 8 s, which do not wait for each other."""
WORK = job(
    [group((0, 1), "pp"), group((0, 1))],
    [
        [0, COMPUTE, -1, 0, 1, -1, -1],
        [0, COMPUTE, -1, 0, 1, -1, -1],
        [0, SEND, 0, 8, 0, 1, 0],
        [1, RECV, 0, 8, 0, 0, 0],
    ],
)
"""Two seconds of work, one after the other, in a job with groups of two dimensions."""
STREAMS = job(
    [group((0, 1)), group((0, 1), rail=-1)],
    [[rank, ALL_REDUCE, of, 4, 0, -1, k] for rank in (0, 1) for k, of in enumerate((0, 1, 1))],
)
"""Sums of 4 s on the rail and inside the server, side by side; there two one after the other."""
IN_SERVER = job(
    [group((0, 1, 2), rail=-1)], [[rank, ALL_TO_ALL, 0, 6, 0, -1, 0] for rank in range(3)]
)
"""An all-to-all inside a server, where each member reaches all others at once."""
EIGHT = [[0, 8], [0, 8]]
FAR, BACK = send(0, 2, 4), send(1, 2, 4)
RELAYED: Any = {"times": EIGHT, "step_s": 8.0, "relays": [[0, 1, 1]]}
TWICE_FAR = job(
    [group(range(6), "pp"), group(range(6, 12), "pp", rail=1)],
    [[0, SEND, 0, 8, 0, 2, 0], [2, RECV, 0, 8, 0, 0, 0],
     [6, SEND, 1, 8, 0, 8, 1], [8, RECV, 1, 8, 0, 6, 1]],
)  # fmt: skip
"""The same on two rails."""
PASSED_ON = line([[1, 3, -1, 2, -1, 4]], rails=(0, 1))
HOME = send(1, 0, 2)
ALIKE = job([group((0, 1), "pp")], [[rank, COMPUTE, -1, 0, 1, -1, -1] for rank in (0, 1)])
INSIDE = job(
    [group((0, 1)), group((2, 3), rail=-1)],
    [[rank, ALL_GATHER, rank // 2, 8, 0, -1, rank // 2] for rank in range(4)],
    {"scale_up_bytes_per_s": 2.0},
)
"""8 s over the rail, 4 s inside a server."""
UNEQUAL = job(
    [group((0, 1)), group((2, 3), "ep")],
    [[rank, ALL_REDUCE, rank // 2, (4, 8)[rank // 2], 0, -1, rank // 2] for rank in range(4)],
)
TWO_RAILS = send(0, 2, 3, groups=[group((3, 4), "pp", rail=1)])
WIDE = send(0, 1, 2, {"ports_per_gpu": 2})
GATHER = one(ALL_GATHER, 3, 4)
AROUND = job([group((0, 1)), group((0, 1, 2, 3), "pp")],
             [[0, ALL_GATHER, 0, 8, 0, -1, 0], [1, ALL_GATHER, 0, 8, 0, -1, 0]],
             {"ports_per_gpu": 2})  # fmt: skip
"""Rank 0 sends to rank 1 by way of rank 2, whose two ports could lead to two ranks."""
EXCHANGE = one(ALL_TO_ALL, 3, 3)
"""A second for each pair."""
SHIFTS = [[1, 2, 0], [2, 0, 1], [1, 2, 0]]
STAGES = one(ALL_TO_ALL, 5, 5)
"""A second for each part: two of them go over strides of 1, then four over strides of 2."""
UNLIKE = job(
    [group((0, 1, 2)), group((3, 4, 5, 6, 7), "ep")],
    [[rank, ALL_TO_ALL, int(rank > 2), 5 if rank > 2 else 30, 0, -1, int(rank > 2)]
     for rank in range(8)],
)  # fmt: skip
"""Two parts of 10 s, each a round; and the stages of above, which are shorter."""
BESIDE_TREE = job(
    [group((0, 1, 2)), group((3, 4, 5, 6, 7), "ep")],
    [[rank, ALL_TO_ALL if rank > 2 else BROADCAST, int(rank > 2), 5 if rank > 2 else 1, 0, -1,
      int(rank > 2)] for rank in range(8)],
    collectives={"dp": "tree"},
)  # fmt: skip
"""The same stages, beside something that is done in rounds."""
ON_TWO_RAILS = job(
    [group((0, 3)), group((1, 2), "ep", rail=1)],
    [[rank, ALL_REDUCE, int(rank in (1, 2)), 4, 0, -1, int(rank in (1, 2))] for rank in range(4)],
    {"delay_s": 99.0},
)
"""Two sums of 4 s, which have no port in common."""
TREE_OF_TWO = one(ALL_REDUCE, 2, 4, collectives={"dp": "tree"})
"""A tree has as many links as a ring, and 4 s are enough."""
STRIDES = [[1, 2, 3, 4, 0], [2, 3, 4, 0, 1], [1, 2, 3, 4, 0]]
TREE = one(BROADCAST, 3, 4, collectives={"dp": "tree"})
"""Rank 0 sends to rank 2, and then to rank 1."""
BRANCHES = [[2, -1, -1], [1, -1, -1], [2, -1, -1]]
TWICE = [*BRANCHES, *BRANCHES[1:]]
"""The first circuit may be too short; there is a second one."""
STAGES_OF_FOUR = one(ALL_TO_ALL, 4, 4)
FOUR_AND_FIVE = job(
    [group((0, 1, 2, 3)), group((4, 5, 6, 7, 8), "ep")],
    [[rank, ALL_TO_ALL, int(rank > 3), 5 if rank > 3 else 4, 0, -1, int(rank > 3)]
     for rank in range(9)],
    {"ports_per_gpu": 2},
)  # fmt: skip
"""All parts have 1 byte."""
BY_ONE, BY_TWO = [1, 2, 3, 0], [2, 3, 0, 1]
"""Two parts of a second each go over either."""


def two_sums(**network: Any) -> om.RailJob:
    """Return two sums of 4 s over the same ring, which do not wait for each other."""
    rows = [[rank, ALL_REDUCE, k, 4, 0, -1, k] for rank in (0, 1) for k in (0, 1)]
    return job([group((0, 1)), group((0, 1), "ep")], rows, network)


SAME_STREAM = job(
    [group((0, 1))],
    [[rank, ALL_REDUCE, 0, 4, 0, -1, k] for rank in (0, 1) for k in (0, 1)],
    {"ports_per_gpu": 2},
)
OTHER_STREAM = job(
    [group((0, 1)), group((0, 1), "ep", rail=-1)],
    [[rank, ALL_REDUCE, k, 4, 0, -1, k] for rank in (0, 1) for k in (0, 1)],
)
TWO_MESSAGES = job(
    [group((0, 1), "pp")],
    [[rank, (SEND, RECV)[rank], 0, 8, 0, 1 - rank, k] for rank in (0, 1) for k in (0, 1)],
    {"ports_per_gpu": 2},
)
STREAMS_OF_GROUPS = job(
    [Group("a", "tp", (0, 1), -1, "x"), Group("b", "tp", (0, 1), -1, "y"),
     Group("c", "tp", (2, 3), -1, "x"), Group("d", "tp", (2, 3), -1, "x")],
    [(rank, ALL_GATHER, rank // 2 * 2 + turn, 8.0, 0.0, -1, rank // 2 * 2 + turn)
     for rank in range(4) for turn in range(2)],
    {"gpus_per_server": 4},
)  # fmt: skip
"""Ranks 0 and 1 may gather twice at once, and ranks 2 and 3 may not; else they are alike."""
MANY_STREAMS = job(
    [group((0, 1), name) for name in ("pp", "dp", "ep", "cp")],
    [[0, COMPUTE, -1, 0, 1, -1, -1]] * 2,
)
GATHER_AND_EXCHANGE = job(
    [group((0, 1, 2, 3, 4))],
    [
        [rank, kind, 0, 5, 0, -1, k]
        for rank in range(5)
        for k, kind in ((0, ALL_GATHER), (1, ALL_TO_ALL))
    ],
)
"""20 s around a ring, then 7 s in stages."""
IN_STAGES_TWICE = job(
    [group((0, 1, 2, 3, 4))],
    [[rank, ALL_TO_ALL, 0, 5, 0, -1, k] for rank in range(5) for k in (0, 1)],
)
"""Over strides of 2 and 4; then of 1, 2 and 3: one part, three, and one."""
SIDE_BY_SIDE = job(
    [group((4, 5, 6, 7)), group((0, 1, 2, 3), "ep")],
    [[rank, ALL_TO_ALL, rank // 4 ^ 1, 4, 0, -1, rank // 4] for rank in range(8)],
)
"""Two groups, of which the first has the higher ranks."""
FAST = {"port_bytes_per_s": 2.0, "latency_s": 0.25}
FAST_TREE = one(BROADCAST, 3, 4, FAST, {"dp": "tree"})
FAST_EXCHANGE, FAST_STAGES = one(ALL_TO_ALL, 3, 3, FAST), one(ALL_TO_ALL, 5, 5, FAST)
QUICK_EXCHANGE = one(ALL_TO_ALL, 3, 3, {"delay_s": 0.0})
QUICK_STAGES = one(ALL_TO_ALL, 5, 5, {"delay_s": 0.0})
STOPPED_EXCHANGE = one(ALL_TO_ALL, 3, 3, {"switching": "all-stop"})
STOPPED_TWO = one(ALL_TO_ALL, 3, 3,
                  {"ports_per_gpu": 2, "switching": "all-stop", "delay_s": 0.5})  # fmt: skip
FOUR_TWO = one(ALL_TO_ALL, 4, 4, {"ports_per_gpu": 2})
BOTH_DIMENSIONS = job(
    [group((0, 1, 2), "ep"), group((0, 1, 2), rail=-1)],
    [[rank, ALL_GATHER, k, 4, 0, -1, k] for rank in range(3) for k in (0, 1)],
    collectives={"dp": "halving"},
)
"""The one on the rail goes around a ring, and so does the other, inside a server."""
SUM_TREE = one(ALL_REDUCE, 3, 4, collectives={"dp": "tree"})
"""Rank 1 sends to rank 0, then rank 2; then rank 0 to rank 2, and to rank 1."""
UP_AND_DOWN = [[2, 0, -1], [1, -1, 0], [2, 0, -1], [1, -1, 0], [2, 0, -1]]
STOPPED_TREE = one(BROADCAST, 3, 4, {"delay_s": 0.5, "switching": "all-stop"}, {"dp": "tree"})
QUICK_TREE = one(BROADCAST, 3, 4, {"delay_s": 0.0}, {"dp": "tree"})
PAIR = one(ALL_TO_ALL, 2, 8)
GATHER_TWO = one(ALL_GATHER, 3, 4, {"ports_per_gpu": 2})
GATHER_OF_FOUR = job(
    [group((0, 1, 2)), group((0, 3), "pp")],
    [[rank, ALL_GATHER, 0, 4, 0, -1, 0] for rank in range(3)],
)
"""A fourth rank is on the rail."""
EXCHANGE_TWO = one(ALL_TO_ALL, 3, 3, {"ports_per_gpu": 2})
TO_ALL = [(gpu + 1 + port // 2) % 4 * 6 + port for gpu in range(4) for port in range(6)]
"""Of four GPUs with six ports: two lead to each other one."""
FOUR_SIX = one(ALL_TO_ALL, 4, 8, {"ports_per_gpu": 6, "port_bytes_per_s": 2.0})
LATE_FOUR_SIX = one(
    ALL_TO_ALL, 4, 8, {"ports_per_gpu": 6, "port_bytes_per_s": 2.0, "latency_s": 0.25}
)
BOTH_WAYS = [(gpu + (1 if p < 3 else 3)) % 4 * 6 + p for gpu in range(4) for p in range(6)]
"""Around rings both ways, which takes as long as one part over one port."""
TWO_EXCHANGES = job(
    [group((0, 1, 2, 3))],
    [[rank, ALL_TO_ALL, 0, 4, 0, -1, k] for rank in range(4) for k in (0, 1)],
)
"""One goes around a ring, 6 s; then one is done in rounds."""
RING_AND_SHIFTS = [[2, 3, 1, 0], [1, 2, 3, 0], [2, 3, 0, 1], [3, 0, 1, 2], [2, 3, 1, 0]]
RINGS = one(ALL_GATHER, 4, 4)
RINGS_TWO = one(ALL_GATHER, 4, 4, {"ports_per_gpu": 2})
PAIRS_TWO = job(
    [group((0, 1)), group((2, 3), "ep")],
    [[rank, ALL_GATHER, rank // 2, 8, 0, -1, rank // 2] for rank in range(4)],
    {"ports_per_gpu": 2},
)
SIX = one(ALL_GATHER, 6, 4)


BARRIER = job(
    [group((0, 1))],
    [
        [0, COMPUTE, -1, 0, 1, -1, -1],
        [0, ALL_REDUCE, 0, 0, 0, -1, 0],
        [1, ALL_REDUCE, 0, 0, 0, -1, 0],
        [1, COMPUTE, -1, 0, 1, -1, -1],
    ],
    deps=[(1, 0), (3, 2)],
)
"""A second of work, then a sum of no bytes without latency, then a second of work elsewhere."""
NO_BYTES = job(
    [group((0, 1), "pp")],
    [
        [0, COMPUTE, -1, 0, 1, -1, -1],
        [0, SEND, 0, 0, 0, 1, 0],
        [1, RECV, 0, 0, 0, 0, 0],
        [1, COMPUTE, -1, 0, 1, -1, -1],
    ],
    deps=[(1, 0), (3, 2)],
)
"""The same with a message of no bytes."""


def short_message(size_bytes: float) -> om.RailJob:
    """Return a second of work, and then a message."""
    rows = [
        [0, COMPUTE, -1, 0, 1, -1, -1],
        [0, SEND, 0, size_bytes, 0, 1, 0],
        [1, RECV, 0, size_bytes, 0, 0, 0],
    ]
    return job([group((0, 1), "pp")], rows, deps=[(1, 0)])


ALMOST_NO_BYTES = short_message(1e-30)
"""The message ends when it starts, as far as floats can tell."""
AT_ONCE = forge(ALMOST_NO_BYTES, network=forge(ALMOST_NO_BYTES.network, delay_s=0.0))
"""The same where a circuit is up as soon as it is set up."""
STOPPED_STAGES = one(ALL_TO_ALL, 4, 16, {"switching": "all-stop", "ports_per_gpu": 2})
"""Two parts of 4 s go over either stride of `shift`."""
ALL_BY_FOUR = one(ALL_TO_ALL, 4, 16, {"ports_per_gpu": 2, "delay_s": 4.0})


def shift(first: int, second: int = 0) -> list[int]:
    """Return the circuits of four GPUs whose two ports lead so many places further on, 0 none."""
    return [
        2 * ((gpu + stride) % 4) + port if stride else -1
        for gpu in range(4)
        for port, stride in enumerate((first, second))
    ]


def in_two_ways(first: int, meets: dict[int, int]) -> list[int]:
    """Return circuits of rank 0 over ports 0, and of the others who meet over ports 1."""
    circuits = [-1] * 8
    circuits[0] = 2 * first
    for rank, peer in meets.items():
        circuits[2 * rank + 1] = 2 * peer + 1
    return circuits


MEETINGS: list[dict[int, int]] = [{1: 0, 2: 3, 3: 2}, {1: 2, 2: 1, 3: 0}, {1: 3, 2: 0, 3: 1}]
"""Rounds in which ranks 1, 2 and 3 meet everyone else."""


CHORD_CIRCUITS = [2, 5, 4, 7, 6, 1, 0, 3]
ONE_CHORD = [2, -1, 4, -1, 6, -1, 0, -1]
SECOND_LATE = line([ONE_CHORD, CHORD_CIRCUITS, ONE_CHORD], [0, 0.5, 3])
SECOND_EARLY = line([CHORD_CIRCUITS, ONE_CHORD, CHORD_CIRCUITS], [0, 1.5, 2])
"""Of four GPUs with two ports: port 0 leads one place further on, port 1 two places."""


def over_chords(
    last_s: float = 2.0, rails: Any = None, share: Any = (1, 1, 1), to_third: Any = (1, 1)
) -> RailPlan:
    """Return a plan of an all-to-all of four over strides 1 and 2; parts of 1 byte take 1 s."""
    routes = ChordRoutes(
        n_members=4, strides=(1, 2), distance=[1, 2, 3], hops=[[1, 0], [0, 1], to_third],
        share=share,
    )  # fmt: skip
    circuits = line([CHORD_CIRCUITS]) if rails is None else rails
    return replace(plan(circuits, [[0, last_s]] * 4, last_s, [3] * 4), chords=(routes,))


def chords_of_many(n_members: int) -> RailPlan:
    """Return the all-to-all over chords with a table for groups of so many members."""
    routes = ChordRoutes(n_members=n_members, strides=(1,), distance=[1], hops=[[1]], share=[1.0])
    return replace(over_chords(), chords=(routes,))


def late_chords(begin_s: float) -> RailPlan:
    """Return the same from 1 s on, over circuits that begin to be set up at some time."""
    dark = [-1] * 8
    rails = line([dark, CHORD_CIRCUITS, dark], [0, begin_s, 3])
    return replace(over_chords(3.0, rails), start_s=np.ones(4), step_s=4.0)


HAIR = 512 * 2.0**-52
"""So many units in the last place of 1 s may times differ."""


def over_chords_of_both() -> RailPlan:
    """Return a plan of a group of four and one of five, both over the strides 1 and 2."""
    of_four = over_chords()
    of_five = ChordRoutes(
        n_members=5, strides=(1, 2), distance=[1, 2, 3, 4], hops=[[1, 0], [0, 1], [1, 1], [0, 2]],
        share=[1.0] * 4,
    )  # fmt: skip
    circuits = [
        2 * (4 + (place + stride) % 5) + port
        for place in range(5)
        for port, stride in enumerate((1, 2))
    ]
    times = [[0, 2]] * 4 + [[0, 4]] * 5
    both = plan(line([[*CHORD_CIRCUITS, *circuits]]), times, 4.0, [3] * 9)
    return replace(both, chords=(*of_four.chords, of_five))


def in_servers(dp: int, **fields: Any) -> om.RailJob:
    """Return a job of one layer and gradients on servers of two GPUs, whose data change rail."""
    model = om.TransformerModel(
        layers=1, hidden=4, heads=1, sequence=2, vocabulary=2, ffn=4, ffn_matrices=2
    )
    return om.RailJob(
        parallelism=om.Parallelism(dp=dp, tp=2),
        network=om.RailNetwork(gpus_per_server=2, **{"change_rail_s": 1e-6} | fields),
        workload=om.Workload(model=model, batch=dp),
    )


def pooled(rail_job: om.RailJob, ports: Any = None) -> RailPlan:
    """Return a plan over both rails, which join two servers; as early as everything allows."""
    events, step = rail_job.with_pooled_rails().events(), rail_job.step()
    ends = ends_s(events)
    times = np.stack([ends - events.duration_s, ends], axis=1)[events.event_of]
    rides = step.rail >= 0
    k = rail_job.network.ports_per_gpu
    across = [*range(k, 2 * k), *range(k)]
    rails = tuple(line([across], rails=(rail,)) for rail in (0, 1)) if rides.any() else ()
    used = np.where(rides, 4**k - 1, 0) if ports is None else ports(step)
    return replace(plan(rails, times, float(ends.max()), used), pooled=True)


def blinking(dark_s: float) -> RailPlan:
    """Return a plan over both rails that sets a circuit up anew in the midst of an operation."""
    rail_job = in_servers(2)
    steady = pooled(rail_job)
    last = np.argmax(np.where(steady.ports, steady.start_s, -1.0))
    middle_s = (steady.start_s[last] + steady.end_s[last]) / 2
    states = [[1, 0], [-1, -1], [1, 0]]
    rails = tuple(
        line(states, [0.0, middle_s, middle_s + dark_s], rails=(rail,)) for rail in (0, 1)
    )
    return replace(steady, rails=rails, step_s=middle_s + dark_s + rail_job.network.delay_s)


def every(end: float, step_s: float, rails: Any, ranks: int = 3) -> RailPlan:
    """Return a plan of one collective from 0 s on."""
    return plan(rails, [[0, end]] * ranks, step_s)


ROWS = [
    Row(None, MESSAGE, sent(), figures={"objective": 9.0, "reconfigurations": 0}),
    Row(
        "the answer is a plan",
        MESSAGE,
        schedule([[1, 0]]),
        "answer: the answer is a plan: got Schedule, expected RailPlan",
    ),
    Row(None, MESSAGE, sent(), figures={"lower_bound_checked": None}),
    Row("every operation has its times", MESSAGE, plan(THERE, TIMES[:2], 9.0, [0, 1]),
        "start_s: every operation has its times: got 2"),
    Row(
        "all ranks have operations of their own",
        MESSAGE,
        forge(sent(), like=np.array([0, 0], np.int32)),
        "like: all ranks have operations of their own: got 2, expected 0",
    ),
    Row(
        "all ranks have operations of their own",
        MESSAGE,
        claim(
            MESSAGE,
            answer=forge(sent(), like=np.array([0, 0], np.int32)),
            objective=9.0,
            lower_bound=9.0,
        ),
        stops=True,
    ),
    Row("every rail has a timeline", MESSAGE, sent(()), "rails: every rail has"),
    Row("every rail has a timeline", MESSAGE, sent(line([[1, -1]], rails=(1,)))),
    Row("a timeline is that of rails with equally many GPUs", TWO_RAILS,
        plan((line([[2, -1, -1]], rails=(0, 1)),), EIGHT, 8.0), "rails[0]: a timeline is that"),
    Row("a timeline is that of rails with equally many GPUs", TWO_RAILS,
        claim(TWO_RAILS, answer=plan((line([[2, -1, -1]], rails=(0, 1)),), EIGHT, 8.0),
              objective=8.0, lower_bound=8.0), stops=True),
    Row("a timeline is that of rails with equally many GPUs", MESSAGE,
        sent((THERE, line([[1, -1]], rails=()))), "got 0, expected 1"),
    Row(
        "the lower bound is not below that of all links",
        MESSAGE,
        claim(MESSAGE, answer=sent(), objective=9.0, lower_bound=8.0),
        "got 8.0, expected 9.0",
    ),
    Row(None, MESSAGE, claim(MESSAGE, answer=sent(), objective=9.0, lower_bound=9.0)),
    # times
    Row("no operation starts before the step", MESSAGE, timed([-1, 0], [1, 9], [1, 9]),
        "no operation starts before the step: got -1.0, expected 0.0"),
    Row("an operation starts after what it waits for", MESSAGE,
        timed([0, 1], [0.999, 8.999], [0.999, 8.999]), "got 0.999, expected 1.0"),
    Row(None, WORK, plan(THERE, [[0, 1], [1, 2], [0, 8], [0, 8]], 8.0, [0, 0, 1, 1])),
    Row("an operation starts after what it waits for", WORK,
        plan(THERE, [[0, 1], [0, 1], [0, 8], [0, 8]], 8.0, [0, 0, 1, 1])),
    Row(None, IN_SERVER, claim(IN_SERVER, answer=plan((), [[0, 4]] * 3, 4.0, [0] * 3),
        objective=4.0, lower_bound=4.0), figures={"lower_bound_checked": 4.0}),
    Row(None, STREAMS, plan(line([[1, 0]]), [[0, 4], [0, 4], [4, 8]] * 2, 8.0, [1, 0, 0] * 2)),
    Row("an operation starts after what it waits for", STREAMS,
        plan(line([[1, 0]]), [[0, 4], [0, 4], [3.999, 7.999]] * 2, 7.999, [1, 0, 0] * 2)),
    Row("an operation lasts as long as its work or its bytes need", MESSAGE,
        timed([0, 1.001], [1.001, 9.001], [1.001, 9.001])),
    Row("an operation lasts as long as its work or its bytes need", MESSAGE,
        timed([0.5, 2], [2, 10], [2, 10]), "got 1.5, expected 1.0"),
    Row("no operation starts before the step", MESSAGE, timed([-9, -8], [-8, 0], [-8, 0]),
        told=3),
    Row("an operation lasts as long as its work or its bytes need", ALIKE,
        plan(line([[1, -1]]), [[0, 1], [0, 2]], 2.0, [0, 0]), "rank 1"),
    Row("an operation lasts as long as its work or its bytes need", ALIKE,
        plan(line([[1, -1]]), [[0, 2], [0, 2]], 2.0, [0, 0]), told=1),
    Row("an operation lasts as long as its work or its bytes need", INSIDE,
        plan(line([[1, 0]]), [[0, 8]] * 4, 8.0, [1, 1, 0, 0]), "rank 2"),
    Row(None, UNEQUAL, claim(UNEQUAL, lower_bound=8.0), figures={"lower_bound_recomputed": 8.0}),
    Row("all parts of a communication start together", HOME,
        plan(line([[-1, 0]]), [[0.001, 8], [0, 8]], 8.0)),
    Row("all parts of a communication start together", MESSAGE, timed([0, 1], [1, 9], [1.001, 9])),
    Row("all parts of a communication end together", MESSAGE, timed([0, 1], [1, 9], [1, 8.999])),
    Row("the step ends with its last operation or reconfiguration", MESSAGE, sent(step_s=9.001),
        "step_s: the step ends with its last operation or reconfiguration: got 9.001"),
    Row(None, MESSAGE, sent(line([[1, -1]] * 2, [0, 9]), 10.0),
        figures={"reconfigurations": 1, "circuits_changed": 0}),
    Row("the step ends with its last operation or reconfiguration", MESSAGE,
        sent(line([[1, -1]] * 2, [0, 9]), 9.0), "got 9.0, expected 10.0"),
    Row(None, BARRIER, plan(line([[1, 0]]), [[0, 1], [1, 1], [1, 1], [1, 2]], 2.0, [0, 1, 1, 0])),
    *(
        Row("an operation lasts as long as its work or its bytes need", nothing,
            plan(rail, [[0, 1], [1, 0], [1, 0], [0, 1]], 1.0, [0, 1, 1, 0]),
            "lasts as long as its work or its bytes need: got -1.0, expected 0.0", told=2)
        for nothing, rail in ((BARRIER, line([[1, 0]])), (NO_BYTES, THERE))
    ),
    Row("an operation starts after what it waits for", MESSAGE,
        timed([0, 1], [1 - 4e-12, 9 - 4e-12], [1 - 4e-12, 9 - 4e-12])),
    Row("an operation lasts as long as its work or its bytes need", MESSAGE,
        plan(line([[1, -1]] * 2, [0, 1e12]), [[0, 0.75], [0.75, 8.75], [0.75, 8.75]], 1e12 + 1,
            [0, 1, 1])),
    Row(None, LATENT, plan(THERE, [[0, 1], [1, 9.25], [1, 9.25]], 9.25, [0, 1, 1])),
    # ports
    Row("what rides no rail uses no port", MESSAGE, sent(ports=[1, 1, 1]),
        "got 1.0, expected 0.0"),
    Row("an operation on a rail uses ports of its GPU", MESSAGE, sent(ports=[0, 0, 1]),
        "got 0.0, expected 1.0"),
    Row("an operation on a rail uses ports of its GPU", MESSAGE, sent(ports=[0, 2, 1])),
    Row("an operation on a rail uses ports of its GPU", MESSAGE, sent(ports=[0, 1, 0])),
    Row(None, BY_CHANCE, plan(line([[1, 0]]), [[0, 4], [4, 12]] * 2, 12.0)),
    Row(
        "a port sends for one operation at a time",
        BY_CHANCE,
        plan(line([[1, 0]]), [[0, 4], [3.999, 11.999]] * 2, 11.999),
        "a port sends for one operation at a time: got 3.999, expected 4.0",
    ),
    # bounds
    *(
        Row(None, sums, claim(sums, lower_bound=bound), figures={"lower_bound_checked": bound})
        for sums, bound in (
            (two_sums(delay_s=1.5), 4.0),
            (two_sums(delay_s=3.0), 6.0),
            (two_sums(delay_s=99.0), 8.0),
            (two_sums(delay_s=99.0, ports_per_gpu=2), 2.0),
            (two_sums(delay_s=3.0, fabric=om.Benes(2)), 6.0),
            (two_sums(delay_s=3.0, fabric=om.HexMesh(1, 1, ports=[0, 1])), 4.0),
            (UNLIKE, 21.0),
            (BESIDE_TREE, 7.0),
            (ON_TWO_RAILS, 4.0),
            (EXCHANGE, 3.0),
            (STAGES, 7.0),
            (FAST_STAGES, 5.5),
            (QUICK_STAGES, 4.0),
            (one(ALL_TO_ALL, 5, 5, {"switching": "all-stop"}), 7.0),
            (two_sums(delay_s=3.0, switching="all-stop"), 6.0),
            (two_sums(delay_s=99.0, switching="all-stop", latency_s=0.5), 10.0),
            (GATHER_AND_EXCHANGE, 27.0),
            (one(ALL_TO_ALL, 5, 5, {"delay_s": 99.0}), 10.0),
            (one(ALL_TO_ALL, 5, 5, FAST | {"delay_s": 99.0}), 6.0),
            (TREE, 8.0),
            (one(ALL_GATHER, 2, 8, FAST), 4.25),
        )
    ),
    # streams
    Row("an operation starts after what it waits for", SAME_STREAM,
        plan(line([[2, 3, 0, 1]]), [[0, 4]] * 4, 4.0, [1, 2] * 2)),
    Row(None, OTHER_STREAM, plan(line([[1, 0]]), [[0, 4]] * 4, 4.0, [1, 0] * 2)),
    Row(None, STREAMS_OF_GROUPS,
        plan((), [[0, 8]] * 4 + [[0, 8], [8, 16]] * 2, 16.0, [0] * 8)),
    Row("an operation starts after what it waits for", STREAMS_OF_GROUPS,
        plan((), [[0, 8]] * 8, 8.0, [0] * 8)),
    Row("an operation starts after what it waits for", TWO_MESSAGES,
        plan(line([[2, 3, -1, -1]]), [[0, 8]] * 4, 8.0, [1, 2] * 2)),
    Row("an operation starts after what it waits for", MANY_STREAMS,
        plan(line([[-1, -1]]), [[0, 1], [0, 1]], 1.0, [0, 0])),
    Row(None, forge(INSIDE, network=forge(INSIDE.network, latency_s=0.25)), plan(line([[1, 0]]),
        [[0, 8.25]] * 2 + [[0, 4.25]] * 2, 8.25, [1, 1, 0, 0])),
    # what cannot be replayed
    *(
        Row(rule, MESSAGE, claim(MESSAGE, answer=answer, lower_bound=9.0), stops=True)
        for rule, answer in (
            ("the answer is a plan", schedule([[1, 0]])),
            ("every operation has its times", plan(THERE, TIMES[:2], 9.0, [0, 1])),
            ("every rail has a timeline", sent(())),
            ("the switch has its ports", sent(line([[1, -1, -1]]))),
            (
                "what is forwarded is sent over a rail, and not in rounds",
                plan(THERE, TIMES, 9.0, [0, 1, 1], relays=[[0, 1, 1]]),
            ),
        )
    ),
    Row("the switch has its ports", TWO_RAILS,
        plan((line([[2, -1, -1]]), line([[-1] * 3], rails=(1,))), EIGHT, 8.0), stops=True),
    # states
    Row(
        "the switch has its ports",
        MESSAGE,
        sent(line([[1, -1, -1]])),
        "rails[0].matchings: the switch has its ports: got 3, expected 2",
        stops=True,
    ),
    Row("a rail fits its switch", SMALL, sent(), "rails[0]: a rail fits its switch: got 2"),
    Row(None, SPARE, sent(line([[1, -1, -1]]))),
    Row(
        "only ports of GPUs have circuits",
        SPARE,
        sent(line([[1, -1, 2]])),
        "rails[0].matchings[0, 2]: only ports of GPUs have circuits: got 2, expected -1",
    ),
    Row("only ports of GPUs have circuits", SPARE, sent(line([[1, 2, -1]])), "matchings[0, 1]"),
    Row(
        "a step ends with the circuits it begins with",
        MESSAGE,
        sent(line([[1, -1], [1, 0]], [0, 2])),
        "rails[0].matchings[-1]: a step ends with the circuits it begins with",
    ),
    Row("the first state is there", MESSAGE, sent(line([[1, -1]], [0.5], asked_s=[0.0])),
        "rails[0].starts_s[0]: the first state is there: got 0.5"),
    Row("the first state is there", MESSAGE, sent(line([[1, -1]], [0.5]))),
    Row(None, MESSAGE, sent(line([[1, -1]] * 2, [0, 2], asked_s=[0, 2]))),
    Row("a state is asked for before it is set up", MESSAGE,
        sent(line([[1, -1]] * 2, [0, 2], asked_s=[0, 2.001])),
        "rails[0].asked_s[1]: a state is asked for before it is set up: got 2.001"),
    Row("a state is asked for before it is set up", MESSAGE,
        sent(line([[1, -1]] * 2, [0, 2], asked_s=[0, -0.001]))),
    Row(None, MESSAGE, sent(line([[1, -1], [1, 0], [1, -1], [1, 0], [1, -1]], [0, 2, 2.5, 3, 8]))),
    Row(
        "a port gets no new circuit before its last one is up",
        MESSAGE,
        sent(line([[1, -1], [1, 0], [1, -1], [1, 0], [1, -1]], [0, 2, 2.5, 2.999, 8])),
        "rails[0].starts_s[3], circuit from port 1: a port gets no new circuit before its last one"
        " is up: got 2.999, expected 3.0",
    ),
    Row(
        "a port gets no new circuit before its last one is up",
        TWO_WAYS,
        rerouted([0, 9, 9.5], [ABOVE, BELOW, ABOVE], 10.5),
        "rails[0].starts_s[2], circuit from port 0",
        told=2,
    ),
    Row(None, STOPS, sent(line([[1, -1]] * 3, [0, 9, 10]), 11.0)),
    Row(
        "reconfigurations follow one another",
        STOPS,
        sent(line([[1, -1]] * 3, [0, 9, 9.999]), 10.999),
        "rails[0].starts_s[2]: reconfigurations follow one another: got 9.999, expected 10.0",
    ),
    Row(None, STOPS, plan(line([[1, -1]] * 2, [0, 2]), [[0, 1], [1, 10], [1, 10]], 10.0,
        [0, 1, 1])),
    Row(None, MESSAGE, sent(line([[1, -1]] * 3, [0, 9, 9.5]), 10.5)),
    Row("an ideal switch has no cells", MESSAGE, sent(line([[1, -1]], cell_states=[[0]]))),
    Row(None, AT_ONCE, plan(line([[-1, -1], [1, -1], [-1, -1]], [0, 1, 1.5]),
        [[0, 1], [1, 1], [1, 1]], 1.5, [0, 1, 1])),
    Row(None, CHIP, sent(line([[1, -1]], cell_states=[[1]]))),
    Row("every cell has a state", CHIP, sent(THERE),
        "rails[0].cell_states: every cell has a state: got None, expected (1, 1)"),
    Row(
        None,
        ALMOST_NO_BYTES,
        plan(line([[1, -1], [-1, -1], [1, -1]], [0, 1, 2]), [[0, 1], [1, 1], [1, 1]], 3.0,
             [0, 1, 1]),
    ),
    Row("an operation lasts as long as its bytes need on its ports", short_message(0.5),
        plan(THERE, [[0, 1], [1, 1], [1, 1]], 1.0, [0, 1, 1])),
    Row(
        "its circuits are there from start to end",
        TWO_WAYS,
        rerouted([0, 4, 12], [ABOVE, BELOW, ABOVE], 13.0),
    ),
    Row(None, TWO_WAYS, rerouted([0, 4, 12], [ABOVE] * 3, 13.0)),
    Row(None, TWO_WAYS, rerouted([0, 0, 9], [ABOVE, BELOW, ABOVE], 10.0)),
    Row(
        None,
        replace(TWO_WAYS, network=replace(TWO_WAYS.network, switching="all-stop")),
        rerouted([0, 4, 12], [ABOVE, BELOW, ABOVE], 13.0, [[0, 1], [1, 10], [1, 10]]),
    ),
    Row(
        "a step ends with the circuits it begins with",
        TWO_WAYS,
        rerouted([0, 9], [ABOVE, BELOW], 10.0),
        "rails[0].matchings[-1]: a step ends with the circuits it begins with: got other circuits,"
        " or routes of theirs, expected those of the first state",
    ),
    Row(None, MUTUAL, sent(line([[1, 0]], cell_states=[[-1, -1, 0, -1, -1, -1]]))),
    Row(None, MUTUAL, sent(line([[1, 0], [-1, -1], [1, 0]], [0, 9, 10], cell_states=[
        [-1, -1, 0, -1, -1, -1], [-1] * 6, [-1, -1, 0, -1, -1, -1]]), 11.0)),
    Row("circuits of bidirectional ports are mutual", MUTUAL,
        sent(line([[1, 0], [0, -1], [1, 0]], [0, 9, 10]), 11.0)),
    Row(None, message(radix=2), sent()),
    Row("only ports of GPUs have circuits", SPARE, sent(line([[1, -1, 0]])), "matchings[0, 2]"),
    Row(
        "a port gets no new circuit before its last one is up",
        MESSAGE,
        sent(line([[1, -1], [1, 0], [1, -1], [1, 0], [1, -1], [-1, -1], [1, -1]],
            [0, 2, 2.5, 2.999, 8, 9, 10]), 11.0),
        "got 2.999, expected 3.0",
        told=2,
    ),
    Row(None, WIDE, plan(line([[-1, 2, -1, -1]]), EIGHT, 8.0, [2, 1])),
    Row(
        "circuits of bidirectional ports are mutual",
        MUTUAL,
        sent(THERE),
        "rails[0].matchings[0, 0]: circuits of bidirectional ports are mutual: got 1",
    ),
    # circuits and routes
    Row(
        "its circuits are there from start to end",
        MESSAGE,
        sent(line([[-1, -1]])),
        "its circuits are there from start to end: got from rank 0, over ports 1",
    ),
    Row(None, message(delay_s=0.0), sent(line([[-1, -1], [1, -1], [-1, -1]], [0, 1, 9]))),
    Row(None, message(delay_s=0.5), sent(line([[-1, -1], [1, -1], [-1, -1]], [0, 0.5, 9]), 9.5),
        figures={"circuits_changed": 1}),
    Row(
        "its circuits are there from start to end",
        message(delay_s=0.5),
        sent(line([[-1, -1], [1, -1], [-1, -1]], [0, 0.501, 9]), 9.5),
    ),
    Row(
        "its circuits are there from start to end",
        message(delay_s=0.5),
        sent(line([[-1, -1], [1, -1], [-1, -1]], [0, 0.5, 8.999]), 9.499),
    ),
    Row("a message goes to its receiver", send(0, 1, 3), plan(line([[2, -1, -1]]), EIGHT, 8.0),
        "a message goes to its receiver: got 2.0, expected 1.0"),
    Row(None, FAR, plan(line([[1, 2, -1, -1]]), **RELAYED)),
    Row(None, TWICE_FAR, plan(PASSED_ON, EIGHT * 2, 8.0,
        relays=[[0, 1, 1], [0, 3, 1], [2, 7, 1], [2, 9, 1]])),
    Row("data are handed on where they arrive", TWICE_FAR, plan(PASSED_ON, EIGHT * 2, 8.0,
        relays=[[0, 1, 1], [0, 3, 1], [2, 11, 1], [2, 9, 1]]), "of rank 6"),
    Row("data are handed on where they arrive", TWICE_FAR, plan(PASSED_ON, EIGHT * 2, 8.0,
        relays=[[0, 5, 1], [0, 3, 1], [2, 11, 1], [2, 9, 1]]), "of rank 0", told=2),
    Row(None, BACK, plan(line([[2, 0, -1, -1]]), EIGHT, 8.0, relays=[[0, 0, 1]])),
    Row("data are handed on where they arrive", BACK,
        plan(line([[-1, 0, -1, 2]]), EIGHT, 8.0, relays=[[0, 3, 1]])),
    Row("data are handed on where they arrive", BACK,
        plan(line([[2, 3, -1, -1]]), EIGHT, 8.0, relays=[[0, 0, 1]]), "expected to rank 0"),
    Row("its circuits are there from start to end", FAR, plan(line([[-1, 2, -1, -1]]), **RELAYED)),
    Row(
        "data are handed on where they arrive",
        FAR,
        plan(line([[3, 2, -1, -1]]), **RELAYED),
        "data are handed on where they arrive: got from rank 0, over ports 1, expected to rank 1",
    ),
    Row(
        "data are forwarded on their own rail",
        TWO_RAILS,
        plan((line([[2, -1, -1]]), line([[-1, -1]], rails=(1,))), EIGHT, 8.0, relays=[[0, 3, 1]]),
    ),
    Row(
        "what is forwarded is sent over a rail, and not in rounds",
        FAR,
        plan(line([[2, -1, -1, -1]]), EIGHT, 8.0, relays=[[1, 1, 1]]),
        "relays[0]: what is forwarded is sent over a rail, and not in rounds: got [1, 1, 1]",
        stops=True,
    ),
    Row(
        "what is forwarded is sent over a rail, and not in rounds",
        FAR,
        plan(line([[1, 2, -1, -1]]), EIGHT, 8.0, relays=[[0, 1, 1], [1, 1, 1]]),
        stops=True,
        told=1,
    ),
    Row(
        "what is forwarded is sent over a rail, and not in rounds",
        TREE,
        plan(line(BRANCHES, [0, 4, 9]), [[0, 9]] * 3, 10.0, relays=[[0, 1, 1]]),
        stops=True,
    ),
    Row(
        "what is forwarded is sent over a rail, and not in rounds",
        MESSAGE,
        plan(THERE, TIMES, 9.0, [0, 1, 1], relays=[[0, 1, 1]]),
        stops=True,
    ),
    *(
        Row(
            "who forwards has that rank and those ports",
            FAR,
            plan(line([[1, 2, -1, -1]]), EIGHT, 8.0, relays=[hop]),
            "relays[0]: who forwards has that rank and those ports",
            stops=True,
        )
        for hop in ([0, 4, 1], [0, -1, 1], [0, 1, 0], [0, 1, 2])
    ),
    Row(None, WIDE, plan(line([[3, -1, -1, -1]]), EIGHT, 8.0, [1, 2])),
    Row(None, WIDE, plan(line([[3, 2, -1, -1]]), [[0, 4], [0, 4]], 4.0, [3, 3])),
    Row(
        "a receiver uses the ports at which the message arrives",
        WIDE,
        plan(line([[3, -1, -1, -1]]), EIGHT, 8.0, [1, 1]),
        "a receiver uses the ports at which the message arrives: got 1.0, expected 2.0",
    ),
    Row(
        "all ports of a hop lead to the same rank",
        AROUND,
        plan(line([[4, -1, 0, -1, 6, 2, -1, -1]]), EIGHT, 8.0, relays=[[0, 2, 3]]),
        "all ports of a hop lead to the same rank: got from rank 2, over ports 11",
    ),
    Row(None, AROUND, plan(line([[4, -1, 0, -1, 3, 2, -1, -1]]), EIGHT, 8.0, relays=[[0, 2, 3]])),
    Row(None, GATHER, every(8.0, 8.0, line([[1, 2, 0]]))),
    Row("an operation lasts as long as its bytes need on its ports", GATHER,
        plan(line([[1, 2, 0]]), [[1, 9.5]] * 3, 9.5), "got 8.5, expected 8.0"),
    Row(None, RINGS_TWO, plan(line([[2, 3, 4, 5, 6, 7, 0, 1]]), [[0, 6]] * 4, 6.0, [3] * 4)),
    Row(None, PAIRS_TWO, plan(line([[2, 3, 0, 1, 6, 7, 4, 5]]), [[0, 4]] * 4, 4.0, [3] * 4)),
    Row("the circuits of a collective make one ring over its group", GATHER,
        every(8.0, 8.0, line([[1, 0, 2]]))),
    Row("the circuits of a collective make one ring over its group", RINGS,
        every(12.0, 12.0, line([[1, 0, 3, 2]]), 4)),
    Row(None, GATHER_TWO, plan(line([[2, 3, 4, 5, 0, 1]]), [[0, 4]] * 3, 4.0, [3, 3, 3])),
    Row("the circuits of a collective make one ring over its group", GATHER_TWO,
        plan(line([[2, 3, 4, 1, 0, -1]]), [[0, 8]] * 3, 8.0, [3, 3, 1])),
    Row("the circuits of a collective make one ring over its group", GATHER_TWO,
        every(8.0, 8.0, line([[2, -1, 0, -1, 1, -1]]))),
    Row("the circuits of a collective make one ring over its group", GATHER_OF_FOUR,
        every(8.0, 8.0, line([[3, 2, 1, -1]])), "rank 0"),
    Row("its circuits are there from start to end", PAIR,
        every(4.0, 5.0, line([[1, 0], [-1, -1], [1, 0]], [0, 3.999, 4]), 2)),
    Row("an operation lasts as long as its bytes need on its ports", GATHER,
        every(8.001, 8.001, line([[1, 2, 0]])), "got 8.001, expected 8.0"),
    Row("an operation lasts as long as its bytes need on its ports", GATHER,
        every(7.999, 7.999, line([[1, 2, 0]])), "got 7.999, expected 8.0"),
    Row(None, SIX, every(20.0, 20.0, line([[1, 2, 3, 4, 5, 0]]), 6)),
    Row("an operation lasts as long as its bytes need on its ports", SIX,
        every(20.001, 20.001, line([[1, 2, 3, 4, 5, 0]]), 6)),
    # rounds
    Row(None, EXCHANGE, every(3.0, 4.0, line(SHIFTS, [0, 1, 3])),
        figures={"circuits_changed": 6, "reconfigurations": 2}),
    Row(
        "in an all-to-all everyone sends to everyone else",
        EXCHANGE,
        every(3.0, 4.0, line([[1, 2, 0], [2, 0, -1], [1, 2, 0]], [0, 1, 3])),
        "in an all-to-all everyone sends to everyone else: got 1.0, expected 2.0",
    ),
    Row(
        "in an all-to-all everyone sends to everyone else",
        EXCHANGE,
        every(3.0, 4.0, line(SHIFTS, [0, 0.999, 3])),
    ),
    Row(None, EXCHANGE, every(3.0, 5.0, line([[1, 2, 0], [1, 0, -1], [1, 2, 0]], [0, 3, 4]))),
    Row(
        "an operation lasts as long as its bytes need on its ports",
        EXCHANGE,
        every(3.001, 4.001, line(SHIFTS, [0, 1, 3.001])),
        "got 3.001, expected 3.0",
    ),
    Row(None, FAST_EXCHANGE, every(2.5, 3.5, line(SHIFTS, [0, 0.75, 2.5]))),
    Row(None, QUICK_EXCHANGE, plan(line([[2, 0, 1], [1, 2, 0], [2, 0, 1]], [0, 2, 5]),
        [[2, 5]] * 3, 5.0)),
    Row(
        "an operation lasts as long as its bytes need on its ports",
        EXCHANGE,
        plan(line(SHIFTS, [0, 2, 4.5]), [[1, 4.5]] * 3, 5.5),
        "got 3.5, expected 3.0",
    ),
    Row("in an all-to-all everyone sends to everyone else", EXCHANGE,
        every(3.0, 4.0, line([[1, 2, 0], [0, 1, 2], [1, 2, 0]], [0, 1, 3]))),
    Row("in an all-to-all everyone sends to everyone else", EXCHANGE,
        every(3.0, 3.5, line(SHIFTS, [0, 1, 2.5]))),
    Row("in an all-to-all everyone sends to everyone else", STAGES_OF_FOUR,
        every(5.0, 5.0, line([BY_ONE, BY_TWO, BY_ONE], [0, 1, 3]), 4)),
    Row(None, STOPPED_EXCHANGE, every(4.0, 5.0, line([SHIFTS[0], *SHIFTS], [0, 0.5, 2, 4]))),
    Row("in an all-to-all everyone sends to everyone else", STOPPED_EXCHANGE,
        every(4.0, 5.0, line([SHIFTS[0], *SHIFTS], [0, 0.5, 1.75, 4]))),
    Row(None, STAGES, every(7.0, 8.0, line(STRIDES, [0, 2, 7]), 5)),
    Row(None, FAST_STAGES, every(5.5, 6.5, line(STRIDES, [0, 1.5, 5.5]), 5)),
    Row(None, QUICK_STAGES, plan(line([[-1] * 5, *STRIDES[:2], [-1] * 5], [0, 1, 3, 7]),
        [[1, 7]] * 5, 7.0)),
    Row(None, STAGES_OF_FOUR, every(5.0, 6.0, line([BY_ONE, BY_TWO, BY_ONE], [0, 2, 5]), 4)),
    Row(None, STAGES_OF_FOUR, every(5.0, 6.0, line([BY_TWO, BY_ONE, BY_TWO], [0, 2, 5]), 4)),
    Row("in an all-to-all everyone sends to everyone else", STAGES_OF_FOUR,
        every(5.0, 6.0, line([[1, 0, 3, 2], BY_TWO, [1, 0, 3, 2]], [0, 2, 5]), 4)),
    Row("in an all-to-all everyone sends to everyone else", STAGES_OF_FOUR,
        every(5.0, 6.0, line([BY_TWO, [0, 1, 2, 3], BY_TWO], [0, 2, 5]), 4)),
    Row("in an all-to-all everyone sends to everyone else", STAGES,
        every(7.0, 8.0, line([STRIDES[0], [-1] * 5, STRIDES[0]], [0, 3, 7]), 5)),
    Row("in an all-to-all everyone sends to everyone else", STAGES,
        every(7.5, 8.5, line(STRIDES, [0, 2.5, 7.5]), 5)),
    Row("in an all-to-all everyone sends to everyone else", STAGES,
        every(7.0, 8.0, line(STRIDES, [0, 1.5, 7]), 5)),
    Row(
        "an operation lasts as long as its bytes need on its ports",
        STAGES,
        plan(line(STRIDES, [0, 3, 8.5]), [[1, 8.5]] * 5, 9.5),
        "got 7.5, expected 7.0",
    ),
    Row(None, STOPPED_STAGES, plan(line([shift(1), shift(2), shift(1)], [0, 8, 17]),
        [[0, 17]] * 4, 18.0)),
    Row(None, STOPPED_STAGES, plan(line([shift(1), shift(1, 1), shift(2, 1), shift(2), shift(1)],
        [0, 3, 9, 12, 19]), [[0, 19]] * 4, 20.0)),
    Row("in an all-to-all everyone sends to everyone else", STOPPED_STAGES,
        plan(line([shift(1), shift(1, 1), shift(2, 1), shift(2), shift(1)], [0, 3, 8, 11, 17]),
            [[0, 17]] * 4, 18.0)),
    Row("an operation lasts as long as its bytes need on its ports", STOPPED_STAGES,
        plan(line([shift(1), shift(2), shift(2, 1), shift(1)], [0, 8, 11, 18]),
            [[0, 17]] * 4, 19.0), "got 17.0, expected 18.0"),
    Row("in an all-to-all everyone sends to everyone else", ALL_BY_FOUR, plan(line([
        in_two_ways(1, MEETINGS[0]), in_two_ways(1, MEETINGS[1]), in_two_ways(2, MEETINGS[1]),
        in_two_ways(2, MEETINGS[2]), in_two_ways(1, MEETINGS[0])], [0, 4, 8, 12, 20]),
        [[0, 20]] * 4, 24.0, [1, 2, 2, 2]), "rank 1", told=3),
    Row(None, IN_STAGES_TWICE, plan(line([STRIDES[1], [4, 0, 1, 2, 3], *STRIDES[:2],
        [3, 4, 0, 1, 2], STRIDES[1]], [0, 2, 7, 9, 13, 15]), [[0, 7], [8, 15]] * 5, 16.0)),
    Row("in an all-to-all everyone sends to everyone else", SIDE_BY_SIDE, every(5.0, 6.0, line(
        [[1, 2, -1, 0, 5, 6, 7, 4], [*BY_TWO, 6, 7, 4, 5], [1, 2, -1, 0, 5, 6, 7, 4]],
        [0, 2, 5]), 8)),
    Row(None, SIDE_BY_SIDE, every(5.0, 6.0, line([[*BY_ONE, 5, 6, 7, 4], [*BY_TWO, 6, 7, 4, 5],
        [*BY_ONE, 5, 6, 7, 4]], [0, 2, 5]), 8)),
    Row(None, EXCHANGE_TWO, plan(line([[4, 3, 0, 5, 2, 1]]), [[0, 1]] * 3, 1.0, [3, 3, 3])),
    Row(None, EXCHANGE_TWO, plan(line([[4, 3, 0, 5, 2, 1]]), [[1, 2]] * 3, 2.0, [3, 3, 3])),
    Row(None, EXCHANGE_TWO, plan(line([[4, 3, 0, 5, 2, 1]]), [[0, 1.5]] * 3, 1.5, [3, 3, 3])),
    Row(None, STOPPED_TWO, plan(line([[4, 3, 0, 5, 2, 1]] * 2, [0, 0.5]), [[0, 1.5]] * 3, 1.5,
        [3, 3, 3])),
    Row("an operation lasts as long as its bytes need on its ports", EXCHANGE_TWO,
        plan(line([[2, 3, 4, 5, 0, 1]]), [[0, 1]] * 3, 1.0, [3, 3, 3])),
    Row("an operation lasts as long as its bytes need on its ports", FOUR_TWO,
        plan(line([[2, 7, 4, 1, 6, 3, 0, 5]]), [[0, 1]] * 4, 1.0, [3] * 4)),
    Row(
        "in an all-to-all everyone sends to everyone else",
        EXCHANGE_TWO,
        plan(
            line([[4, 3, 0, 5, 2, 1], [-1, 3, -1, 5, -1, 1], [4, 3, 0, 5, 2, 1]], [0, 0, 1]),
            [[0, 1]] * 3, 2.0, [3, 3, 3],
        ),
    ),
    Row(None, FOUR_SIX, plan(line([TO_ALL]), [[0, 1]] * 4, 1.0, [63] * 4)),
    Row(None, FOUR_SIX, plan(line([BOTH_WAYS]), [[0, 1]] * 4, 1.0, [63] * 4)),
    Row(None, LATE_FOUR_SIX, plan(line([BOTH_WAYS]), [[0, 1.75]] * 4, 1.75, [63] * 4)),
    Row(None, FOUR_TWO, over_chords()),
    Row(None, FOUR_TWO, over_chords(share=(1, 1 - HAIR, 1))),
    Row(None, FOUR_TWO, replace(over_chords(6.0), ports=np.ones(4, dtype=int))),
    Row(None, FOUR_TWO, plan(line([CHORD_CIRCUITS, [6, 5, 0, 7, 2, 1, 4, 3], CHORD_CIRCUITS],
        [0, 1, 3]), [[0, 3]] * 4, 4.0, [3] * 4)),
    Row(None, FOUR_AND_FIVE, over_chords_of_both()),
    Row("routes over chords bring each part to its place", FOUR_TWO,
        over_chords(to_third=(0, 1)), "got 2, expected 3", stops=True),
    Row("routes over chords carry the whole of each part", FOUR_TWO,
        over_chords(share=(1, 0.5, 1)), "chords[0], distance 2", stops=True),
    Row("routes over chords are for groups of the job", FOUR_TWO, chords_of_many(2**40),
        "chords[0].n_members: routes over chords are for groups of the job: got 1099511627776,"
        " expected one of [4]", stops=True),
    Row("times are early enough to tell operations apart", MESSAGE, timed(*[[1e18, 1e18]] * 3),
        "step_s: times are early enough to tell operations apart: got 1e+18"),
    Row(None, MESSAGE, timed([1e8, 1e8 + 1], [1e8 + 1, 1e8 + 9], [1e8 + 1, 1e8 + 9])),
    Row("an all-to-all over chords lasts as long as its busiest port needs", FOUR_TWO,
        over_chords(3.0), "got 3.0, expected 2.0"),
    Row("circuits of chords are there from start to end", FOUR_TWO,
        over_chords(rails=line([CHORD_CIRCUITS, [-1] * 8, CHORD_CIRCUITS], [0, 1, 1]))),
    Row(None, FOUR_TWO, late_chords(HAIR)),
    Row("circuits of chords are there from start to end", FOUR_TWO, late_chords(HAIR + 2.0**-52)),
    Row("circuits of chords are there from start to end", FOUR_TWO,
        replace(late_chords(0.0), rails=(SECOND_LATE,))),
    Row("circuits of chords are there from start to end", FOUR_TWO,
        replace(over_chords(rails=SECOND_EARLY), step_s=3.0)),
    Row("an all-to-all over chords lasts as long as its busiest port needs", FOUR_TWO,
        replace(over_chords(4.0), start_s=np.ones(4)), "got 3.0, expected 2.0"),
    Row("in an all-to-all over chords all members use the same strides", FOUR_TWO,
        over_chords(rails=line([[2, 5, 4, 7, 6, 1, 3, 0]]))),
    Row(None, in_servers(2), pooled(in_servers(2))),
    Row(None, in_servers(2, ports_per_gpu=2), pooled(in_servers(2, ports_per_gpu=2))),
    Row("its circuits are there from start to end", in_servers(2), blinking(0.0)),
    Row("its circuits are there from start to end", in_servers(2), blinking(1.0)),
    Row("data change rail only in jobs that let them", in_servers(2, change_rail_s=None),
        pooled(in_servers(2)), "pooled: data change rail only in jobs that let them: got True",
        stops=True),
    Row("where data change rail, all GPUs of a server do the same together", in_servers(1),
        pooled(in_servers(1)), stops=True),
    Row("where data change rail, all GPUs of a server do the same together", in_servers(2),
        pooled(in_servers(2), lambda step: np.where(step.rail >= 0, 3 - 2 * step.rail, 0)),
        stops=True),
    Row(None, TWO_EXCHANGES, plan(line(RING_AND_SHIFTS, [0, 6, 8, 10, 12]),
        [[0, 6], [7, 12]] * 4, 13.0)),
    Row(
        "in an all-to-all everyone sends to everyone else",
        STAGES,
        every(7.0, 8.0, line([STRIDES[0], [2, 4, 0, 1, 3], STRIDES[0]], [0, 2, 7]), 5),
        "in an all-to-all everyone sends to everyone else: got 1.0, expected nan",
    ),
    Row(
        "an operation lasts as long as its bytes need on its ports",
        STAGES,
        every(7.001, 8.001, line(STRIDES, [0, 2, 7.001]), 5),
        "got 7.001, expected 7.0",
    ),
    Row(None, TREE_OF_TWO, every(4.0, 4.0, line([[1, 0]]), 2)),
    Row(None, TREE, every(9.0, 10.0, line(BRANCHES, [0, 4, 9]))),
    Row(None, BOTH_DIMENSIONS, plan(line([[1, 2, 0]]), [[0, 8], [0, 8]] * 3, 8.0, [1, 0] * 3)),
    Row(None, SUM_TREE, every(19.0, 20.0, line(UP_AND_DOWN, [0, 4, 9, 14, 19]))),
    Row(None, FAST_TREE, every(5.5, 6.5, line(BRANCHES, [0, 2.25, 5.5]))),
    Row(None, TREE, every(14.0, 15.0, line(BRANCHES, [0, 9, 14]))),
    Row(None, TREE, every(15.0, 16.0, line(TWICE, [0, 2, 5, 10, 15]))),
    Row(None, STOPPED_TREE, every(9.0, 9.0, line(BRANCHES, [0, 4, 8.5]))),
    Row(None, STOPPED_TREE, every(8.5, 9.0, line(BRANCHES, [0, 4, 8.5]))),
    Row("a collective ends with the last of its rounds", STOPPED_TREE,
        every(9.5, 9.5, line(BRANCHES, [0, 4, 8.5]))),
    Row(None, STOPPED_TREE, every(9.0, 9.5, line([*BRANCHES[:2], *BRANCHES[1:]], [0, 4, 4.5, 9]))),
    Row("a collective ends with the last of its rounds", QUICK_TREE,
        every(8.001, 8.001, line(BRANCHES, [0, 4, 8.001]))),
    Row(
        "in each round of a collective its circuits are there",
        TREE,
        every(8.0, 8.0, line([[2, -1, -1]])),
        "in each round of a collective its circuits are there: got 0.0, expected nan",
    ),
    Row("in each round of a collective its circuits are there", TREE,
        every(9.5, 9.5, line([[2, -1, -1]]))),
    Row(
        "a collective ends with the last of its rounds",
        TREE,
        every(9.001, 10.001, line(BRANCHES, [0, 4, 9.001])),
        "a collective ends with the last of its rounds: got 9.001, expected 9.0",
    ),
]  # fmt: skip
