"""Collectives: what is sent and arrives, its circuits, planes by themselves, and times."""

from dataclasses import replace
from typing import Any

import numpy as np

import optmatch as om
from tests.verify.rules import Row, claim, forge, schedule

COSTS: dict[str, Any] = {"alpha_s": 1.0, "rate_bytes_per_s": 1.0, "delay_s": 10.0}
COPY, REDUCE, KEEP, REPLACE = 0, 1, 2, 3


def ask(operation: Any, n: int, size_bytes: float = 4.0, **fields: Any) -> om.Collective:
    """Return a collective whose rounds last 1 s, and 1 s for each byte."""
    return om.Collective(operation, n, size_bytes, **(COSTS | fields))


def dear_switch(n_ports: int, *dear: tuple[int, int]) -> om.IdealSwitch:
    """Return a switch on which these circuits are over their budget."""
    loss_db = np.ones((n_ports, n_ports))
    loss_db[tuple(zip(*dear, strict=True))] = 9.0
    return om.IdealSwitch(n_ports, loss_db=loss_db, budget_db=2.0)


def listed(fields: Any) -> dict[str, Any]:
    """Make arrays of lists."""
    return {k: np.array(v) if isinstance(v, list) else v for k, v in fields.items()}


def plan(sends: Any, circuits: Any, time_s: float, chunks: Any = (4.0,), **more: Any) -> Any:
    """Return a plan, of one epoch where nothing else is said."""
    turns = range(1 + max((row[0] for row in sends), default=-1))
    of: Any = {
        "sends": np.array(sends, dtype=np.int32).reshape(-1, 5),
        "chunk_bytes": np.array(chunks),
        "circuits": np.array(circuits),
        "epoch_of_round": np.array([0 for _ in turns]),
    }
    return om.CollectivePlan(**of | {"time_s": time_s} | listed(more))


def planes(shares: Any, starts: Any, ends: Any, time_s: float, **more: Any) -> Any:
    """Return a plan whose planes change circuits by themselves."""
    times = {"start_s": np.array(starts) * 1.0, "end_s": np.array(ends) * 1.0}
    of = {"shares_bytes": np.array(shares) * 1.0} | times | {"time_s": time_s}
    return om.CollectivePlan(**of | listed(more))


BACK_CROSSWISE = ask(
    "broadcast", 2, ports=2, two_way=True, fabric=dear_switch(4, (0, 3), (1, 2), (2, 0), (3, 1))
)
"""From rank 0 light goes between equal ports alone, and back between different ones."""
DEAR_BACK = ask("broadcast", 3, ports=2, two_way=True, fabric=dear_switch(6, (0, 2), (2, 0)))
"""Between ports of ranks 0 and 1; a port of rank 2 that leads to rank 0 is within its budget."""
PAIR, ONCE, THERE = ask("broadcast", 2), [[0, 0, 1, 0, COPY]], [[[1, -1]]]
RIGHT = plan(ONCE, THERE, 5.0)
SHORT = ask("broadcast", 2, alpha_s=0.0, delay_s=0.0, rate_bytes_per_s=1e20)
"""All is over after 4e-20 s."""
LATE = ask("broadcast", 2, late_s={1: 7.0})
FINE = ask("all-reduce", 2, 4e12, rate_bytes_per_s=4e12)
"""Its bytes take 1 s, and a cut may be off by 4 of them."""
THREE, SOON = ask("broadcast", 3), ask("broadcast", 3, delay_s=1.0)
"""Two rounds over one line, or over two configurations."""
LINE, TWICE = [[[1, 2, -1]]], [[0, 0, 1, 0, COPY], [1, 1, 2, 0, COPY]]
ROOT = ask("broadcast", 3, root=1)
HOPS = ask("broadcast", 3, hop_s=3.0)
FORWARDED: Any = {"sends": [[0, 0, 1, 0, 0], [0, 0, 2, 0, 0]], "circuits": LINE, "time_s": 15.0}
SUM, SWAP = ask("all-reduce", 2), [[0, 0, 1, 0, REDUCE], [0, 1, 0, 0, REDUCE]]
MUTUAL = [[[1, 0]]]
SCATTER = ask("reduce-scatter", 2)
"""The way of the chunk of rank 0 around a ring of three, which all ranks are turned along."""
ONE_WAY, TURNING = [[0, 0, 1, 0, COPY], [1, 1, 2, 0, COPY]], [[[1, 2, 0]]]
ALL_ROUND = [
    [hop, (hop + chunk + 1) % 4, (hop + chunk + 2) % 4, chunk, REDUCE if hop < 3 else COPY]
    for hop in range(6)
    for chunk in range(2)
]
"""Around a ring of four two chunks are added up, and then go round as sums."""
GATHER = ask("all-gather", 2)
HALVES = [2.0, 2.0]
EXCHANGE = ask("all-to-all", 2)
TOO_FAR = om.IdealSwitch(2, loss_db=[[0, 9], [1, 0]], budget_db=2.0)
AT_BUDGET = ask("broadcast", 2, fabric=om.IdealSwitch(2, loss_db=[[0, 2], [2, 0]], budget_db=2.0))
FORTH = ask("broadcast", 2, root=1, planes=2, fabric=TOO_FAR)
"""Light from rank 0 to rank 1 loses more than it may, but not back."""
DEAR_PORTS = ask("broadcast", 2, ports=2, fabric=dear_switch(4, (0, 2), (1, 3)))
"""Circuits between equal ports lose too much."""
CROSSWISE = ask("broadcast", 2, ports=2, fabric=dear_switch(4, (0, 3), (1, 2)))
"""Between unequal ones, which no circuit that goes one way joins."""
DEAR_LAST = ask("broadcast", 3, ports=2, fabric=dear_switch(6, (3, 5)))
"""From port 1 of rank 1 to that of rank 2."""
UNEVEN = ask("all-to-all", 3, 0.0, demand_bytes=[[0, 1, 0], [0, 0, 0], [0, 0, 0]])
ALIGNED = ask("broadcast", 2, align_bytes=3)
BOTH = ask("broadcast", 2, planes=2)
DARK = ask("broadcast", 2, planes=2, start="dark")
BOTH_LATE = ask("broadcast", 2, planes=2, late_s={1: 7.0})
SENT: dict[str, Any] = {"sends": ONCE, "chunk_bytes": [4.0], "epoch_of_round": [0]}
LIT: dict[str, Any] = SENT | {"circuits": [[[1, -1], [1, -1]]]}
PART: dict[str, Any] = SENT | {"circuits": [[[1, -1], [-1, -1]]]}
"""Both planes are lit, or the first alone."""
STEPS = ask("all-reduce", 2, planes=2, steps=[[0, 4], [0, 4]])
SHRINKING = ask("all-reduce", 2, planes=2, steps=[[0, 4], [0, 2]])
THRICE = ask("all-reduce", 2, planes=2, steps=[[0, 4]] * 3)
OTHER = ask("all-reduce", 2, steps=[[0, 4], [1, 4]])
NOTHING = ask("all-reduce", 2, steps=[])
PARTED: Any = {
    "shares": [[4, 0], [0, 4]],
    "starts": [[0, 0], [0, 5]],
    "ends": [[5, 0], [0, 10]],
    "time_s": 10.0,
}
SEVEN = ask("all-reduce", 7)
TRIPLE, RING = ask("all-reduce", 3), [[[1, 2, 0]]]
"""Each passes on what it hears first, from place 2."""
AROUND = [
    *([0, rank, (rank + 1) % 3, 0, KEEP] for rank in range(3)),
    *([1, rank, (rank + 1) % 3, 0, REDUCE] for rank in range(3)),
]
PASSED = [[0, 2]] * 3 + [[2, 0]] * 3
ISLANDS = ask("all-gather", 4, island=2, island_rate_bytes_per_s=4.0, island_alpha_s=0.25)
"""Each sends its block over its rail, then both to the other member: 2 s, and 0.75 s."""
CROSSED: Any = [[[2, 3, 0, 1]]]
TOLD = [[0, rank, (rank + 2) % 4, rank, COPY] for rank in range(4)] + [
    [1, rank, rank ^ 1, chunk, COPY] for rank in range(4) for chunk in (rank % 2, rank % 2 + 2)
]
MORE_TOLD = sorted(
    [turn + 1 if turn and chunk % 2 else turn, source, target, chunk, COPY]
    for turn, source, target, whole, _ in TOLD
    for chunk in (2 * whole, 2 * whole + 1)
)
"""Each block has a second chunk, which is empty, and goes to the other member in a third round."""
HALF = [[0, 0, 1, 0, COPY], [1, 0, 1, 0, COPY]]
STAR, SPREAD = (
    ask("all-reduce", 3, ports=2),
    [[[-1, 0, -1], [-1, -1, 0]], [[1, -1, -1], [2, -1, -1]]],
)
GATHERED = [[turn, source, target, 0, kind] for turn, source, target, kind in
            [(0, 1, 0, REDUCE), (0, 2, 0, REDUCE), (1, 0, 1, COPY), (1, 0, 2, COPY)]]  # fmt: skip
