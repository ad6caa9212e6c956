"""What the switches of rails hold if several training jobs share them, at once or in turns.

A rail is a switch to which one GPU of each server is connected. Jobs at once have ports of their
own on it, and their circuits stand side by side. Jobs in turns have the same ports, and the switch
changes from the circuits of one job to those of the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.io.switches.planned import PlannedSwitch
from optmatch.model import IDLE, InputError
from optmatch.problems import RailShares, RailSharing
from optmatch.problems.rail_sharing import give_share
from optmatch.problems.rails.execution.plan import ranks_of_rails
from optmatch.problems.rails.training.network import RailNetwork

MOST_ENTRIES = 2**25
"""The most states times ports of all rails together: 128 MiB of matchings. A long round with short
steps would fill the memory, as each step of a turn has its own states."""


class _JobOnRail(NamedTuple):
    """The circuits of one job on one rail during a step, by the ports of the switch."""

    first_port: int
    """The job has consecutive ports of the switch from this one on."""
    matchings: NDArray[np.int32]
    """``matchings[state, own port]``: the port of the switch that the circuit from port
    ``first_port + own port`` leads to, -1 where idle; shape (states, ports of the job)."""
    starts_s: NDArray[np.float64]
    """``starts_s[state]``: when the change to the state begins, in seconds from the beginning of
    the step. The first state is there when the step begins."""
    labels: tuple[str, ...]
    """``labels[own port]``: the rank of the GPU, as ``3``, or with several ports ``3.1``."""

    @property
    def end_port(self) -> int:
        """The first port of the switch behind those of the job."""
        return self.first_port + len(self.labels)


class _Turn(NamedTuple):
    """When one of several jobs has the rails to itself: some whole steps, one after the other."""

    start_s: float
    """When its first step begins, in seconds from the beginning of the round."""
    step_s: float
    n_steps: int
    rest_s: float
    """From the end of its last step to the first step of the next job."""

    @property
    def end_s(self) -> float:
        """When its last step ends, and circuits change to those of the next job."""
        return self.start_s + self.n_steps * self.step_s


class _RailStates(NamedTuple):
    """The circuits of a whole rail over time."""

    matchings: NDArray[np.int32]
    """``matchings[state, source] = destination``, -1 where idle; shape (states, ports)."""
    starts_s: NDArray[np.float64]
    """``starts_s[state]``: when the change to the state begins; 0 of the first."""


def switches_of_shared_rails(
    problem: RailSharing, answer: RailShares
) -> tuple[PlannedSwitch, ...]:
    """Return for each rail that several jobs share its circuits over time, to be exported.

    A rail is a switch between GPUs. A job repeats one training step, during which circuits change.
    Jobs share rails in one of two ways:

    - all run at once, on ports or servers of their own. The plan is one step of each job. All
      begin together; a job with a shorter step keeps its last circuits until the longest step is
      over;
    - by time, they take turns. The plan is one round: the steps of each turn and, after each turn,
      the change to the circuits with which the next job begins.

    In both cases the plan ends with the circuits with which it begins, so that it can be repeated.

    Parameters
    ----------
    problem
        The jobs, and what is divided among them.
    answer
        The ports, and the plan of a step, of each job beside the others.

    Returns
    -------
    tuple of PlannedSwitch
        In the order of rails, with the ports up to the last one of a job. Ports of jobs that run
        at once are labelled by job and rank (``large 3``), those of jobs in turns by the rank that
        the first of the jobs has there.

    Raises
    ------
    InputError
        If a port is of two jobs at once or beyond the switch, a job has no port on one of its
        rails, or the states times ports of all rails are more than `MOST_ENTRIES`.
    """
    # ``jobs_on_rail[rail][job]`` is the ports and circuits of a job on a rail.
    jobs_on_rail: dict[int, dict[int, _JobOnRail]] = {}
    for job in range(len(problem.jobs)):
        for rail, circuits in _lay_out_job(problem, answer, job).items():
            jobs_on_rail.setdefault(rail, {})[job] = circuits
    is_in_turns = problem.by == "time"
    turns = _list_turns(problem, answer) if is_in_turns else []
    network = problem.jobs[0].job.network

    # The size is checked before any state is made: a round may have millions of steps.
    n_entries = 0
    for rail, jobs in jobs_on_rail.items():
        if not is_in_turns:
            _refuse_shared_ports(problem, jobs, rail)
        n_ports = max(circuits.end_port for circuits in jobs.values())
        n_entries += n_ports * _count_states(jobs, turns)
    if n_entries > MOST_ENTRIES:
        advice = "; a shorter round (round_s) has fewer steps" if is_in_turns else ""
        raise InputError(
            f"the states of all rails have {n_entries} entries, states times ports; at most"
            f" {MOST_ENTRIES} are written{advice}",
            where="beside",
        )

    # The states of each rail. A state lasts until the next one begins, the last one until the end
    # of the plan.
    switches = []
    for rail, jobs in sorted(jobs_on_rail.items()):
        if is_in_turns:
            states = _states_in_turns(turns, jobs)
            plan_end_s = turns[-1].end_s + turns[-1].rest_s
        else:
            states = _states_at_once(jobs)
            plan_end_s = max(share.plan.step_s for share in answer.beside)
        last_end_s = max(plan_end_s, float(states.starts_s[-1]))
        switches.append(
            PlannedSwitch(
                name=f"rail {rail}",
                labels=_label_ports(problem, jobs),
                matchings=states.matchings,
                starts_s=states.starts_s,
                ready_s=_ready_times(states, network),
                ends_s=np.append(states.starts_s[1:], last_end_s),
            )
        )
    return tuple(switches)


def _lay_out_job(problem: RailSharing, answer: RailShares, job: int) -> dict[int, _JobOnRail]:
    """Return the circuits of a job on each of its rails, by the ports of the switches.

    The plan of a job counts its ports from 0 on each rail. ``answer.first_port[job, rail]`` is the
    port of the switch where they begin.

    Parameters
    ----------
    problem
        The jobs; ``radix`` is the number of ports of each switch.
    answer
        The shares and plans of the jobs beside each other.
    job
        The number of the job.

    Returns
    -------
    dict
        By rail its ports, its circuits in each state, and the times of its states in seconds.

    Raises
    ------
    InputError
        If the job has no port on one of its rails, or one beyond the switch.
    """
    name = problem.jobs[job].name
    share = answer.beside[job]
    step = give_share(problem.jobs[job].job, share.ports_per_gpu, share.replicas).step()
    ranks_of_rail = ranks_of_rails(step)
    circuits_of_rail = {}
    for timeline in share.plan.rails:
        for rail in timeline.rails:
            ranks = ranks_of_rail[rail].tolist()
            first_port = int(answer.first_port[job, rail])
            n_ports = len(ranks) * share.ports_per_gpu
            if first_port == IDLE or first_port + n_ports > problem.radix:
                raise InputError(
                    f"job {name} has {n_ports} ports on rail {rail} from port {first_port} on:"
                    f" ports of the switch are 0 .. {problem.radix - 1}",
                    where=f"first_port[{job}][{rail}]",
                )

            # A port of the plan becomes one of the switch; -1 stays -1.
            receivers = timeline.matchings[:, :n_ports]
            matchings = np.where(receivers == IDLE, IDLE, receivers + first_port)
            labels = [str(rank) for rank in ranks]
            if share.ports_per_gpu > 1:
                labels = [
                    f"{rank}.{port}" for rank in ranks for port in range(share.ports_per_gpu)
                ]
            circuits_of_rail[rail] = _JobOnRail(
                first_port=first_port,
                matchings=matchings.astype(np.int32),
                starts_s=timeline.starts_s,
                labels=tuple(labels),
            )
    return circuits_of_rail


def _list_turns(problem: RailSharing, answer: RailShares) -> list[_Turn]:
    """Return the turn of each job in a round, in the order of the jobs.

    Between two turns the rails and the GPUs rest, for the change of circuits or longer.

    Parameters
    ----------
    problem
        The jobs, and the time between turns.
    answer
        The plans of the jobs, and how many steps each runs in its turn.
    """
    rests_s = problem.measure_handovers(answer)
    turns = []
    start_s = 0.0
    for share, n_steps, rest_s in zip(answer.beside, answer.steps, rests_s, strict=True):
        turn = _Turn(start_s, share.plan.step_s, n_steps, rest_s)
        turns.append(turn)
        start_s = turn.end_s + rest_s
    return turns


def _refuse_shared_ports(problem: RailSharing, jobs: Mapping[int, _JobOnRail], rail: int) -> None:
    """Refuse a rail on which two jobs that run at once have the same port.

    Parameters
    ----------
    problem
        The jobs, for their names in the message.
    jobs
        The circuits of each job on the rail, by the number of the job.
    rail
        The number of the rail.

    Raises
    ------
    InputError
        Naming the port and both jobs.
    """
    in_order = sorted(jobs, key=lambda job: jobs[job].first_port)
    for job, next_job in pairwise(in_order):
        if jobs[next_job].first_port < jobs[job].end_port:
            raise InputError(
                f"rail {rail}, port {jobs[next_job].first_port}: of job {problem.jobs[job].name}"
                f" and of job {problem.jobs[next_job].name} at once",
                where=f"first_port[{next_job}][{rail}]",
            )


def _count_states(jobs: Mapping[int, _JobOnRail], turns: Sequence[_Turn]) -> int:
    """Return the most states that a rail can have, before equal ones are left out.

    Parameters
    ----------
    jobs
        The circuits of each job on the rail, by the number of the job.
    turns
        The turn of each job; none if the jobs run at once, one step each.
    """
    n_states = 1 + len(turns)
    for job, circuits in jobs.items():
        n_changes = len(circuits.starts_s) - 1
        n_states += n_changes * (turns[job].n_steps if turns else 1)
    return n_states


def _states_at_once(jobs: Mapping[int, _JobOnRail]) -> _RailStates:
    """Return the states of a rail whose jobs begin a step together, side by side.

    Parameters
    ----------
    jobs
        The circuits of each job on the rail, by the number of the job; no port is of two.

    Returns
    -------
    _RailStates
        A state for the beginning, and one for each time at which some job changes circuits.
    """
    changes_s = np.unique(np.concatenate([circuits.starts_s[1:] for circuits in jobs.values()]))
    n_ports = max(circuits.end_port for circuits in jobs.values())
    matchings = np.full((1 + len(changes_s), n_ports), IDLE, dtype=np.int32)
    for circuits in jobs.values():
        # From each time on the job has the last of its states that has begun by then. It begins
        # the step with state 0, even if it changes to state 1 at once.
        state_at_change = np.searchsorted(circuits.starts_s, changes_s, side="right") - 1
        states = np.concatenate([[0], state_at_change])
        matchings[:, circuits.first_port : circuits.end_port] = circuits.matchings[states]
    return _without_repeats(matchings, np.concatenate([[0.0], changes_s]))


def _states_in_turns(turns: Sequence[_Turn], jobs: Mapping[int, _JobOnRail]) -> _RailStates:
    """List the circuits of a rail over a round, in which each job has a turn of whole steps.

    A rail is a switch between GPUs, and a state is a set of circuits that lasts until the next
    one. A job goes through the same states in each of its steps. All times are in seconds from the
    begin of the round.

    Parameters
    ----------
    turns
        The turn of each job: `start_s`, when its first step begins; `step_s`, how long a step
        takes; `n_steps`, how many there are; `end_s`, when its last step ends.
    jobs
        The circuits of each job on the rail, by the number of the job: `matchings`, shape (states,
        ports of the job), the ports to which they lead; `starts_s`, shape (states,), from the
        begin of a step on; and `first_port` to `end_port`, the ports of the job. The rail is dark
        in the turn of a job that is not there.

    Returns
    -------
    _RailStates
        It begins with the first circuits of the first job. Those of each next job are set as soon
        as the turn before is over, and at the end those of the first job again.
    """
    n_ports = max(circuits.end_port for circuits in jobs.values())
    rows: list[NDArray[np.int32]] = []
    starts_s: list[NDArray[np.float64]] = []
    change_s = 0.0
    for job, turn in enumerate(turns):
        states = np.full((1, n_ports), IDLE, dtype=np.int32)
        changes_s = None
        if job in jobs:
            circuits = jobs[job]
            changes_s = circuits.starts_s[1:]
            states = np.full((len(circuits.starts_s), n_ports), IDLE, dtype=np.int32)
            states[:, circuits.first_port : circuits.end_port] = circuits.matchings

        # A step begins with the circuits that the one before leaves, so that only its later states
        # come anew with each step.
        rows.append(states[:1])
        starts_s.append(np.array([change_s]))
        if changes_s is not None and changes_s.size:
            step_starts_s = turn.start_s + turn.step_s * np.arange(turn.n_steps)
            rows.append(np.tile(states[1:], (turn.n_steps, 1)))
            starts_s.append(np.add.outer(step_starts_s, changes_s).reshape(-1))
        change_s = turn.end_s

    # At the end of the round the rail is as it was at the beginning.
    rows.append(rows[0])
    starts_s.append(np.array([change_s]))
    # Sums of times are rounded, which must not put a state before the one that it follows.
    ascending_s = np.maximum.accumulate(np.concatenate(starts_s))
    return _without_repeats(np.concatenate(rows), ascending_s)


def _without_repeats(matchings: NDArray[np.int32], starts_s: NDArray[np.float64]) -> _RailStates:
    """Return states without those that are equal to the one before.

    Parameters
    ----------
    matchings
        ``matchings[state, source] = destination``; shape (states, ports).
    starts_s
        When the change to each state begins; shape (states,).
    """
    is_kept = np.append(True, (matchings[1:] != matchings[:-1]).any(axis=1))
    return _RailStates(matchings[is_kept], starts_s[is_kept])


def _ready_times(states: _RailStates, network: RailNetwork) -> NDArray[np.float64]:
    """Return when the circuits of each state carry data, in seconds.

    The first state is there from the beginning. A change that adds circuits takes the delay of the
    switch. One that only removes circuits takes no time, unless the switch stops as a whole for
    each change: then the circuits that stay wait for the delay as well.

    Parameters
    ----------
    states
        The states of a rail.
    network
        How long a switch needs for a change, and whether it stops as a whole.

    Returns
    -------
    float64 array, shape (states,)
    """
    later = states.matchings[1:]
    takes_time = ((later != IDLE) & (later != states.matchings[:-1])).any(axis=1)
    if network.switching == "all-stop":
        takes_time[:] = True
    delays_s: NDArray[np.float64] = np.append(0.0, np.where(takes_time, network.delay_s, 0.0))
    return states.starts_s + delays_s


def _label_ports(problem: RailSharing, jobs: Mapping[int, _JobOnRail]) -> tuple[str, ...]:
    """Return what is at each port of a rail.

    Parameters
    ----------
    problem
        The jobs. Those that run at once are on GPUs of their own, and the label has the name of
        the job; in turns the GPUs are those of all jobs.
    jobs
        The circuits of each job on the rail, by the number of the job.

    Returns
    -------
    tuple of str
        By port, such as ``large 3`` for rank 3 of the job ``large``, or ``3`` in turns, by the
        ranks of the first job that has the port; empty for a port of no job.
    """
    labels = [""] * max(circuits.end_port for circuits in jobs.values())
    for job, circuits in jobs.items():
        prefix = "" if problem.by == "time" else f"{problem.jobs[job].name} "
        for port, label in enumerate(circuits.labels, circuits.first_port):
            if not labels[port]:
                labels[port] = prefix + label
    return tuple(labels)
