"""Training jobs on the same rails: shares, ports, turns and rounds."""

from dataclasses import replace
from typing import Any

import optmatch as om
from optmatch.problems import NamedJob, RailShare, RailShares, RailSharing
from optmatch.problems.rails.training.step import COMPUTE, RECV, SEND
from tests.helpers.rails import small_job
from tests.verify.rules import Row, claim, forge
from tests.verify.rules.rails import TIMES, group, job, line, message, plan, timed

MESSAGE = message()
"""A step of 9 s: a second of work, and 8 s for a message from rank 0 to rank 1."""
BACK_ROWS = [[0, RECV, 0, 8, 0, 1, 0], [1, COMPUTE, -1, 0, 1, -1, -1], [1, SEND, 0, 8, 0, 0, 0]]
BACK = job([group((0, 1), "pp")], BACK_ROWS, deps=[(2, 1)])
"""The same from rank 1 to rank 0, over the other circuit."""
BACK_PLAN = plan(line([[-1, 0]]), [[1, 9], [0, 1], [1, 9]], 9.0, [1, 0, 1])
WIDE = message(ports_per_gpu=2)
"""The message over one port or two, in 9 s or 5 s."""
WIDE_PLAN = plan(line([[2, 3, -1, -1]]), [[0, 1], [1, 5], [1, 5]], 5.0, [0, 3, 3])
REPLICAS = small_job(4, 1, 1, model=om.TransformerModel(layers=2, hidden=64, heads=4, sequence=32,
    vocabulary=100, ffn=128, experts=4), ep=2)  # fmt: skip
"""Experts on two ranks: four replicas or two, not one."""


def share(answer: Any = None, ports_per_gpu: int = 1, replicas: int = 1) -> RailShare:
    """Return a share with a plan, of the message unless told."""
    made = timed(*TIMES) if answer is None else answer
    return RailShare(ports_per_gpu=ports_per_gpu, replicas=replicas, plan=made)


def shares(beside: Any, first_port: Any, steps: Any = None, alone: Any = None) -> RailShares:
    """Return the shares of jobs, which have the same ones alone unless told."""
    given = tuple(beside)
    return RailShares(
        alone=given if alone is None else tuple(alone),
        beside=given,
        first_port=first_port,
        steps=(1,) * len(given) if steps is None else steps,
    )


def sharing(*jobs: om.RailJob, radix: int = 2, **options: Any) -> RailSharing:
    """Return jobs that share rails, by time unless told."""
    named = tuple(NamedJob(f"job-{number}", job) for number, job in enumerate(jobs))
    return RailSharing(jobs=named, radix=radix, **{"by": "time", "round_s": 40.0, **options})


def told(problem: RailSharing, answer: Any, objective: float, **said: Any) -> Any:
    """Return a solution with these shares."""
    given = {"lower_bound": problem.lower_bound(), "objective": objective, "answer": answer}
    return claim(problem, **given | said)


SAME = sharing(MESSAGE, MESSAGE)
SLOW = sharing(MESSAGE, MESSAGE, handover_s=0.5)
TURNED = sharing(MESSAGE, BACK)
LONG = sharing(MESSAGE, BACK, handover_s=3.0)
ALONE = sharing(MESSAGE)
HUGE = sharing(MESSAGE, BACK, radix=10**13)
ROOMY = sharing(WIDE, WIDE, radix=5)
IDLE_JOB = job([group((0, 1), "pp")], [[0, COMPUTE, -1, 0, 0, -1, -1]])
IDLE_PLAN = plan(line([[-1, -1]]), [[0, 0]], 0.0, [0])
IN_NO_TIME = sharing(IDLE_JOB, IDLE_JOB)
"""Jobs whose steps take no time."""
BESIDE = sharing(MESSAGE, MESSAGE, radix=4, by="ports")
TWO = ((0,), (0,))
APART = ((0,), (2,))
BOTH = shares([share(), share()], TWO)
BACKWARDS = shares([share(), share(BACK_PLAN)], TWO)
AT_ONCE = shares([share(), share()], APART)
PORTS = sharing(WIDE, radix=4, by="ports")
NARROW = sharing(WIDE, radix=2, by="ports")
WIDE_SHARE = share(WIDE_PLAN, 2)
NARROW_SHARE = share()
SERVERS = sharing(REPLICAS, radix=4, by="servers")


def half() -> RailShare:
    """Return the share of two replicas, as a method plans it."""
    part = om.RailJob(
        parallelism=replace(REPLICAS.parallelism, dp=2),
        network=REPLICAS.network,
        workload=REPLICAS.workload,
    )
    return share(om.solve(part, "static", seed=0).answer, replicas=2)


HALF = half()
HALF_STRETCH = SERVERS.measure_stretches(shares([HALF], ((0,),)))[0]


def with_parts(**parts: Any) -> Any:
    """Return the shares of two jobs with other parts, past the checks."""
    changed: RailShares = forge(BOTH, **parts)
    return changed