ISLE = ask("all-reduce", 3, island=3, island_rate_bytes_per_s=4.0, island_alpha_s=0.5)
MET = ask("broadcast", 2, two_way=True)
DOUBLE, UNLIT = ask("broadcast", 2, ports=2), ask("broadcast", 2, start="dark")
PASSED_ON, ENDS = ask("broadcast", 4), "a slot ends with the rounds of its circuits"
SELF, ALONE = ask("broadcast", 1), plan([], np.zeros((0, 0, 0)), 0.0)


WALKERS = ask("all-reduce", 4, ports=2)
"""Rank z hears from ranks 2 z and 2 z + 1; ranks 0 and 3 would hear from themselves."""
WALKS: Any = [[[2, 0, 3, 1], [-1, 2, 1, -1]]]
ONE_STEP = [(1, 0, REDUCE), (2, 1, REPLACE), (3, 1, REPLACE), (0, 2, REPLACE), (1, 2, REPLACE),
            (2, 3, REDUCE)]  # fmt: skip
WALKED = [[turn, source, target, 0, kind] for turn in (0, 1) for source, target, kind in ONE_STEP]


def double(n: int, last: int) -> Any:
    """Add whole buffers of all ranks around a line, and copy the sum back; one rank may lack."""
    up = [[turn, turn, turn + 1, 0, REDUCE] for turn in range(n - 1)]
    down = [[n - 1 + turn, n - 1 - turn, n - 2 - turn, 0, COPY] for turn in range(last)]
    circuits = np.full((1, 1, n), -1)
    circuits[0, 0, :-1] = np.arange(1, n)
    back = np.full((1, 1, n), -1)
    back[0, 0, 1:] = np.arange(n - 1)
    epochs = [0] * (n - 1) + [1] * last
    return plan(
        up + down, np.vstack([circuits, back]), 5.0 * len(epochs) + 10.0, epoch_of_round=epochs
    )


def solved(**said: Any) -> Any:
    """Return a solution with the right plan, and other claims."""
    right = {"answer": RIGHT, "schedule": schedule([[1, -1]], [5.0], delay_s=10.0)}
    return claim(PAIR, **right | {"objective": 5.0, "lower_bound": 5.0} | said)


def passed_on(durations_s: Any) -> Any:
    """Return two rounds over one configuration, then one over another."""
    rows = [[1, 2, -1, -1], [-1, -1, 3, -1]]
    sends = [[k, k, k + 1, 0, COPY] for k in range(3)]
    answer = plan(sends, [[row] for row in rows], 25.0, epoch_of_round=[0, 0, 1])
    held = schedule(rows, durations_s, delay_s=10.0)
    return claim(PASSED_ON, answer=answer, schedule=held, objective=25.0, lower_bound=0.0)


def shared(durations_s: Any, problem: om.Collective) -> Any:
    """Return two rounds with times of their own over the same circuits, without a change."""
    sends = [[0, 0, 1, 0, COPY], [1, 1, 2, 0, COPY]]
    times = {"start_s": [[0.0], [5.0]], "end_s": [[5.0], [10.0]]}
    answer = plan(sends, [LINE[0]] * 2, 10.0, epoch_of_round=[0, 1], shares_bytes=[[4.0]] * 2,
        **times)  # fmt: skip
    held = schedule([LINE[0][0]] * 2, durations_s, delay_s=problem.delay_s)
    return claim(problem, answer=answer, schedule=held, objective=10.0, lower_bound=0.0)


def there(circuits: Any) -> om.Collective:
    """Return the broadcast over circuits that are there."""
    return ask("broadcast", 2, start=circuits)


def stopped(rule: str, problem: om.Collective, answer: Any) -> Row:
    """Return a row of a solution whose objective cannot be recomputed."""
    return Row(rule, problem, claim(problem, answer=answer), stops=True)


