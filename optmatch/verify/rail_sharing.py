"""The replay of training jobs on the same rails: their shares, their plans, and their turns."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, InputError, Schedule, Solution
from optmatch.problems import RailJob, RailShare, RailShares, RailSharing
from optmatch.problems.rail_sharing import give_share
from optmatch.verify.bounds import check_solution
from optmatch.verify.rails.replay import verify_rails
from optmatch.verify.rails.times import bound_step
from optmatch.verify.report import Findings, Rule, agree

ANSWER_IS_SHARES = Rule("the answer is the shares of all jobs")
JOB_HAS_PARTS = Rule("each job has its {parts}")
SHARE_IS_ALLOWED = Rule("a share is one that the job may have")

# Ports
PORTS_ON_OWN_RAILS = Rule("a job has ports of the rails that its GPUs are on")
PORTS_OF_THE_SWITCH = Rule("ports are those of the switch")
TURNS_FROM_PORT_0 = Rule("jobs that take turns have ports from port 0 on")
PORT_OF_ONE_JOB = Rule("jobs that run at once have different ports")
ALONE_FITS = Rule("the share alone fits on the switches")

# Times
NO_FASTER_BESIDE_OTHERS = Rule("no plan beside the others is faster than that alone")
ONE_STEP_AT_ONCE = Rule("jobs that run at once take no turns")
ROUND_IS_SHORT = Rule("a round of more than one step each is no longer than round_s")
BOUND_OF_JOBS = Rule("the lower bound is not below the number of jobs that share time, or 1")

Circuits = NDArray[np.int64]
"""``receiver[job, rail, port]``: the port that a port sends to, -1 where idle."""


def verify_rail_sharing(
    problem: RailSharing, subject: Schedule | RailShares | Solution, findings: Findings
) -> None:
    """Replay the plans of all jobs and their turns, and check the claims of a solution.

    Several training jobs share the same rails (optical switches). They divide the ports of each
    GPU, the servers, or time (`problem.by`), in which case they take turns.
    The objective is the largest stretch: how many times as long a step takes as it would with
    all links there. Its lower bound is the number of jobs that take turns, or 1. It is 1 in turns,
    too, if no step needs time: then the stretch may be 1, as that of no time over no time.

    Parameters
    ----------
    problem
        The jobs and their switches.
    subject
        Shares with plans, or a solution with them; anything else is refused.
    findings
        Violations, figures and what was skipped are added to it.
    """
    bound = 1.0
    if problem.by == "time":
        needs_time = any(_bound_step(problem, named.job) > 0 for named in problem.jobs)
        bound = float(len(problem.jobs)) if needs_time else 1.0
    findings.figures["lower_bound_recomputed"] = bound
    replay = partial(_replay, problem, findings=findings)
    if isinstance(subject, Solution):
        check_solution(problem, subject, findings, replay=replay, floor=BOUND_OF_JOBS)
    else:
        replay(subject)


def _replay(problem: RailSharing, answer: object, findings: Findings) -> bool:
    """Check an answer by all rules: of shares and plans, of ports, and of times.

    Several training jobs share the switches of a network. The *share* of a job says how many ports
    each of its GPUs has, how many replicas of its model run, and how a step goes (its plan). Each
    job has two shares: ``alone[job]``, as if it had all switches to itself, and ``beside[job]``,
    with the others.

    Parameters
    ----------
    problem
        The jobs and their switches.
    answer
        The shares; anything but a `RailShares` is refused.
    findings
        Violations and figures are added to it.

    Returns
    -------
    bool
        False if the stretch cannot be recomputed, as some job has no share, ports or plan.
    """
    if not isinstance(answer, RailShares):
        findings.refuse(ANSWER_IS_SHARES, "answer", type(answer).__name__, "RailShares")
        return False
    n_jobs = len(problem.jobs)
    for parts in ("alone", "beside", "first_port", "steps"):
        n_parts = len(getattr(answer, parts))
        if not findings.expect(JOB_HAS_PARTS.format(parts=parts), parts, n_parts, n_jobs):
            return False

    # Each plan is replayed for the job that has just its share, as if it were alone.
    all_hold = True
    for number, named in enumerate(problem.jobs):
        for place, share in (
            (f"alone[{number}]", answer.alone[number]),
            (f"beside[{number}]", answer.beside[number]),
        ):
            all_hold &= _check_share(problem, named.job, share, place, findings)
    if not all_hold:
        return False
    if not _check_ports(problem, answer, findings):
        return False
    _check_times(problem, answer, findings)
    return True


def _check_share(
    problem: RailSharing, job: RailJob, share: RailShare, place: str, findings: Findings
) -> bool:
    """Check that a training job may have the share of the network that it is given, and its plan.

    Several jobs share a network. A *replica* is one copy of a job's model, on GPUs of its own. The
    share of a job is a number of ports for each of its GPUs and a number of replicas, perhaps less
    than it asks for. Its plan is replayed as if it had asked for that share.

    Parameters
    ----------
    problem
        The sharing. ``by`` says what is divided:

        - ``"ports"``: a job may have fewer ports for each GPU, at least one;
        - ``"servers"``: it may have fewer replicas, a divisor of their number;
        - ``"time"``: it has everything, in turns.
    job
        The job with all that it asks for.
    share
        ``ports_per_gpu``, ``replicas`` and ``plan``: the share, and the plan of a training step.
    place
        The place of the share in the answer, for messages, such as ``"beside[2]"``.
    findings
        The report, to which violations are added.

    Returns
    -------
    bool
        False if there is no such job, or its plan breaks a rule.
    """
    # A job has all that it asks for, but for what is divided.
    most_ports = job.network.ports_per_gpu
    most_replicas = job.parallelism.dp
    fits_ports = share.ports_per_gpu == most_ports
    fits_replicas = share.replicas == most_replicas
    if problem.by == "ports":
        fits_ports = 1 <= share.ports_per_gpu <= most_ports
    elif problem.by == "servers" and job.workload.recorded is None:
        is_less = 1 <= share.replicas <= most_replicas
        fits_replicas = is_less and most_replicas % share.replicas == 0
    got = (share.ports_per_gpu, share.replicas)
    if not (fits_ports and fits_replicas):
        expected = f"a part of {(most_ports, most_replicas)} by {problem.by}"
        findings.refuse(SHARE_IS_ALLOWED, place, got, expected)
        return False

    # Some numbers of replicas do not work out, for example with experts or whole servers. The plan
    # of the others is replayed, and what is found gets the place of the share in front.
    try:
        part = give_share(job, *got)
    except InputError as exc:
        findings.refuse(SHARE_IS_ALLOWED, place, got, str(exc))
        return False
    inner = Findings()
    verify_rails(part, share.plan, inner)
    findings.include(inner, f"{place}.plan: ")
    return not inner.violations and not inner.skipped


def _count_gpus(job: RailJob) -> dict[int, int]:
    """Count the GPUs of a job on each rail: all ranks whose groups or servers have a port there.

    Parameters
    ----------
    job
        A job of a model, in which each server has one GPU on each rail, or one with a recorded
        step, whose groups say which ranks are on which rail.

    Returns
    -------
    dict
        By rail the number of GPUs; rails without one are left out.
    """
    if job.workload.recorded is None:
        n_servers = job.n_gpus // job.network.gpus_per_server
        return {rail: n_servers for rail in range(job.network.gpus_per_server)}
    ranks_of_rail: dict[int, set[int]] = {}
    for group in job.workload.recorded.groups:
        if group.rail >= 0:
            ranks_of_rail.setdefault(group.rail, set()).update(group.ranks)
    return {rail: len(ranks) for rail, ranks in ranks_of_rail.items()}


def _check_ports(problem: RailSharing, answer: RailShares, findings: Findings) -> bool:
    """Check that each job has ports of its own on the right switches, as many as it needs.

    A *rail* is a switch that joins GPUs of the same place in all servers. Several training jobs
    share the rails. On a rail, the GPUs of a job have consecutive ports. For example, a job with
    3 GPUs on a rail, 2 ports each and first port 4 has the ports 4 .. 9.

    Parameters
    ----------
    problem
        The jobs; ``radix``, the number of ports of each switch; and ``by``. If that is ``"time"``,
        jobs take turns and have the same ports, from port 0 of each switch on.
    answer
        What each job gets. The shares are known to be allowed. The fields that are read here:

        - ``first_port[job, rail]``: the first port of the job there, -1 if it has no GPU there;
        - ``beside[job]``: its share beside all others: ports of each GPU, and replicas;
        - ``alone[job]``: its share if it had all switches to itself.
    findings
        The report, to which violations are added.

    Returns
    -------
    bool
        False if the circuits of some job cannot be laid out on the switches.
    """
    all_are_there = True
    holder_of_port: dict[tuple[int, int], str] = {}
    for number, named in enumerate(problem.jobs):
        share = answer.beside[number]
        gpus_beside = _count_gpus(give_share(named.job, share.ports_per_gpu, share.replicas))
        first_ports = answer.first_port[number].tolist()
        rails_with_ports = [rail for rail, port in enumerate(first_ports) if port != IDLE]
        place = f"first_port[{number}]"
        if not findings.expect(PORTS_ON_OWN_RAILS, place, rails_with_ports, sorted(gpus_beside)):
            all_are_there = False
            continue

        # The ports of a rail one by one: a port that is taken has the name of its job.
        for rail, n_gpus in gpus_beside.items():
            first_port = first_ports[rail]
            if problem.by == "time":
                where = f"{place}[{rail}]"
                all_are_there &= findings.expect(TURNS_FROM_PORT_0, where, first_port, 0)
                continue
            ports = range(first_port, first_port + n_gpus * share.ports_per_gpu)
            if ports.stop > problem.radix:
                where = f"{place}[{rail}]"
                findings.refuse(PORTS_OF_THE_SWITCH, where, ports.stop - 1, problem.radix - 1)
                all_are_there = False
                continue
            for port in ports:
                holder = holder_of_port.setdefault((rail, port), named.name)
                if holder != named.name:
                    where = f"rail {rail}, port {port}"
                    findings.refuse(PORT_OF_ONE_JOB, where, f"{holder}, {named.name}", "one job")
                    break

        # Alone, the job has the switches to itself.
        alone = answer.alone[number]
        gpus_alone = _count_gpus(give_share(named.job, alone.ports_per_gpu, alone.replicas))
        n_ports = alone.ports_per_gpu * max(gpus_alone.values(), default=0)
        if n_ports > problem.radix:
            findings.refuse(ALONE_FITS, f"alone[{number}]", n_ports, problem.radix)
    return all_are_there


def _check_times(problem: RailSharing, answer: RailShares, findings: Findings) -> None:
    """Check how long training steps take when jobs share the network, and compute the objective.

    Either all jobs run at once on ports of their own, or they take turns with all ports. A turn
    is some steps of one job and a rest; a *round* is one turn of each job. The *stretch* of a job
    is how much slower it is: time from step to step, over the least time that a step can take. For
    example, in a round of 12 s a job with 3 steps has a step every 4 s; if a step takes 2 s at
    least, its stretch is 2. The objective is the largest stretch.

    Parameters
    ----------
    problem
        The jobs; ``by``, which is ``"time"`` if they take turns; ``round_s``, the longest round in
        seconds, which only rounds of one step each may exceed.
    answer
        What each job gets; its plans have been checked. The fields that are read here:

        - ``alone[job].plan.step_s``: the time of a step with all ports;
        - ``beside[job].plan.step_s``: the time of a step with the share of the job;
        - ``steps[job]``: the steps of a turn; 1 if jobs run at once.
    findings
        The report, to which violations are added, and the figures ``objective`` (the largest
        stretch) and, with turns, ``round_s``.
    """
    alone_s = np.array([share.plan.step_s for share in answer.alone])
    own_s = np.array([share.plan.step_s for share in answer.beside])
    for number in np.flatnonzero(own_s < alone_s).tolist():
        if not agree(own_s[number], alone_s[number]):
            place = f"beside[{number}]"
            findings.refuse(NO_FASTER_BESIDE_OTHERS, place, own_s[number], alone_s[number])

    # In turns a job does its steps one after the other, and then waits for all other jobs.
    steps = np.array(answer.steps)
    beside_s = own_s
    if problem.by == "time":
        round_s = float(steps @ own_s) + _add_up_rests(problem, answer)
        beside_s = round_s / steps
        findings.figures["round_s"] = round_s
        too_long = round_s > problem.round_s and not agree(round_s, problem.round_s)
        if too_long and (steps > 1).any():
            findings.refuse(ROUND_IS_SHORT, "steps", round_s, problem.round_s)
    else:
        findings.expect(ONE_STEP_AT_ONCE, "steps", steps.tolist(), [1] * len(steps))

    # The stretch of each job; one whose step could take no time has none to be compared with.
    stretches = []
    for number, named in enumerate(problem.jobs):
        least_s = _bound_step(problem, named.job)
        step_s = float(beside_s[number])
        if least_s > 0:
            stretches.append(step_s / least_s)
        else:
            stretches.append(1.0 if step_s == 0 else np.inf)
    findings.figures["objective"] = max(stretches)


def _bound_step(problem: RailSharing, job: RailJob) -> float:
    """Return the least time of a step with any share that a job may have, in seconds.

    It is the time with all links there at once, counted anew: with all ports, and with the
    replicas that are fastest where servers are divided.

    Parameters
    ----------
    problem
        The sharing; with ``by = "servers"`` a job may have fewer replicas, any divisor of all.
    job
        The job with all that it asks for.

    Returns
    -------
    float
        Seconds.
    """
    network = job.network
    all_replicas = job.parallelism.dp
    replicas_tried = [all_replicas]
    if problem.by == "servers" and job.workload.recorded is None:
        replicas_tried = [n for n in range(1, all_replicas + 1) if all_replicas % n == 0]
    bounds_s = []
    for replicas in replicas_tried:
        try:
            part = give_share(job, network.ports_per_gpu, replicas)
        except InputError:  # the experts or shards do not work out with so few replicas
            continue
        bounds_s.append(bound_step(part))
    return min(bounds_s)


def _add_up_rests(problem: RailSharing, answer: RailShares) -> float:
    """Return how long no job runs in a round, in seconds: between each turn and the next one.

    Jobs that share time take turns; a round is one turn of each. The next turn begins after the
    time that it takes to hand over, and after the reconfiguration delay if its first circuits are
    not there yet.

    Parameters
    ----------
    problem
        The jobs, and the time to hand over (`handover_s`).
    answer
        The plans of all jobs; their ports are known to begin at port 0 of each switch.

    Returns
    -------
    float
        Seconds, summed over the round; 0 with one job.
    """
    n_jobs = len(problem.jobs)
    if n_jobs == 1:
        return 0.0
    receiver_at_start, receiver_at_end = _lay_out_circuits(answer)

    # A circuit that the next job begins with, and that is not there, takes the delay.
    delay_s = problem.jobs[0].job.network.delay_s
    rests_s = 0.0
    for number in range(n_jobs):
        next_receiver = receiver_at_start[(number + 1) % n_jobs]
        missing = (next_receiver != IDLE) & (next_receiver != receiver_at_end[number])
        rests_s += max(problem.handover_s, delay_s if missing.any() else 0.0)
    return rests_s


def _lay_out_circuits(answer: RailShares) -> tuple[Circuits, Circuits]:
    """Return the circuits of all jobs when a step begins, and when it ends.

    Jobs that take turns have ports from port 0 of each switch on, so that the ports of their plans
    are those of the switch.

    Parameters
    ----------
    answer
        The plans of all jobs, each with timelines (the states of switches over time), and
        ``first_port[job, rail]``, which is -1 where the job has no ports.

    Returns
    -------
    start, end : int64 arrays, shape (jobs, rails, ports)
        By transmit port the receive port, -1 where idle. There are as many ports as some plan
        uses: the switch may have many more, which would only take memory.
    """
    plans = [share.plan for share in answer.beside]
    widths = [timeline.matchings.shape[1] for plan in plans for timeline in plan.rails]
    n_jobs, n_rails = answer.first_port.shape
    start = np.full((n_jobs, n_rails, max(widths, default=0)), IDLE, np.int64)
    end = start.copy()
    for job, plan in enumerate(plans):
        for timeline in plan.rails:
            n_ports = timeline.matchings.shape[1]
            for rail in timeline.rails:
                start[job, rail, :n_ports] = timeline.matchings[0]
                end[job, rail, :n_ports] = timeline.matchings[-1]
    return start, end