ROWS = [
    Row(None, SAME, told(SAME, BOTH, 2.0), figures={"round_s": 18.0}),
    Row(None, SAME, BOTH, figures={"objective": 2.0}),
    Row(None, SLOW, told(SLOW, BOTH, 19 / 9), figures={"round_s": 19.0}),
    Row(None, TURNED, told(TURNED, BACKWARDS, 20 / 9), figures={"round_s": 20.0}),
    Row(None, LONG, told(LONG, BACKWARDS, 24 / 9), figures={"round_s": 24.0}),
    Row(None, ALONE, told(ALONE, shares([share()], ((0,),), (4,)), 1.0)),
    Row(
        None,
        TURNED,
        told(TURNED, shares([share(), share(BACK_PLAN)], TWO, (1, 2)), 29 / 9),
        figures={"round_s": 29.0},
    ),
    Row(None, HUGE, told(HUGE, BACKWARDS, 20 / 9), figures={"round_s": 20.0}),
    Row(None, ROOMY, told(ROOMY, shares([WIDE_SHARE, WIDE_SHARE], TWO), 2.0)),
    Row(None, IN_NO_TIME, told(IN_NO_TIME, shares([share(IDLE_PLAN)] * 2, TWO), 1.0)),
    Row(None, BESIDE, told(BESIDE, AT_ONCE, 1.0)),
    Row(None, PORTS, told(PORTS, shares([NARROW_SHARE], ((0,),), alone=[WIDE_SHARE]), 9 / 5)),
    Row(None, SERVERS, told(SERVERS, shares([HALF], ((0,),)), HALF_STRETCH)),
    Row(
        "the answer is the shares of all jobs",
        SAME,
        told(SAME, timed(*TIMES), 2.0),
        "answer: the answer is the shares of all jobs: got RailPlan, expected RailShares",
        stops=True,
    ),
    *(
        Row(
            f"each job has its {parts}",
            SAME,
            told(SAME, with_parts(**{parts: short}), 2.0),
            f"{parts}: each job has its {parts}: got 1, expected 2",
            stops=True,
        )
        for parts, short in (
            ("alone", BOTH.alone[:1]),
            ("beside", BOTH.beside[:1]),
            ("steps", (1,)),
            ("first_port", BOTH.first_port[:1]),
        )
    ),
    Row(
        "a share is one that the job may have",
        SAME,
        told(SAME, shares([share(), WIDE_SHARE], TWO, alone=[share(), share()]), 2.0),
        "beside[1]: a share is one that the job may have: got (2, 1), expected a part of (1, 1) by"
        " time",
        stops=True,
    ),
    Row(
        "a share is one that the job may have",
        PORTS,
        told(PORTS, shares([share(WIDE_PLAN, 3)], ((0,),), alone=[WIDE_SHARE]), 1.0),
        "got (3, 1)",
        stops=True,
    ),
    Row(
        "a share is one that the job may have",
        SERVERS,
        told(SERVERS, shares([replace(HALF, replicas=3)], ((0,),), alone=[HALF]), 1.0),
        "got (1, 3)",
        stops=True,
    ),
    Row(
        "a share is one that the job may have",
        SERVERS,
        told(SERVERS, shares([replace(HALF, replicas=1)], ((0,),), alone=[HALF]), 1.0),
        "got (1, 1)",
        stops=True,
    ),
    Row(
        "the step ends with its last operation or reconfiguration",
        SAME,
        told(SAME, shares([share(), share(forge(timed(*TIMES), step_s=10.0))], TWO), 19 / 9),
        "alone[1].plan: ",
        stops=True,
    ),
    Row(
        "a job has ports of the rails that its GPUs are on",
        BESIDE,
        told(BESIDE, shares([share(), share()], ((0,), (-1,))), 1.0),
        "first_port[1]: a job has ports of the rails that its GPUs are on: got [], expected [0]",
        stops=True,
    ),
    Row(
        "a job has ports of the rails that its GPUs are on",
        BESIDE,
        told(BESIDE, shares([share(), share()], ((0, -1), (2, 0))), 1.0),
        "got [0, 1], expected [0]",
        stops=True,
    ),
    Row(
        "ports are those of the switch",
        BESIDE,
        told(BESIDE, shares([share(), share()], ((0,), (3,))), 1.0),
        "first_port[1][0]: ports are those of the switch: got 4, expected 3",
        stops=True,
    ),
    Row(
        "jobs that take turns have ports from port 0 on",
        ROOMY,
        told(ROOMY, shares([WIDE_SHARE, WIDE_SHARE], ((0,), (1,))), 12 / 5),
        "first_port[1][0]: jobs that take turns have ports from port 0 on: got 1, expected 0",
        stops=True,
    ),
    Row(
        "jobs that run at once have different ports",
        BESIDE,
        told(BESIDE, shares([share(), share()], ((0,), (1,))), 1.0),
        "rail 0, port 1: jobs that run at once have different ports: got job-0, job-1",
        told=1,
    ),
    Row(
        "the share alone fits on the switches",
        NARROW,
        told(NARROW, shares([NARROW_SHARE], ((0,),), alone=[WIDE_SHARE]), 9 / 5),
        "alone[0]: the share alone fits on the switches: got 4, expected 2",
    ),
    Row(
        "no plan beside the others is faster than that alone",
        PORTS,
        told(PORTS, shares([WIDE_SHARE], ((0,),), alone=[NARROW_SHARE]), 1.0),
        "beside[0]: no plan beside the others is faster than that alone: got 5.0, expected 9.0",
    ),
    Row(
        "jobs that run at once take no turns",
        BESIDE,
        told(BESIDE, shares([share(), share()], APART, (1, 2)), 1.0),
        "steps: jobs that run at once take no turns: got [1, 2], expected [1, 1]",
    ),
    Row(
        "a round of more than one step each is no longer than round_s",
        SAME,
        told(SAME, shares([share(), share()], TWO, (1, 4)), 5.0),
        "steps: a round of more than one step each is no longer than round_s: got 45.0, expected"
        " 40.0",
    ),
    Row(
        "the lower bound is not below the number of jobs that share time, or 1",
        SAME,
        told(SAME, BOTH, 2.0, lower_bound=1.5),
        "lower_bound",
    ),
    Row("the lower bound is supported", SLOW, told(SLOW, BOTH, 19 / 9, lower_bound=2.1)),
    Row("the objective is as recomputed", SAME, told(SAME, BOTH, 2.5)),
]