ROWS = [
    # who has what
    Row(None, PAIR, RIGHT, figures={"objective": 5.0, "rounds": 1, "sends": 1, "sent_bytes": 4.0}),
    Row(
        "the answer is a plan",
        PAIR,
        schedule([[1, 0]]),
        "answer: the answer is a plan: got Schedule, expected CollectivePlan",
    ),
    Row(
        "entries of sends exist",
        PAIR,
        plan([[0, 0, 1, 0, 0], [1, 0, 1, 0, 0]], THERE, 5.0, epoch_of_round=[0]),
        "sends[1, 0]: entries of sends exist: got 1, expected below [1, 2, 2, 1, 4], by column",
    ),
    Row("entries of sends exist", PAIR, plan([[0, 2, 1, 0, 0]], THERE, 5.0), "sends[0, 1]"),
    Row("entries of sends exist", PAIR, plan([[0, 0, 2, 0, 0]], THERE, 5.0), "sends[0, 2]"),
    Row("entries of sends exist", PAIR, plan([[0, 0, 1, 1, 0]], THERE, 5.0), "sends[0, 3]"),
    Row("entries of sends exist", PAIR, plan([[0, 0, 1, 0, 4]], THERE, 5.0), "sends[0, 4]"),
    Row(
        "entries of sends exist",
        PAIR,
        forge(RIGHT, sends=np.array([[0, 0, 1, -1, 0]])),
        "sends[0, 3]: entries of sends exist: got -1",
    ),
    Row(
        "a send goes to another rank",
        PAIR,
        plan([[0, 0, 1, 0, 0], [0, 1, 1, 0, 0]], THERE, 5.0),
        "sends[1]: a send goes to another rank: got [0, 1, 1, 0, 0]",
    ),
    Row(
        "broadcast adds nothing up",
        PAIR,
        plan([[0, 0, 1, 0, REDUCE]], THERE, 5.0),
        "sends[0, 4]: broadcast adds nothing up: got 1, expected 0",
    ),
    Row(None, THREE, plan(TWICE, LINE, 10.0), figures={"rounds": 2, "reconfigurations": 0}),
    Row(None, ROOT, plan([[0, 1, 0, 0, 0], [1, 1, 2, 0, 0]], [[[-1, 0, -1]], [[-1, 2, -1]]], 20.0,
        epoch_of_round=[0, 1]), figures={"reconfigurations": 1}),
    Row(
        "who sends a chunk has it",
        THREE,
        plan([[0, 0, 1, 0, 0], [0, 1, 2, 0, 0]], LINE, 5.0),
        "round 0, rank 1: who sends a chunk has it: got no chunk 0, expected the chunk",
    ),
    Row(
        "who sends a chunk has it",
        ask("broadcast", 3, ports=2),
        plan([[0, 0, 1, 0, 0], [0, 2, 1, 0, 0], [1, 0, 2, 0, 0]],
             [[[1, -1, -1], [-1, -1, 1]], [[2, -1, -1], [-1, -1, -1]]], 20.0,
             epoch_of_round=[0, 1]),
        "round 0, rank 2",
    ),
    Row(
        "who sends a chunk has it",
        GATHER,
        plan([[0, 0, 1, 0, 0], [0, 0, 1, 1, 0], [0, 1, 0, 1, 0]], MUTUAL, 5.0, HALVES),
        "round 0, rank 0: who sends a chunk has it: got no chunk 1",
    ),
    Row(
        "in the end every rank has what it wants",
        THREE,
        plan([[0, 0, 1, 0, 0]], LINE, 5.0),
        "rank 2: in the end every rank has what it wants: got no chunk 0",
    ),
    Row(
        "in the end every rank has what it wants",
        GATHER,
        plan([[0, 0, 1, 0, 0]], MUTUAL, 3.0, HALVES),
        "rank 0: in the end every rank has what it wants: got no chunk 1",
    ),
    Row(None, GATHER, plan([[0, 0, 1, 0, 0], [0, 1, 0, 1, 0]], MUTUAL, 3.0, HALVES)),
    Row(None, UNEVEN, plan([[0, 0, 1, 1, 0]], [[[1, -1, -1]]], 2.0, [0, 1.0, *[0] * 7])),
    Row(
        "in the end every rank has what it wants",
        UNEVEN,
        plan([], np.zeros((0, 0, 0)), 0.0, [0, 1.0, *[0] * 7]),
        "rank 1: in the end every rank has what it wants: got no chunk 1",
    ),
    Row(
        "who sends a chunk has it",
        UNEVEN,
        plan([[0, 0, 1, 1, 0], [1, 2, 0, 1, 0]], [[[1, -1, 0]]], 4.0, [0, 1.0, *[0] * 7]),
        "round 1, rank 2: who sends a chunk has it: got no chunk 1",
    ),
    Row(
        "who sends a chunk has it",
        THREE,
        plan([[0, 1, 2, 0, 0], [0, 2, 0, 0, 0], [1, 0, 1, 0, 0]], [[[1, 2, 0]]], 10.0),
        "round 0, rank 1",
        told=1,
    ),
    Row(
        "in the end every rank has what it wants",
        THREE,
        plan([], np.zeros((0, 0, 0)), 0.0),
        "rank 1",
        told=1,
    ),
    Row(
        "broadcast adds nothing up",
        THREE,
        plan([[0, 0, 1, 0, REDUCE], [1, 1, 2, 0, REDUCE]], LINE, 10.0),
        "sends[0, 4]",
        told=1,
    ),
    # sums
    Row(None, SUM, plan(SWAP, MUTUAL, 5.0)),
    Row(
        "in the end every rank has the sum that it wants",
        SUM,
        plan([[0, 0, 1, 0, REDUCE]], MUTUAL, 5.0),
        "rank 0, chunk 0: in the end every rank has the sum that it wants: got 1 ranks",
    ),
    Row(None, SCATTER, plan([[0, 0, 1, 1, REDUCE], [0, 1, 0, 0, REDUCE]], MUTUAL, 3.0, HALVES)),
    Row(None, SCATTER, plan([[0, 0, 1, 2, REDUCE], [0, 0, 1, 3, REDUCE], [0, 1, 0, 0, REDUCE],
        [0, 1, 0, 1, REDUCE]], MUTUAL, 3.0, [1.0] * 4)),
    Row(
        "in the end every rank has the sum that it wants",
        SCATTER,
        plan([[0, 0, 1, 1, REDUCE], [0, 1, 0, 1, REDUCE]], MUTUAL, 3.0, HALVES),
        "rank 0, chunk 0",
    ),
    Row("in the end every rank has the sum that it wants", SCATTER,
        plan([[0, 0, 1, 2, REDUCE], [0, 0, 1, 3, REDUCE], [0, 1, 0, 0, REDUCE]], MUTUAL, 3.0,
        [1.0] * 4), "rank 0, chunk 1"),
    Row(
        "a copy is all that a rank receives of a chunk",
        SUM,
        plan([[0, 0, 1, 0, COPY], [0, 0, 1, 0, REDUCE]], MUTUAL, 9.0),
        "round 0, rank 1, chunk 0: a copy is all that a rank receives of a chunk: got more",
    ),
    Row(
        "a copy is all that a rank receives of a chunk",
        SUM,
        plan([[0, 0, 1, 0, COPY], [0, 0, 1, 0, COPY]], MUTUAL, 9.0),
    ),
    Row(
        "a copy is all that a rank receives of a chunk",
        SUM,
        plan([[0, 0, 1, 0, REDUCE], [0, 0, 1, 0, COPY], [0, 1, 0, 0, REDUCE]], MUTUAL, 9.0),
    ),
    Row(None, STAR, plan(GATHERED, SPREAD, 20.0, epoch_of_round=[0, 1])),
    Row(
        "nothing is added twice",
        TRIPLE,
        plan([[0, 0, 1, 0, REDUCE], [1, 0, 1, 0, REDUCE], [1, 1, 2, 0, REDUCE]], RING, 10.0),
        "round 1, rank 1, chunk 0",
    ),
    Row(
        "nothing is added twice",
        SUM,
        plan([*SWAP, [1, 0, 1, 0, REDUCE]], MUTUAL, 10.0),
        "round 1, rank 1, chunk 0: nothing is added twice: got a rank's data, again",
    ),
    Row(
        "nothing is added twice",
        SUM,
        plan([*SWAP, [0, 0, 1, 0, REDUCE]], MUTUAL, 9.0),
        "round 0, rank 1, chunk 0",
    ),
    Row(
        "nothing is added twice",
        ask("all-reduce", 65),
        plan([[turn, 0, 1, 0, REDUCE] for turn in (0, 1)], [[[1, *[-1] * 64]]], 10.0),
    ),
    Row(
        "in the end every rank has the sum that it wants",
        ask("all-reduce", 65),
        plan(
            [*double(64, 63).sends.tolist(), [126, 63, 64, 0, COPY]],
            np.pad(double(65, 64).circuits, ((0, 1), (0, 0), (0, 0)), mode="wrap"),
            655.0,
            epoch_of_round=[0] * 63 + [1] * 63 + [2],
        ),
        "rank 0, chunk 0: in the end every rank has the sum that it wants: got 64 ranks",
    ),
    Row(None, SEVEN, double(7, 6)),
    Row(None, ask("broadcast", 2, late_s={1: 0.5}), plan(ONCE, THERE, 5.5, n_rounds_late=1)),
    Row(None, ask("all-gather", 3, 3.0), plan(ONE_WAY, TURNING, 4.0, [1.0], stored_ranks=1)),
    Row(None, ask("all-reduce", 4),
        plan(ALL_ROUND, [[[1, 2, 3, 0]]], 12.0, [1.0] * 2, stored_ranks=2)),
    Row("the chunks of a block hold its bytes", ask("all-reduce", 4),
        plan(ALL_ROUND, [[[1, 2, 3, 0]]], 15.0, [0.5, 1.5], stored_ranks=2), "block 0"),
    Row(
        "in the end every rank has what it wants",
        ask("all-gather", 3, 3.0),
        plan(ONE_WAY[:1], TURNING, 2.0, [1.0], stored_ranks=1),
        "rank 2: in the end every rank has what it wants: got no chunk 0",
    ),
    Row(
        "the chunks of a block hold its bytes",
        ask("all-gather", 3, 6.0),
        plan(ONE_WAY, TURNING, 4.0, [1.0], stored_ranks=1),
    ),
    Row(
        None,
        ask("all-to-all", 3, 3.0),
        plan(
            [[0, 0, 1, 1, COPY], [0, 0, 1, 2, COPY], [1, 1, 2, 2, COPY]],
            TURNING,
            5.0,
            [0.0, 1.0, 1.0],
            stored_ranks=1,
        ),
    ),
    Row(
        None,
        ask("reduce-scatter", 3, 3.0),
        plan(
            [[0, 1, 2, 0, REDUCE], [1, 2, 0, 0, REDUCE]], TURNING, 4.0, [1.0], stored_ranks=1
        ),
    ),
    Row(
        None,
        ask("reduce-scatter", 3, 3.0),
        plan(
            [[turn, 1 + turn, (2 + turn) % 3, half, REDUCE] for turn in (0, 1) for half in (0, 1)],
            TURNING, 4.0, [0.5] * 2, stored_ranks=1,
        ),
    ),
    Row(
        "nothing is added twice",
        ask("reduce-scatter", 3, 3.0),
        plan(
            [[0, 1, 2, 0, REDUCE], [1, 1, 2, 0, REDUCE]], TURNING, 4.0, [1.0], stored_ranks=1
        ),
    ),
    Row(
        None,
        ask("all-gather", 3, 3.0, late_s={2: 7.0}),
        plan(ONE_WAY, TURNING, 11.0, [1.0], stored_ranks=1, n_rounds_late=2),
    ),
    Row(
        None,
        ask("all-gather", 3, 3.0, late_s={1: 7.0}),
        plan(ONE_WAY, TURNING, 11.0, [1.0], stored_ranks=1, n_rounds_late=2),
    ),
    Row(
        "circuits are turned along with ranks",
        ask("all-gather", 3, 3.0),
        plan(ONE_WAY, [[[1, 2, -1]]], 4.0, [1.0], stored_ranks=1),
        "circuits[0]: circuits are turned along with ranks: got others",
    ),
    Row(
        "ranks of a turned plan are alike",
        ask("broadcast", 3),
        plan(ONE_WAY, TURNING, 10.0, stored_ranks=1),
    ),
    Row(
        "ranks of a turned plan are alike",
        ask("all-gather", 3, 3.0),
        plan(ONE_WAY, TURNING, 4.0, [1.0] * 2, stored_ranks=2),
        "stored_ranks: ranks of a turned plan are alike: got 2, expected a divisor of 3",
    ),
    Row(
        "each rank has its lanes in each epoch",
        ask("all-gather", 3, 3.0, ports=2),
        plan(ONE_WAY, TURNING, 4.0, [1.0], stored_ranks=1),
    ),
    Row("in the end every rank has the sum that it wants", SEVEN, double(7, 5), "rank 0, chunk 0"),
    Row(None, ask("all-reduce", 65), double(65, 64)),
    Row(
        "in the end every rank has the sum that it wants",
        ask("all-reduce", 66),
        double(66, 64),
        "rank 0, chunk 0: in the end every rank has the sum that it wants: got 1 ranks",
    ),
    # chunks
    Row(
        "each block has as many chunks",
        GATHER,
        plan([], np.zeros((0, 0, 0)), 0.0, [2.0] * 3),
        "chunk_bytes: each block has as many chunks: got 3, expected a multiple of 2",
    ),
    Row("each block has as many chunks", PAIR, plan([], np.zeros((0, 0, 0)), 0.0, ()), "got 0"),
    Row("each block has as many chunks", SCATTER, plan([], THERE, 0.0, [4.0]), "multiple of 2"),
    Row("each block has as many chunks", EXCHANGE, plan([], THERE, 0.0, [4.0] * 6), "of 4"),
    Row(
        "each block is a chunk",
        EXCHANGE,
        plan([], np.zeros((0, 0, 0)), 0.0, [2.0] * 8),
        "chunk_bytes: each block is a chunk: got 8, expected 4",
    ),
    Row(None, EXCHANGE, plan([[0, 0, 1, 1, 0], [0, 1, 0, 2, 0]], MUTUAL, 3.0, [0, 2, 2, 0.0])),
    Row(
        "the chunks of a block hold its bytes",
        PAIR,
        plan(ONCE, THERE, 4.0, [3.0]),
        "block 0: the chunks of a block hold its bytes: got 3.0, expected 4.0",
    ),
    Row(
        "the chunks of a block hold its bytes",
        EXCHANGE,
        plan([[0, 0, 1, 1, 0], [0, 1, 0, 2, 0]], MUTUAL, 3.0, [0, 2, 1, 0.0]),
        "block 2: the chunks of a block hold its bytes: got 1.0, expected 2.0",
    ),
    Row(
        "the chunks of a block hold its bytes",
        GATHER,
        plan([[0, 0, 1, 0, 0], [0, 1, 0, 1, 0]], MUTUAL, 2.0, [1.0, 1.0]),
        "block 0",
        told=1,
    ),
    Row(
        "a chunk is a multiple of align_bytes",
        ALIGNED,
        plan([[0, 0, 1, 0, 0], [0, 0, 1, 1, 0]], THERE, 6.0, [4.0, 1.0]),
        "chunk_bytes[0]: a chunk is a multiple of align_bytes: got 4.0, expected 3",
        told=1,
    ),
    Row(
        "a chunk is a multiple of align_bytes",
        PAIR,
        plan([[0, 0, 1, 0, 0], [0, 0, 1, 1, 0]], THERE, 5.0, [5.0, -1.0]),
        "chunk_bytes[1]: a chunk is a multiple of align_bytes: got -1.0, expected 0",
    ),
    Row(
        "a chunk is a multiple of align_bytes",
        ALIGNED,
        plan([[0, 0, 1, 0, 0], [0, 0, 1, 1, 0]], THERE, 7.0, [9.0, -3.0]),
        "chunk_bytes[1]",
    ),
    Row(None, ALIGNED, plan(ONCE, THERE, 7.0, [6.0])),
    # circuits
    Row(
        "rounds go through all epochs in order",
        PAIR,
        plan(ONCE, THERE * 2, 5.0),
        "epoch_of_round: rounds go through all epochs in order: got [0], expected 0 .. 1",
    ),
    Row("rounds go through all epochs in order", PAIR, plan(ONCE, THERE, 5.0, epoch_of_round=[1])),
    Row(
        "rounds go through all epochs in order",
        THREE,
        plan(TWICE, LINE * 3, 20.0, epoch_of_round=[0, 2]),
    ),
    Row(
        "rounds go through all epochs in order",
        THREE,
        plan(TWICE, LINE * 2, 20.0, epoch_of_round=[1, 1]),
    ),
    Row("rounds go through all epochs in order", PAIR, plan(ONCE, THERE, 6.0,
        epoch_of_round=[0, 1, 0])),
    Row(
        "each rank has its lanes in each epoch",
        PAIR,
        plan(ONCE, [[[1, -1, -1]]], 5.0),
        "circuits.shape: each rank has its lanes in each epoch: got (1, 1, 3), expected (1, 1, 2)",
    ),
    Row(
        "each lane holds a matching",
        THREE,
        plan(TWICE, [[[1, 2, 1]]], 10.0),
        "lane 0 leads to rank 1 more than once",
    ),
    Row(
        "each lane holds a matching",
        THREE,
        plan(TWICE, [[[1, -1, 2]], [[-1, 2, -1]]], 20.0, epoch_of_round=[0, 1]),
        "circuits[0, 0, 2]: each lane holds a matching: got 2, expected another one of 3 ranks",
    ),
    Row(None, THREE, plan(TWICE, [[[1, -1, -1]], [[-1, 2, -1]]], 20.0, epoch_of_round=[0, 1])),
    Row(
        "each lane holds a matching",
        ask("broadcast", 3, two_way=True),
        plan(TWICE, TURNING, 10.0),
        "a circuit joins ranks 0 and 1 in one direction alone",
        told=1,
    ),
    Row(
        "each lane holds a matching",
        ask("broadcast", 2, ports=2, two_way=True),
        plan([*ONCE, [1, 1, 0, 0, COPY]], [[[1, -1], [-1, -1]], [[-1, 0], [-1, -1]]], 20.0,
            epoch_of_round=[0, 1]),
        "a circuit joins ranks 0 and 1 in one direction alone",
    ),
    Row(
        "each lane holds a matching",
        ask("broadcast", 2, two_way=True),
        RIGHT,
        "a circuit joins ranks 0 and 1 in one direction alone",
    ),
    Row(
        "each lane holds a matching",
        ask("broadcast", 2, ports=2, two_way=True),
        plan(ONCE, [[[1, 0], [1, -1]]], 3.0),
        "a circuit joins ranks 0 and 1 in one direction alone",
    ),
    Row(None, MET, plan(ONCE, MUTUAL, 5.0)),
    Row(None, ask("broadcast", 2, ports=2, two_way=True), plan(ONCE, [[[1, -1], [-1, 0]]], 5.0)),
    Row(None, ask("broadcast", 3, two_way=True), plan([[0, 0, 2, 0, COPY], [1, 2, 1, 0, COPY]],
        [[[2, -1, 0]], [[-1, 2, 1]]], 20.0, epoch_of_round=[0, 1])),
    Row(None, ISLANDS, plan(TOLD, CROSSED, 2.75, [1.0] * 4), figures={"objective": 2.75}),
    Row(
        "circuits stay on their rails",
        ISLANDS,
        plan(TOLD, [[[3, 2, 0, 1]]], 3.0, [1.0] * 4),
        "circuits[0, 0, 0]: circuits stay on their rails: got 3",
    ),
    Row(
        "between islands no plane has shares",
        ISLANDS,
        planes([[1], [1]], [[0], [2]], [[2], [3]], 3.0, sends=TOLD, chunk_bytes=[1.0] * 4,
               epoch_of_round=[0, 0], circuits=CROSSED),
        "shares_bytes: between islands no plane has shares",
    ),
    Row(
        "the time is that of the replay",
        ISLANDS,
        plan(TOLD, CROSSED, 4.0, [1.0] * 4),
        "time_s: the time is that of the replay: got 4.0, expected 2.75",
    ),
    Row(None, ISLANDS, plan(MORE_TOLD, CROSSED, 3.0, [1.0, 0.0] * 4)),
    Row(None, ISLE, plan([[*row[:3], chunk, row[4]] for row in GATHERED for chunk in (0, 1)],
        [[[-1, -1, -1]]], 5.0, HALVES)),
    Row(
        "a send goes over a circuit",
        PAIR,
        plan(ONCE, [[[-1, 0]]], 5.0),
        "round 0: a send goes over a circuit: got none from 0 to 1, expected a circuit",
    ),
    Row("a send goes over a circuit", PAIR, plan(ONCE, [[[-1, -1]]], 5.0)),
    Row(
        "a send goes over a circuit",
        THREE,
        plan(TWICE, [[[1, -1, -1]], [[1, -1, -1]]], 20.0, epoch_of_round=[0, 1]),
        "round 1: a send goes over a circuit: got none from 1 to 2",
    ),
    Row(None, ask("broadcast", 2, ports=2), plan(ONCE, [[[1, -1], [1, -1]]], 3.0)),
    Row(
        "the time is that of the replay",
        ask("broadcast", 2, ports=2),
        plan(ONCE, [[[1, -1], [-1, -1]]], 3.0),
        "time_s: the time is that of the replay: got 3.0, expected 5.0",
    ),
    # routes of several hops
    Row(None, HOPS, plan(**FORWARDED, links=[[1, 0, 1], [1, 1, 2]])),
    Row(None, HOPS, plan([[0, 0, 1, 0, 0], [0, 0, 2, 0, 0]], [[[2, -1, 1]]], 15.0,
        links=[[0, 0, 2], [0, 2, 1]])),
    Row(
        "nothing is forwarded inside a round without hop_s",
        PAIR,
        plan(ONCE, THERE, 5.0, links=[[0, 0, 1]]),
        "links: nothing is forwarded inside a round without hop_s: got 1, expected 0",
    ),
    Row(
        "sends and ranks exist",
        HOPS,
        plan(**FORWARDED, links=[[1, 0, 1], [1, 1, 2], [2, 0, 1]]),
        "links[2]: sends and ranks exist: got [2, 0, 1], expected both",
    ),
    Row("sends and ranks exist", HOPS, plan(**FORWARDED, links=[[1, 3, 2]]), "links[0]"),
    Row("sends and ranks exist", HOPS, plan(**FORWARDED, links=[[1, 0, 3]]), "links[0]"),
    Row(
        "links lead from the source of a send to its destination",
        HOPS,
        plan(**FORWARDED, links=[[1, 0, 1]]),
        "links[0]: links lead from the source of a send to its destination: got [1, 0, 1]",
    ),
    Row(
        "links lead from the source of a send to its destination",
        HOPS,
        plan(**FORWARDED, links=[[1, 1, 2]]),
        "got [1, 1, 2], expected 0",
    ),
    Row(
        "links lead from the source of a send to its destination",
        HOPS,
        plan(**FORWARDED, links=[[1, 0, 1], [1, 0, 2]]),
        "links[1]: links lead from the source of a send to its destination: got [1, 0, 2]",
    ),
    # places beside the sums
    Row(None, TRIPLE, plan(AROUND, RING, 10.0, places=PASSED)),
    Row(None, TRIPLE, plan(AROUND, RING, 10.0, places=[[1, 2]] * 3 + PASSED[3:])),
    Row(None, TRIPLE, plan(AROUND, RING, 10.0, places=[[0, 99]] * 3 + [[99, 0]] * 3)),
    Row(
        None,
        TRIPLE,
        plan([[0, 0, 1, 0, KEEP], [0, 1, 2, 0, REDUCE], [0, 2, 0, 0, KEEP], [1, 0, 1, 0, REDUCE],
              [1, 1, 2, 0, REDUCE], [2, 2, 0, 0, COPY]], RING, 15.0,
             places=[[0, 2], [0, 0], [0, 2], [2, 0], [2, 0], [0, 0]]),
    ),
    Row(
        "who sends a chunk has it",
        TRIPLE,
        plan(AROUND, RING, 10.0, places=[[0, 3]] * 3 + PASSED[3:]),
        "round 1, rank 0, chunk 0, place 2: who sends a chunk has it: got nothing",
    ),
    Row(
        "nothing is added twice",
        TRIPLE,
        plan(AROUND, RING, 10.0, places=PASSED[:3] + [[0, 0]] * 3),
        "round 1, rank 0, chunk 0: nothing is added twice",
    ),
    Row(
        "nothing is added to an empty place",
        TRIPLE,
        plan([[0, 0, 1, 0, REDUCE]], RING, 5.0, places=[[0, 2]]),
        "round 0, rank 1, chunk 0, place 2: nothing is added to an empty place: got nothing",
    ),
    # sums that replace what was there
    Row(None, WALKERS, plan(WALKED, WALKS, 10.0)),
    Row(
        None,
        TRIPLE,
        plan([[0, rank, (rank + 1) % 3, 0, REPLACE] for rank in range(3)] +
             [[1, rank, (rank + 1) % 3, 0, REDUCE] for rank in range(3)] +
             [[2, rank, (rank + 1) % 3, 0, REDUCE] for rank in range(3)],
             RING, 15.0, places=[[0, 2]] * 3 + [[1, 0]] * 3 + [[2, 0]] * 3),
    ),
    Row(
        "nothing is added twice",
        WALKERS,
        plan([[*row[:4], REDUCE] for row in WALKED], WALKS, 10.0),
        "round 1, rank 0, chunk 0: nothing is added twice",
    ),
    Row(
        "nothing is added twice",
        WALKERS,
        plan([*WALKED, [2, 2, 1, 0, REPLACE], [2, 3, 1, 0, REPLACE]], WALKS, 15.0),
        "round 2, rank 1, chunk 0: nothing is added twice",
    ),
    Row(
        "in the end every rank has the sum that it wants",
        WALKERS,
        plan([row for row in WALKED if row[:3] != [0, 3, 1]], WALKS, 10.0),
        "rank 0, chunk 0: in the end every rank has the sum that it wants: got 3 ranks",
    ),
    Row(
        "all that comes to a place replaces what was there, or nothing does",
        WALKERS,
        plan([WALKED[0], [0, 2, 1, 0, REDUCE], *WALKED[2:]], WALKS, 10.0),
        "round 0, rank 1, chunk 0: all that comes to a place replaces what was there",
    ),
    Row(
        "what is kept has a place beside the sum",
        TRIPLE,
        plan(AROUND[:3], RING, 5.0),
        "places[0]: what is kept has a place beside the sum: got 0, expected > 0",
    ),
    Row(
        "only sums have places",
        PAIR,
        plan(ONCE, THERE, 5.0, places=[[0, 2]]),
        "places: only sums have places: got True, expected False",
    ),
    Row(None, PAIR, plan(ONCE, THERE, 5.0, places=[[0, 0]])),
    Row(
        "broadcast adds nothing up",
        PAIR,
        plan([[0, 0, 1, 0, KEEP]], THERE, 5.0),
        "sends[0, 4]: broadcast adds nothing up: got 2, expected 0",
    ),
    # parts of chunks
    Row(None, PAIR, plan(HALF, THERE, 6.0, parts=[[0, 3], [3, 1]], among="all"),
        figures={"sent_bytes": 4.0}),
    Row(None, PAIR, plan(HALF, THERE, 7.0, parts=[[0, 3], [2, 2]], among="all")),
    Row(None, PAIR, plan(HALF, THERE, 6.0, parts=[[0, 4], [4 + 1e-9, 0]], among="all")),
    Row(None, FINE, plan([SWAP[0]] * 3 + [SWAP[1]] * 3, MUTUAL, 2.0, [4e12],
        parts=[[0, 3], [3, 3], [6, 4e12 - 6]] * 2, among="all")),
    Row(None, PAIR, plan([*HALF, HALF[1]], THERE, 6.0, parts=[[0, 3], [3, 1], [2, 0]],
        among="all")),
    Row(None, PAIR, plan(HALF, THERE, 6.0, [4.0, 0.0], parts=[[0, 3], [3, 1]], among="all")),
    Row(None, PAIR, plan([[0, 0, 1, 0, COPY], [0, 0, 1, 1, COPY]], THERE, 5.0, HALVES,
        parts=[[0, 2], [0, 2]], among="all")),
    Row(None, SUM, plan([[0, 0, 1, 0, REDUCE], [0, 1, 0, 0, REDUCE], [1, 0, 1, 0, REDUCE],
        [1, 1, 0, 0, REDUCE]], MUTUAL, 6.0, parts=[[0, 1], [0, 1], [1, 3], [1, 3]], among="all")),
    Row(
        "in the end every rank has what it wants",
        PAIR,
        plan(HALF, THERE, 5.9, parts=[[0, 3], [3.1, 0.9]], among="all"),
        "rank 1: in the end every rank has what it wants: got no chunk 0",
    ),
    Row(
        "who sends a chunk has it",
        THREE,
        plan([*HALF, [1, 1, 2, 0, COPY]], LINE, 8.0, parts=[[0, 2], [2, 2], [0, 4]], among="all"),
        "round 1, rank 1: who sends a chunk has it: got no chunk 0",
    ),
    Row(
        "in the end every rank has the sum that it wants",
        SUM,
        plan([*SWAP, [1, 1, 0, 0, REDUCE]], MUTUAL, 6.0, parts=[[0, 3], [0, 3], [3, 1]],
             among="all"),
        "rank 1, chunk 0: in the end every rank has the sum that it wants: got 1 ranks",
    ),
    Row(
        "a part lies in its chunk",
        PAIR,
        plan(HALF, THERE, 6.0, parts=[[0, 3], [3, 2]], among="all"),
        "parts[1]: a part lies in its chunk: got [3.0, 2.0], expected 4.0",
    ),
    Row(
        "a part lies in its chunk",
        PAIR,
        forge(plan(ONCE, THERE, 6.0, among="all"), parts=np.array([[-1.0, 5.0]])),
    ),
    Row(
        "a part lies in its chunk",
        PAIR,
        forge(plan(ONCE, THERE, 6.0, among="all"), parts=np.array([[1.0, -1.0]])),
    ),
    Row(
        "a part is a multiple of align_bytes",
        ALIGNED,
        plan(HALF, THERE, 8.0, [6.0], parts=[[0, 4], [4, 2]], among="all"),
        "parts[0]: a part is a multiple of align_bytes: got [0.0, 4.0], expected 3",
        told=1,
    ),
    Row(None, ALIGNED, plan(HALF, THERE, 8.0, [6.0], parts=[[0, 3], [3, 3]], among="all")),
    Row(
        "plans of whole blocks send no parts",
        PAIR,
        plan(HALF, THERE, 6.0, parts=[[0, 3], [3, 1]]),
        "parts: plans of whole blocks send no parts: got 2, expected 0",
    ),
    # times
    Row(None, ask("broadcast", 2, rate_bytes_per_s=2.0), plan(ONCE, THERE, 3.0)),
    Row(None, PAIR, plan(ONCE, THERE, 6.0, epoch_of_round=[0, 0])),
    Row("the time is that of the replay", PAIR, plan(ONCE, THERE, 4.999)),
    Row("the time is that of the replay", PAIR, plan(ONCE, THERE, 5.001)),
    Row("the time is that of the replay", SHORT, plan(ONCE, THERE, 8e-20)),
    Row(None, SHORT, plan(ONCE, THERE, 4e-20)),
    Row(ENDS, SHORT, claim(SHORT, answer=plan(ONCE, THERE, 4e-20), objective=4e-20,
        lower_bound=0.0, schedule=schedule([[1, -1]], [8e-20]))),
    Row(None, ask("broadcast", 2, start="dark"), plan(ONCE, THERE, 15.0)),
    Row(None, there(THERE[0]), RIGHT),
    Row(None, there([[-1, -1]]), plan(ONCE, THERE, 15.0)),
    Row(None, ask("broadcast", 1, start=[[-1]]), ALONE, figures={"objective": 0.0}),
    Row(None, LATE, plan(ONCE, THERE, 12.0, n_rounds_late=1), figures={"rounds_late": 1}),
    Row(None, ask("broadcast", 2, late_s={0: 7.0}), plan(ONCE, THERE, 12.0, n_rounds_late=1)),
    Row(
        "the time is that of the replay",
        LATE,
        plan(ONCE, THERE, 5.0, n_rounds_late=1),
        "time_s: the time is that of the replay: got 5.0, expected 12.0",
    ),
    Row(
        "rounds after the last late rank is ready are counted",
        LATE,
        plan(ONCE, THERE, 12.0),
        "n_rounds_late: rounds after the last late rank is ready are counted: got 0, expected 1",
    ),
    Row(None, ask("broadcast", 3, late_s={2: 7.0}), plan(TWICE, LINE, 12.0, n_rounds_late=1)),
    Row(
        None,
        ask("broadcast", 3, late_s={2: 7.0}),
        plan([*TWICE, [2, 0, 1, 0, 0]], [*LINE, [[1, -1, -1]]], 27.0, n_rounds_late=2,
             epoch_of_round=[0, 0, 1]),
    ),
    # planes that change circuits by themselves
    Row(None, FORTH, planes([[2, 2]], [[0, 0]], [[3, 3]], 3.0, **SENT | {
        "sends": [[0, 1, 0, 0, COPY]], "circuits": [[[-1, 0], [-1, 0]]]})),
    Row("circuits keep to their link budgets", FORTH,
        planes([[2, 2]], [[0, 0]], [[3, 3]], 3.0, **SENT | {
            "sends": [[0, 1, 0, 0, COPY]], "circuits": [[[1, 0], [1, 0]]]}),
        "circuits: circuits keep to their link budgets: got a circuit from rank 0 to 1"),
    Row("circuits keep to their link budgets", DEAR_PORTS, plan(ONCE, [[[1, -1], [1, -1]]], 3.0)),
    Row("circuits keep to their link budgets", BACK_CROSSWISE,
        plan(ONCE, [[[1, 0], [1, 0]]], 3.0), "got a circuit from rank 0 to 1"),
    Row("circuits keep to their link budgets", DEAR_BACK,
        plan([[0, 0, 1, 0, COPY], [0, 0, 2, 0, COPY]], [[[1, 0, 0], [2, 2, 1]]], 5.0),
        "got a circuit from rank 0 to 1"),
    Row(None, CROSSWISE, plan(ONCE, [[[1, -1], [1, -1]]], 3.0)),
    Row("circuits keep to their link budgets", DEAR_LAST,
        plan([[0, 0, 1, 0, COPY], [0, 0, 2, 0, COPY]], [[[2, -1, -1], [1, 2, -1]]], 5.0),
        "got a circuit from rank 1 to 2"),
    Row(None, BOTH, planes([[2, 2]], [[0, 0]], [[3, 3]], 3.0, **LIT), figures={"rounds": 1}),
    Row(None, BOTH, planes([[3.5, 0.5]], [[0, 0]], [[4.5, 1.5]], 4.5, **LIT)),
    Row(None, BOTH, planes([[4, 0]], [[1e6, 0]], [[1e6 + 5 - 5e-10, 0]], 1e6 + 5, **PART)),
    Row(
        None,
        ask("broadcast", 3, planes=2, late_s={2: 7.0}),
        planes([[4, 0]] * 2, [[8, 0], [23, 0]], [[13, 0], [28, 0]], 28.0, n_rounds_late=2,
               sends=TWICE, chunk_bytes=[4.0], epoch_of_round=[0, 1],
               circuits=[[[1, -1, -1], [-1] * 3], [[-1, 2, -1], [-1] * 3]]),
        figures={"reconfigurations": 1},
    ),
    Row(
        None,
        ask("broadcast", 3, planes=2),
        planes([[4, 0], [0, 4]], [[0, 0], [0, 5]], [[5, 0], [0, 10]], 10.0,
               sends=TWICE, chunk_bytes=[4.0], epoch_of_round=[0, 1],
               circuits=[[[1, -1, -1], [-1] * 3], [[-1] * 3, [-1, 2, -1]]]),
        figures={"reconfigurations": 0},
    ),
    Row(
        "planes have a share in each round",
        BOTH,
        planes([[4]], [[0]], [[5]], 5.0, **LIT),
        "shares_bytes: planes have a share in each round: got (1, 1), expected (1, 2)",
    ),
    Row(
        "planes together carry the bytes of a round",
        BOTH,
        planes([[2, 1.5]], [[0, 0]], [[3, 3]], 3.0, **LIT),
        "shares_bytes[0]: planes together carry the bytes of a round: got 3.5, expected 4.0",
    ),
    Row(
        "planes together carry the bytes of a round",
        BOTH,
        forge(planes([[5, 0]], [[0, 0]], [[6, 0]], 6.0, **SENT, circuits=[[[1, -1], [-1, -1]]]),
              shares_bytes=np.array([[5.0, -1.0]])),
    ),
    Row(
        "a share takes its time",
        BOTH,
        planes([[2, 2]], [[0, 0]], [[3, 2.5]], 3.0, **LIT),
        "round 0, plane 1: a share takes its time: got 0.0",
    ),
    Row(
        "a plane without a share has no times",
        BOTH,
        planes([[4, 0]], [[0, 0]], [[5, 1]], 5.0, **PART),
        "round 0, plane 1",
    ),
    Row(
        "a plane without a share has no times",
        BOTH,
        planes([[4, 0]], [[0, 1]], [[5, 0]], 5.0, **PART),
    ),
    Row(None, BOTH_LATE, planes([[2, 2]], [[7, 8]], [[10, 11]], 11.0, n_rounds_late=1, **LIT)),
    Row(
        "a round starts after the one before, and when ranks are ready",
        BOTH_LATE,
        planes([[2, 2]], [[7, 6]], [[10, 9]], 10.0, **LIT),
        "round 0, plane 1",
    ),
    Row(
        "each round has an epoch of its own",
        ask("broadcast", 3, planes=2),
        planes([[2, 2], [2, 2]], [[0, 0], [3, 3]], [[3, 3], [6, 6]], 6.0, sends=TWICE,
               chunk_bytes=[4.0], epoch_of_round=[0, 0], circuits=[LINE[0] * 2]),
        "circuits: each round has an epoch of its own: got 1, expected 2",
    ),
    Row(
        "planes with a share have circuits, and no others",
        BOTH,
        planes([[4, 0]], [[0, 0]], [[5, 0]], 5.0, **LIT),
        "round 0, plane 1",
    ),
    Row(
        "planes and ports of a round have the same circuits",
        BOTH,
        planes([[2, 2]], [[0, 0]], [[3, 3]], 3.0, **SENT, circuits=[[[1, 0], [1, -1]]]),
        "round 0, plane 1",
    ),
    Row(
        "planes and ports of a round have the same circuits",
        ask("broadcast", 2, planes=2, ports=2),
        planes([[4, 4]], [[0, 0]], [[3, 3]], 3.0, **SENT,
               circuits=[[[1, -1], [1, 0], [1, -1], [1, 0]]]),
        "round 0, plane 0",
    ),
    Row(None, BOTH, planes([[2, 4 * (1 - 1e-9) - 2]], [[0, 0]], [[3, 3]], 3.0, **LIT)),
    Row(None, DARK, planes([[2, 2]], [[10, 10]], [[13, 13]], 13.0, **LIT),
        figures={"reconfigurations": 0}),
    Row(
        "a plane has the time to change its circuits",
        DARK,
        planes([[3.5, 0.5]], [[10, 9]], [[14.5, 13]], 14.5, **LIT),
        "start_s[0, 1]: a plane has the time to change its circuits: got 9.0, expected 10.0",
    ),
    Row(None, ask("broadcast", 2, planes=2, start=[[1, -1], [-1, -1]]),
        planes([[2, 2]], [[0, 10]], [[3, 13]], 13.0, **LIT)),
    Row(
        "a plane has the time to change its circuits",
        ask("broadcast", 2, planes=2, start=[[1, -1], [-1, -1]]),
        planes([[2, 2]], [[0, 9]], [[3, 13]], 13.0, **LIT),
    ),
    Row(None, ask("broadcast", 2, planes=2, hop_s=1.0),
        planes([[2, 2]], [[0, 0]], [[4, 4]], 4.0, **LIT)),
    Row(
        "a share takes its time",
        ask("broadcast", 2, planes=2, hop_s=1.0),
        planes([[2, 2]], [[0, 0]], [[3, 4]], 4.0, **LIT),
    ),
    # steps from outside
    Row(None, NOTHING, om.CollectivePlan()),
    Row("planes have a share in each round", NOTHING, planes([[4]], [[0]], [[5]], 5.0)),
    Row(
        "a share takes its time",
        STEPS,
        planes(**PARTED | {"ends": [[5, 0], [0, 9]], "time_s": 9.0}),
    ),
    Row(
        "planes together carry the bytes of a round",
        THRICE,
        planes([[3, 0], [0, 3], [4, 0]], [[0, 0], [0, 5], [10, 0]],
               [[5, 0], [0, 10], [15, 0]], 15.0),
        "shares_bytes[0]",
        told=1,
    ),
    Row(
        "a share takes its time",
        STEPS,
        planes(**PARTED | {"starts": [[1, 0], [0, 6]]}),
        "round 0, plane 0",
        told=1,
    ),
    Row(None, STEPS, planes(**PARTED)),
    Row("planes have a share in each round", STEPS, om.CollectivePlan()),
    Row(None, SHRINKING, planes([[4, 0], [2, 0]], [[0, 0], [5, 0]], [[5, 0], [8, 0]], 8.0)),
    Row("a plan of given steps has shares alone", STEPS, planes(**PARTED, sends=ONCE),
        "sends: a plan of given steps has shares alone: got 1, expected 0"),
    Row("a plan of given steps has shares alone", STEPS, planes(**PARTED, circuits=THERE),
        "circuits: a plan of given steps has shares alone: got 1, expected 0"),
    Row("a plan of given steps has shares alone", STEPS, planes(**PARTED, epoch_of_round=[0]),
        "epoch_of_round: a plan of given steps has shares alone: got 1, expected 0"),
    Row("a plan of given steps has shares alone", STEPS, planes(**PARTED, chunk_bytes=[5.0]),
        "chunk_bytes: a plan of given steps has shares alone: got 1, expected 0"),
    Row("a plan of given steps has shares alone", STEPS, planes(**PARTED, links=[[0, 0, 1]]),
        "links: a plan of given steps has shares alone: got 1, expected 0"),
    Row("a plan of given steps has shares alone", STEPS, planes(**PARTED, stored_ranks=3),
        "stored_ranks: a plan of given steps has shares alone: got 3, expected 0"),
    Row(
        "a round starts after the one before, and when ranks are ready",
        STEPS,
        planes(**PARTED | {"starts": [[0, 0], [0, 4]]}),
        "round 1, plane 1",
    ),
    Row(
        "a round starts after the one before, and when ranks are ready",
        THRICE,
        planes([[4, 0], [0, 4], [4, 0]], [[0, 0], [0, 5], [6, 0]],
               [[5, 0], [0, 10], [11, 0]], 11.0),
        "round 2, plane 0",
    ),
    Row(None, OTHER, planes([[4], [4]], [[0], [15]], [[5], [20]], 20.0)),
    Row(
        "a plane has the time to change its circuits",
        OTHER,
        planes([[4], [4]], [[0], [14]], [[5], [20]], 20.0),
        "start_s[1, 0]: a plane has the time to change its circuits: got 14.0, expected 15.0",
    ),
    # what cannot be replayed
    stopped("the answer is a plan", PAIR, schedule([[1, -1]])),
    stopped("entries of sends exist", PAIR, plan([[0, 2, 1, 0, 0]], THERE, 5.0)),
    stopped("a send goes to another rank", PAIR, plan([[0, 1, 1, 0, 0]], THERE, 5.0)),
    stopped("each block has as many chunks", GATHER, plan([], THERE, 0.0, [2.0] * 3)),
    stopped("each block is a chunk", EXCHANGE, plan([], THERE, 0.0, [2.0] * 8)),
    stopped(
        "a part lies in its chunk", PAIR, plan(ONCE, THERE, 6.0, parts=[[3, 2]], among="all")
    ),
    stopped("rounds go through all epochs in order", PAIR, plan(ONCE, THERE * 2, 5.0)),
    stopped("each rank has its lanes in each epoch", PAIR, plan(ONCE, [[[1, -1, -1]]], 5.0)),
    stopped("each lane holds a matching", PAIR, plan(ONCE, [[[2, -1]]], 5.0)),
    stopped("circuits keep to their link budgets", FORTH,
        planes([[2, 2]], [[0, 0]], [[3, 3]], 3.0, **SENT | {
            "sends": [[0, 1, 0, 0, COPY]], "circuits": [[[1, 0], [1, 0]]]})),
    stopped("each lane holds a matching", THREE, plan(TWICE, [[[1, 2, 1]]], 10.0)),
    stopped(
        "circuits stay on their rails", ISLANDS, plan(TOLD, [[[3, 2, 0, 1]]], 3.0, [1.0] * 4)
    ),
    stopped(
        "between islands no plane has shares",
        ISLANDS,
        planes([[1], [1]], [[0], [2]], [[2], [3]], 3.0, sends=TOLD, chunk_bytes=[1.0] * 4,
               epoch_of_round=[0, 0], circuits=CROSSED),
    ),
    stopped("a send goes over a circuit", PAIR, plan(ONCE, [[[-1, 0]]], 5.0)),
    stopped("sends and ranks exist", HOPS, plan(**FORWARDED, links=[[1, 3, 2]])),
    stopped("a send goes over a circuit", HOPS,
        plan(**FORWARDED, links=[[1, 0, 0], [1, 0, 1], [1, 1, 2]])),
    Row(None, AT_BUDGET, plan(ONCE, THERE, 5.0)),
    stopped("planes have a share in each round", BOTH, planes([[4]], [[0]], [[5]], 5.0, **LIT)),
    stopped("planes have a share in each round", STEPS, planes([[4]], [[0]], [[5]], 5.0)),
    # the schedule of the switch
    Row(None, PAIR, solved()),
    Row(None, DOUBLE, claim(DOUBLE, objective=3.0, lower_bound=3.0,
        answer=plan(ONCE, [[[1, -1], [1, -1]]], 3.0),
        schedule=schedule([[2, 3, -1, -1]], [3.0], delay_s=10.0))),
    Row(None, MET, claim(MET, objective=5.0, lower_bound=5.0,
        answer=plan(ONCE, MUTUAL, 5.0), schedule=schedule(MUTUAL[0], [5.0], delay_s=10.0))),
    Row(None, GATHER, claim(GATHER, objective=3.0, lower_bound=3.0,
        answer=plan([[0, 0, 1, 0, 0], [0, 1, 0, 1, 0]], MUTUAL, 3.0, HALVES),
        schedule=schedule(MUTUAL[0], [3.0], delay_s=10.0))),
    Row(None, UNLIT, claim(UNLIT, objective=15.0, lower_bound=15.0,
        answer=plan(ONCE, THERE, 15.0), schedule=schedule(THERE[0], [5.0], delay_s=10.0))),
    Row(None, SELF, claim(SELF, objective=0.0, lower_bound=0.0, answer=ALONE,
        schedule=schedule(np.zeros((0, 1)), [], delay_s=10.0))),
    Row(
        "several planes have no one schedule",
        BOTH,
        claim(BOTH, answer=planes([[2, 2]], [[0, 0]], [[3, 3]], 3.0, **LIT), objective=3.0,
              lower_bound=3.0, schedule=schedule([[1, -1]])),
    ),
    Row(
        "several planes have no one schedule",
        OTHER,
        claim(OTHER, answer=planes([[4], [4]], [[0], [15]], [[5], [20]], 20.0), objective=20.0,
              lower_bound=10.0, schedule=schedule([[1, -1]])),
    ),
    Row(
        "a plan comes with the schedule of its switch",
        PAIR,
        solved(schedule=None),
        "schedule: a plan comes with the schedule of its switch: got None",
    ),
    Row(
        "the schedule has the circuits of the plan",
        PAIR,
        solved(schedule=schedule([[1, 0]], [5.0], delay_s=10.0)),
        "matchings: the schedule has the circuits of the plan: got others",
    ),
    Row(
        "a slot has an entry for each port",
        PAIR,
        solved(schedule=schedule([[1, -1, -1]], [5.0], delay_s=10.0)),
    ),
    Row(
        "the delay is the problem's",
        PAIR,
        solved(schedule=schedule([[1, -1]], [5.0], delay_s=9.0)),
        "delay_s: the delay is the problem's: got 9.0, expected 10.0",
    ),
    Row(
        "all circuits change together",
        PAIR,
        solved(schedule=schedule([[1, -1]], [5.0], delay_s=10.0, switching="per-circuit")),
        "switching: all circuits change together: got per-circuit, expected all-stop",
    ),
    Row(
        ENDS,
        PAIR,
        solved(schedule=schedule([[1, -1]], [4.0], delay_s=10.0)),
        "durations_s[0]: a slot ends with the rounds of its circuits: got 14.0, expected 15.0",
    ),
    Row(None, PASSED_ON, passed_on([10.0, 5.0])),
    Row("a slot begins before the rounds of its circuits", SOON, shared([5.0, 4.0], SOON)),
    Row(None, replace(SOON, delay_s=0.0), shared([5.0, 5.0], replace(SOON, delay_s=0.0))),
    Row(ENDS, PASSED_ON, passed_on([9.0, 6.0]), "durations_s[0]", told=1),
    Row(ENDS, PASSED_ON, passed_on([10.0, 6.0]), "durations_s[1]: "),
]  # fmt: skip
