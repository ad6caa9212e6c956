"""Jobs side by side on one switch."""

from typing import Any

import numpy as np

from optmatch.problems import Tenancy, TenancyPlan, Tenant
from tests.verify.rules import Row, claim, forge, om, schedule

SENDS: Any = {"question": "demand", "demand_bytes": np.array([[0.0, 1.0], [0.0, 0.0]])}
LONGER: Any = {"question": "demand", "demand_bytes": np.array([[0.0, 2.0], [0.0, 0.0]])}
SUM: Any = {"question": "all-reduce", "size_bytes": 2.0}
SWAP = om.CollectivePlan(
    sends=[[0, 0, 1, 0, 1], [0, 1, 0, 0, 1]],
    chunk_bytes=[2.0],
    circuits=[[[1, 0]]],
    epoch_of_round=[0],
    time_s=2.0,
)
"""Two ranks exchange what they have; that takes two slots."""
TWO = Tenancy(om.IdealSwitch(5), (Tenant("a", 2, **SENDS), Tenant("b", 2, **SENDS)), delay_s=0.5)
IDLE = Tenancy(
    om.IdealSwitch(3),
    (Tenant("a", 1), Tenant("b", 2, "demand", demand_bytes=np.zeros((2, 2)))),
)
PAIRS = Tenancy(om.IdealSwitch(3), (Tenant("a", 2),))
SUMS = Tenancy(om.IdealSwitch(4), (Tenant("a", 2, **SUM), Tenant("b", 2, **LONGER)))
THIRDS = Tenancy(om.IdealSwitch(3), (Tenant("a", 3, **SUM),))
STAR = om.CollectivePlan(
    sends=[[0, 1, 0, 0, 1], [1, 2, 0, 0, 1], [2, 0, 1, 0, 0], [3, 0, 2, 0, 0]],
    chunk_bytes=[2.0],
    circuits=[[[-1, 0, -1]], [[-1, -1, 0]], [[1, -1, -1]], [[2, -1, -1]]],
    epoch_of_round=[0, 1, 2, 3],
    time_s=8.0,
)
"""Rank 0 adds up what the others have, and tells them; one of the three is idle in each slot."""
SLOW = Tenancy(om.IdealSwitch(2), (Tenant("a", 2, **SUM),), alpha_s=1.0, rate_bytes_per_s=2.0)
"""A round takes 1 s before, and 1 s for its bytes."""
MESH = Tenancy(om.HexMesh(1, 1, ports=[0, 1]), (Tenant("a", 2, held=(1, 0)),), delay_s=0.5)
UNJOINED = Tenancy(
    om.HexMesh(2, 2, ports=om.HexMesh(2, 2).dead_pairs()[0]), (Tenant("a", 2, **SENDS),)
)
BROKEN = Tenancy(om.Faulty(om.Crossbar(2), dead_ports=[1]), (Tenant("a", 1),))
RIGHT = [[1, -1, 3, -1, -1]]


def told(problem: Tenancy, matchings: Any, ports: Any, plans: Any = None, **said: Any) -> Any:
    """Return a solution; its objective is the time of its slots, unless told otherwise."""
    wanted = (None,) * len(problem.tenants) if plans is None else plans
    answer = TenancyPlan(ports=ports, plans=wanted)
    lasting = schedule(
        matchings, delay_s=problem.delay_s, **{"cell_states": said.pop("cell_states", None)}
    )
    given = {"objective": lasting.makespan_s, "lower_bound": problem.lower_bound()}
    return claim(problem, **{"schedule": lasting, "answer": answer} | given | said)


def two(
    matchings: Any = RIGHT, ports: Any = ((0, 1), (2, 3)), plans: Any = None, **said: Any
) -> Any:
    """Return what two jobs do that send one slot each."""
    return told(TWO, matchings, ports, plans, **said)


