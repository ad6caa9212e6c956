"""Whether an answer fits its problem: shapes, and ranges of all numbers that index something.

The verifier replays answers and needs none of this. Drawings, tables and exports use numbers of an
answer as indices of arrays of the problem, and rely on these checks. They do not say whether the
answer is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from optmatch.model import InputError, Problem, Schedule, Solution
from optmatch.problems.collectives.plan import KINDS, SEND_COLUMNS, CollectivePlan
from optmatch.problems.collectives.problem import Collective
from optmatch.problems.demands.problem import Demand, PlaneSchedules
from optmatch.problems.placements import HostPlacement, HostPorts
from optmatch.problems.rails.execution.plan import MOST_PORTS, RailPlan, ranks_of_rails
from optmatch.problems.rails.problem import RailJob
from optmatch.problems.reroutes.problem import Reroute
from optmatch.problems.reroutes.transition import DROP, RAISE, SET, Transition
from optmatch.problems.sharing.problem import Assignment, PortSharing
from optmatch.problems.slices.problem import Allocation, SliceAllocation
from optmatch.problems.tenancies import Tenancy, TenancyPlan

_LONGEST_S = 1e100


def check_answer_fits(problem: Problem, answer: object) -> None:
    """Refuse an answer that does not fit its problem.

    Parameters
    ----------
    problem
        The question.
    answer
        A schedule, or an object of ``problem.answer_class``. Answers of other classes, those of
        plugins for example, are not checked.

    Raises
    ------
    InputError
        Naming the field, its value or shape, and what the problem allows.

    Examples
    --------
    >>> import optmatch as om
    >>> schedule = om.Schedule(matchings=[[1, 0, 2]], durations_s=[1.0])
    >>> check_answer_fits(om.AllToAll(om.IdealSwitch(2)), schedule)
    Traceback (most recent call last):
        ...
    optmatch.model.errors.InputError: matchings has rows of 3 entries, the fabric needs 2
    """
    check = _CHECKS.get(type(answer))
    if check is not None:
        check(problem, answer)


def check_solution_fits(solution: Solution) -> None:
    """Refuse a solution whose schedule or answer does not fit its problem; errors as above."""
    if solution.schedule is not None:
        check_answer_fits(solution.problem, solution.schedule)
    if solution.answer is not None:
        check_answer_fits(solution.problem, solution.answer)


def _check_schedule(problem: Problem, schedule: Schedule, where: str = "") -> None:
    """Refuse a schedule whose arrays belong to another switch, or whose time is too long.

    Parameters
    ----------
    problem
        The question, with the switch.
    schedule
        The schedule; its matchings and cell states need a column for each port and each cell.
    where
        The text before the names of fields in messages, such as ``schedules[0].``.

    Raises
    ------
    InputError
        If the problem has no switch, or naming the field.
    """
    if problem.fabric is None:
        raise InputError(f"{problem.kind} has no switch, and no schedule")
    columns = {"matchings": problem.fabric.n_ports, "cell_states": problem.fabric.n_cells}
    for name, expected in columns.items():
        array = getattr(schedule, name)
        if array is not None and array.shape[1] != expected:
            raise InputError(
                f"{name} has rows of {array.shape[1]} entries, the fabric needs {expected}",
                where=f"{where}{name}",
            )
    _check_time(f"{where}durations_s", schedule.makespan_s)


def _check_plane_schedules(problem: Demand, answer: PlaneSchedules) -> None:
    """Refuse schedules that are not one for each plane, or that belong to another switch."""
    _check_length("schedules", answer.schedules, problem.planes, "planes")
    for plane, schedule in enumerate(answer.schedules):
        _check_schedule(problem, schedule, f"schedules[{plane}].")


def _check_assignment(problem: PortSharing, answer: Assignment) -> None:
    """Refuse an assignment without a job, by its number, for each resource."""
    _check_length("job_of", answer.job_of, problem.resources.n_resources, "resources")
    _check_below("job_of", answer.job_of, problem.jobs.n_jobs, "job")


def _check_transition(problem: Reroute, answer: Transition) -> None:
    """Refuse a repair of a failure that names units, circuits, ports or fibres that do not exist.

    A repair hands lost units over to spares, and gives circuits new ports and routes, step by
    step. All of this is written as numbers; whether the repair is a good one is not checked here.

    Parameters
    ----------
    problem
        The running state and its failure. Its units, which spares replace, are the chips of a rack
        or the ports of a switch.
    answer
        The repair. All of its fields are checked:

        - ``moves``: rows of a lost unit and the spare that takes over;
        - ``changed``: the circuits that change; ``circuits`` and ``routes``: the two ports, and
          the fibres or terminals of cells, that each of them gets;
        - ``steps``: rows of a kind, a cell or circuit, and a state. `SET` puts a cell into a
          state, `DROP` switches a circuit off, and `RAISE` switches one on by its new route.

    Raises
    ------
    InputError
        Naming the field and the first wrong number.
    """
    n_circuits = len(problem.circuits)
    _check_below("moves", answer.moves, problem.n_units, problem.units.unit_name)
    _check_below("changed", answer.changed, n_circuits, "circuit")
    _check_below("circuits", answer.circuits, problem.fabric.n_ports, "port")

    # Light in a rack with ideal interposers passes fibres; elsewhere it enters cells by terminals.
    if problem.fabric.graph is None:
        n_parts = problem.units.n_fibres
        part = "fibre"
    else:
        n_parts = 4 * problem.fabric.n_cells
        part = "terminal"
    for k, route in enumerate(answer.routes):
        _check_below(f"routes[{k}]", route, n_parts, part)

    # Each row of steps is a kind, a cell (`SET`) or a circuit (`DROP`, `RAISE`), and a state. Only
    # circuits that change have a new route on which they can be raised.
    kind_of_step = answer.steps[:, 0]
    part_of_step = answer.steps[:, 1]
    cells = part_of_step[kind_of_step == SET]
    dropped = part_of_step[kind_of_step == DROP]
    raised = part_of_step[kind_of_step == RAISE]
    _check_below("steps", cells, problem.fabric.n_cells, "cell", at_least=0)
    _check_below("steps", dropped, n_circuits, "circuit", at_least=0)
    unchanged = np.setdiff1d(raised, answer.changed)
    if len(unchanged):
        raise InputError(
            f"steps: circuit {unchanged[0]} is raised, and not changed", where="steps"
        )


def _check_allocation(problem: SliceAllocation, answer: Allocation) -> None:
    """Refuse an allocation of a slice without servers, or with numbers of no server or fibre.

    Parameters
    ----------
    problem
        The slice that is wanted, and the racks.
    answer
        Its servers, circuits as pairs of ports, fibres as pairs of a circuit and a fibre, and
        routes as servers and switches between racks, which are numbered after the servers.
    """
    fabric = problem.fabric
    if not len(answer.servers):
        raise InputError("servers: none is given, a slice has one at least", where="servers")
    _check_below("servers", answer.servers, fabric.n_servers, "server")
    _check_below("circuits", answer.circuits, fabric.n_ports, "port")
    _check_below("fibres", answer.fibres[:, 0], len(answer.circuits), "circuit")
    _check_below("fibres", answer.fibres[:, 1], fabric.n_fibres, "fibre")
    for k, route in enumerate(answer.routes):
        n_nodes = fabric.n_servers + fabric.n_rack_switches
        _check_below(f"routes[{k}]", route, n_nodes, "server or switch")


def _check_collective_plan(problem: Collective, answer: CollectivePlan, where: str = "") -> None:
    """Refuse a plan of a collective whose arrays belong to other ranks, epochs or chunks.

    An *epoch* is a number of rounds in a row with the same circuits. A *lane* is one port of every
    rank; lanes are counted over all planes (switches).

    Parameters
    ----------
    problem
        The collective, with the numbers of its ranks, lanes and planes.
    answer
        The plan. The fields that are read here:

        - ``circuits[epoch, lane, rank]``: the rank that a circuit leads to, -1 for none;
        - ``epoch_of_round[round]``: the epoch of each round;
        - ``sends``: rows of round, source, destination, chunk and kind;
        - ``links``: rows of a send and two ranks, for sends that are forwarded;
        - ``shares_bytes[round, plane]``: what each plane carries; it may have no rows.
    where
        The text before the names of fields in messages, such as ``plans[0].``.

    Raises
    ------
    InputError
        Naming the field that does not fit.
    """
    n_ranks = problem.n_ranks
    n_epochs = len(answer.circuits)
    expected = (n_epochs, problem.lanes, n_ranks)
    if n_epochs and answer.circuits.shape != expected:
        raise InputError(
            f"circuits has shape {answer.circuits.shape}, the problem needs {expected}",
            where=f"{where}circuits",
        )
    _check_below(f"{where}circuits", answer.circuits, n_ranks, "rank")
    _check_below(f"{where}epoch_of_round", answer.epoch_of_round, n_epochs, "epoch")

    # Each column of the sends is an index; these are the numbers that it has to stay below.
    limits = (answer.n_rounds, n_ranks, n_ranks, len(answer.chunk_bytes), len(KINDS))
    for column, (noun, count) in enumerate(zip(SEND_COLUMNS, limits, strict=True)):
        _check_below(f"{where}sends", answer.sends[:, column], count, noun)
    _check_below(f"{where}links", answer.links[:, 0], len(answer.sends), "send")
    _check_below(f"{where}links", answer.links[:, 1:], n_ranks, "rank")
    if len(answer.shares_bytes) and answer.shares_bytes.shape[1] != problem.planes:
        raise InputError(
            f"shares_bytes has rows of {answer.shares_bytes.shape[1]} entries, the problem has"
            f" {problem.planes} planes",
            where=f"{where}shares_bytes",
        )


def _check_host_ports(problem: HostPlacement, answer: HostPorts) -> None:
    """Refuse a placement without a port of the switch for each host."""
    _check_length("port_of_host", answer.port_of_host, problem.n_hosts, "hosts")
    _check_below("port_of_host", answer.port_of_host, problem.fabric.n_ports, "port")


def _check_tenancy_plan(problem: Tenancy, answer: TenancyPlan) -> None:
    """Refuse ports and plans of jobs that do not fit the jobs of a switch.

    Several jobs, the tenants, share one switch. Each of them has ports of its own and asks one
    question on them: all-to-all, a demand, or a collective. The answer to a collective is a plan.

    Parameters
    ----------
    problem
        The switch and its jobs, ``tenants[job]``.
    answer
        ``ports[job]``: the ports of the switch that a job has, one for each of its ranks in order.
        ``plans[job]``: the plan of a collective; None for jobs with another question.

    Raises
    ------
    InputError
        If a job has another number of ports than it asks for, a port that the switch does not
        have, or one twice; or if a plan belongs to no collective, or does not fit its collective.
    """
    _check_length("ports", answer.ports, len(problem.tenants), "jobs")
    _check_length("plans", answer.plans, len(problem.tenants), "jobs")
    for job, tenant in enumerate(problem.tenants):
        ports = answer.ports[job]
        _check_length(f"ports[{job}]", ports, tenant.n_ports, "ports of the job")
        _check_below(f"ports[{job}]", ports, problem.fabric.n_ports, "port")
        if len(set(ports)) < len(ports):
            raise InputError(f"ports[{job}]: a port is there twice", where=f"ports[{job}]")

        # A plan is checked against the question of its job alone, as a problem on these ports.
        plan = answer.plans[job]
        if plan is not None:
            question = problem.question(tenant, ports)
            if not isinstance(question, Collective):
                raise InputError(
                    f"plans[{job}]: a plan of a collective, of a job that asks for"
                    f" {tenant.question}",
                    where=f"plans[{job}]",
                )
            _check_collective_plan(question, plan, f"plans[{job}].")


def _check_rail_plan(problem: RailJob, answer: RailPlan) -> None:
    """Refuse a plan of a training step whose arrays belong to another job or other rails.

    A *rail* is the switch that joins the GPUs of the same place in all servers. Sets of ports are
    numbers: bit p is 1 if port p is in the set. For example, 5 means the ports 0 and 2.

    Parameters
    ----------
    problem
        The training job, and the ports that each GPU has.
    answer
        The plan. The fields that are read here:

        - ``start_s``, ``end_s``: start and end of each operation, and ``step_s``, the length of
          the step, in seconds;
        - ``ports``: the set of ports that each operation sends over;
        - ``relays``: rows of an operation, a rank that forwards its data, and a set of ports;
        - ``pooled``: whether data change rail inside servers; sets then have the ports of all
          rails of a server;
        - ``rails``: timelines. Each has the rails that it is for, and
          ``matchings[state, transmit port]``.

    Raises
    ------
    InputError
        Naming the field that does not fit.
    """
    step = problem.step()
    n_ports = problem.network.ports_per_gpu
    n_shares = n_ports
    if answer.pooled:  # each GPU has a share of the ports of all rails of its server
        n_shares *= problem.network.gpus_per_server
        if n_shares > MOST_PORTS:
            raise InputError(
                f"{n_shares} ports of a server, {MOST_PORTS} fit into a set", where="pooled"
            )

    # Times of operations, sets of ports (numbers below 2**ports) and relays.
    _check_length("start_s", answer.start_s, step.n_operations, "operations")
    _check_time("start_s", float(np.abs(answer.start_s).max(initial=0.0)))
    _check_time("end_s", float(np.abs(answer.end_s).max(initial=0.0)))
    _check_time("step_s", answer.step_s)
    _check_below("ports", answer.ports, 1 << n_shares, "set of ports", at_least=0)
    _check_below("relays", answer.relays[:, 1], step.n_ranks, "rank", at_least=0)
    _check_below("relays", answer.relays[:, 2], 1 << n_shares, "set of ports", at_least=0)

    # Each rail of the job stands in one timeline, which has a column for each port of its switch:
    # an ideal one has as many ports as the GPUs of the rail, a fabric may have more of them.
    ranks_of_rail = ranks_of_rails(step)
    planned = sorted(rail for timeline in answer.rails for rail in timeline.rails)
    if planned != list(ranks_of_rail):
        raise InputError(
            f"rails has timelines of rails {_shorten(planned)}, the job has"
            f" {_shorten(list(ranks_of_rail))}",
            where="rails",
        )
    for k, timeline in enumerate(answer.rails):
        _check_time(f"rails[{k}].asked_s", float(np.abs(timeline.asked_s).max()))
        _check_time(f"rails[{k}].starts_s", float(np.abs(timeline.starts_s).max()))
        for rail in timeline.rails:
            expected = len(ranks_of_rail[rail]) * n_ports
            if problem.fabric is not None:
                expected = problem.fabric.n_ports
            if timeline.matchings.shape[1] != expected:
                raise InputError(
                    f"rails[{k}].matchings has rows of {timeline.matchings.shape[1]} entries, rail"
                    f" {rail} has {expected} ports",
                    where=f"rails[{k}]",
                )


def _check_time(name: str, end_s: float) -> None:
    """Refuse times of which sums, or nanoseconds, exceed what a float holds."""
    if not end_s <= _LONGEST_S:
        raise InputError(f"{name}: {end_s:g} s, at most {_LONGEST_S:g} s are expected", where=name)


def _check_length(name: str, entries: Sequence[Any] | Any, expected: int, nouns: str) -> None:
    """Refuse a field that has not one entry for each thing.

    Parameters
    ----------
    name
        The field, for messages.
    entries
        Its entries.
    expected
        How many things there are.
    nouns
        The name of these things.

    Raises
    ------
    InputError
        Naming both numbers.
    """
    if len(entries) != expected:
        raise InputError(
            f"{name} has {len(entries)} entries, the problem has {expected} {nouns}", where=name
        )


def _check_below(
    name: str, numbers: ArrayLike, count: int, what: str, *, at_least: int | None = None
) -> None:
    """Refuse numbers that are too large to index something, or too small.

    Parameters
    ----------
    name
        The field, for messages.
    numbers
        Whole numbers of any shape, perhaps none.
    count
        Each has to be less.
    what
        The kind of thing that a number stands for, for messages.
    at_least
        Each has to be this or more; None where lower ones are allowed, such as -1 for none.

    Raises
    ------
    InputError
        Naming the field, and its largest or smallest number.
    """
    array = np.asarray(numbers)
    if not array.size:
        return
    largest = int(array.max())
    smallest = int(array.min())
    if largest >= count:
        raise InputError(f"{name}: {what} {largest} given, less than {count} expected", where=name)
    if at_least is not None and smallest < at_least:
        raise InputError(
            f"{name}: {what} {smallest} given, {at_least} or more expected", where=name
        )


def _shorten(numbers: Sequence[int]) -> str:
    """Write the first ten numbers, as a part of a message; ``none`` if there are none."""
    text = ", ".join(map(str, numbers[:10]))
    return f"{text}, ..." if len(numbers) > 10 else text or "none"


_CHECKS: dict[type, Callable[[Any, Any], None]] = {
    Schedule: _check_schedule,
    Assignment: _check_assignment,
    Transition: _check_transition,
    Allocation: _check_allocation,
    CollectivePlan: _check_collective_plan,
    HostPorts: _check_host_ports,
    TenancyPlan: _check_tenancy_plan,
    PlaneSchedules: _check_plane_schedules,
    RailPlan: _check_rail_plan,
}
"""The check of each class of answers."""