ROWS = [
    Row(None, TWO, two(), figures={"slots": 1, "makespan_s": 1.5, "changed_circuits": 0}),
    Row(
        "ports and schedule answer it together",
        TWO,
        two().answer,
        "answer: ports and schedule answer it together: got TenancyPlan, expected Solution",
    ),
    Row("a plan and a schedule answer it", TWO, two(schedule=None), stops=True),
    Row("a plan and a schedule answer it", TWO, two(answer=None), "got None", stops=True),
    Row("the lower bound is not below that of the worst job", TWO, two(lower_bound=1.4)),
    Row(
        "a slot lasts slot_s",
        TWO,
        two(schedule=schedule(RIGHT, [2.0], delay_s=0.5), objective=2.5),
        "durations_s[0]: a slot lasts slot_s: got 2.0, expected 1.0",
    ),
    Row(
        "the delay is the problem's",
        TWO,
        two(schedule=schedule(RIGHT, delay_s=1.0), objective=2.0),
        "delay_s: the delay is the problem's: got 1.0, expected 0.5",
    ),
    Row(
        "all circuits change together",
        TWO,
        two(schedule=schedule(RIGHT, delay_s=0.5, switching="per-circuit")),
    ),
    # ports
    Row("each job has its ports", TWO, two(ports=((0, 1),)), "got 1, expected 2", stops=True),
    Row("each job has its plans", TWO, two(plans=(None,)), "got 1, expected 2", stops=True),
    Row(
        "a job has as many ports as it needs",
        PAIRS,
        told(PAIRS, [[1, 2, 0], [2, 0, 1]], ((0, 1, 2),)),
        "ports[0]: a job has as many ports as it needs: got 3, expected 2",
        stops=True,
    ),
    Row("ports are alive", TWO, two(ports=((0, 1), (2, 5))), "ports[1]: ", stops=True),
    Row(
        "ports are alive",
        BROKEN,
        told(BROKEN, np.zeros((0, 2)), ((1,),), cell_states=np.zeros((0, 4))),
        "ports[0]: ports are alive: got 1, expected a live port",
        stops=True,
    ),
    Row(
        "a port belongs to one job, once",
        IDLE,
        told(IDLE, np.zeros((0, 3)), ((0,), (1, 0))),
        "ports[1]: a port belongs to one job, once: got 0, expected not one of job 0",
        stops=True,
    ),
    Row(
        "a port belongs to one job, once",
        IDLE,
        told(IDLE, np.zeros((0, 3)), ((0,), (1, 1))),
        "ports[1]: a port belongs to one job, once: got 1, expected not one of job 1",
        stops=True,
    ),
    # circuits
    Row(
        "a circuit joins ports of one job",
        TWO,
        two([[1, -1, 3, 0, -1]]),
        "slot 0, circuit from port 3 to port 0: a circuit joins ports of one job: got [1, 0]",
    ),
    Row("a circuit joins ports of one job", TWO, two([[1, -1, 3, 4, -1]]), "got [1, -1]"),
    Row("a circuit joins ports of one job", TWO, two([[1, -1, 3, -1, 4]]), "got [-1, -1]"),
    Row(None, TWO, two([[1, -1, -1, -1, -1], [-1, -1, 3, -1, -1]]), figures={"slots": 2}),
    # the questions of the jobs
    Row(
        "all demand is served",
        TWO,
        two([[1, -1, -1, -1, -1]]),
        "job 'b': from port 0 to port 1: all demand is served: got 0 s of circuit, expected 1 s",
    ),
    Row(
        "every pair meets exactly once, and no port meets itself",
        PAIRS,
        told(PAIRS, [[2, -1, -1]], ((0, 2),)),
        "job 'a': from port 1 to port 0: every pair meets exactly once",
    ),
    Row(None, PAIRS, told(PAIRS, [[2, -1, 0], [-1, -1, -1]], ((0, 2),)), figures={"slots": 2}),
    Row(
        "only collectives have plans",
        TWO,
        two(plans=(SWAP, None)),
        "job 'a': plans[0]: only collectives have plans: got",
    ),
    Row(
        "the job can be asked of its ports",
        UNJOINED,
        told(UNJOINED, [[-1, -1]], ((0, 1),), cell_states=[[-1] * 19]),
        "job 'a': ports[0]: the job can be asked of its ports: got",
    ),
    Row(None, SUMS, told(SUMS, [[1, 0, 3, -1]] * 2, ((0, 1), (2, 3)), (SWAP, None))),
    Row(
        None,
        SUMS,
        told(
            SUMS, [[1, 0, 3, -1], [-1, -1, 3, -1], [1, 0, -1, -1]], ((0, 1), (2, 3)), (SWAP, None)
        ),
    ),
    Row(None, THIRDS, told(THIRDS, STAR.circuits[:, 0].repeat(2, axis=0), ((0, 1, 2),), (STAR,))),
    Row(None, SLOW, told(SLOW, [[1, 0]] * 2, ((0, 1),), (SWAP,))),
    Row(
        "a collective has a plan",
        SUMS,
        told(SUMS, [[1, 0, 3, -1]] * 2, ((0, 1), (2, 3))),
        "job 'a': plans: a collective has a plan: got None, expected a CollectivePlan",
    ),
    Row(
        "a collective has its epochs one after the other, in the slots that they need",
        SUMS,
        told(SUMS, [[1, 0, 3, -1], [-1, -1, 3, -1]], ((0, 1), (2, 3)), (SWAP, None)),
        "got 1 slots, expected 2: [2]",
    ),
    Row(
        "the time is that of the replay",
        SUMS,
        told(
            SUMS,
            [[1, 0, 3, -1]] * 2,
            ((0, 1), (2, 3)),
            (forge(SWAP, time_s=3.0), None),
        ),
        "job 'a': ",
    ),
    # cells, and what it costs to move
    Row(
        None,
        MESH,
        told(MESH, [[1, 0]], ((1, 0),), cell_states=[[-1, -1, 0, -1, -1, -1]]),
        figures={"objective": 1.5, "total_cells": 1, "shortest_cells": 1},
    ),
    Row(
        None,
        MESH,
        told(MESH, [[1, 0]], ((0, 1),), cell_states=[[-1, -1, 0, -1, -1, -1]], objective=2.0),
        figures={"objective": 2.0, "changed_circuits": 1},
    ),
    Row(
        "the objective is as recomputed",
        MESH,
        told(MESH, [[1, 0]], ((0, 1),), cell_states=[[-1, -1, 0, -1, -1, -1]]),
        "objective: the objective is as recomputed: got 1.5, expected 2.0",
    ),
]
