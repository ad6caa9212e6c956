"""Method `negotiated` for tenancies: jobs side by side on neighbouring ports.

Each job's question is split into rows of its own. The slots in which jobs do their rows are free,
and the pairs of a row can be exchanged with those of another one: a local search takes what lets
all circuits of a slot be routed at once, on few cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED, Fabric
from optmatch.model import IDLE, Limits, OnEvent, Schedule, Solution, Tick, check_time
from optmatch.problems import AllToAll, Tenancy, TenancyPlan, Tenant
from optmatch.solvers import frame
from optmatch.solvers.all_to_all.factors import exchange
from optmatch.solvers.all_to_all.planner import FAILED, SlotPlanner, replace_slots
from optmatch.solvers.params import TenancyParams
from optmatch.solvers.routing.router import CellRouter
from optmatch.solvers.tenancies.rows import JobRows, find_chain, plan_job

MOST = 3
"""Choices that are tried for the same jobs that stay."""

_SHUFFLED_ORDERS = 4
"""Random orders in which jobs are laid along the ports, beside the given one and by size."""

_MOVES_WITHOUT_GAIN = 12
"""Exchanges for each slot that bring nothing: once all has its routes, they save cells alone."""

_MOVES_BETWEEN_EVENTS = 64

Ports = tuple[tuple[int, ...], ...]
"""``ports[job]``, in the order of the job."""

Answer = tuple[TenancyPlan, Schedule]


def list_choices(
    problem: Tenancy, rng: np.random.Generator, start: Solution | None = None
) -> Iterator[Ports]:
    """List good choices of the ports of all jobs, the ones that move few jobs first.

    A job that runs already holds ports, and moves if it gets others. In the first choices no such
    job moves, then one of them, then all. Before all of these come choices in which jobs have the
    ports of a former solution.

    Jobs that move, or are new, lie one after the other along the free ports, in the order of the
    terminals on the boundary. Of all places to start, and of some orders of jobs, those come first
    in which the shortest routes within jobs are shortest.

    Parameters
    ----------
    problem
        The jobs and the fabric that they share.
    rng
        Draws some of the orders.
    start
        A former solution, perhaps of another problem with jobs of the same names; or None.

    Yields
    ------
    tuple of tuple of int
        ``ports[job]``: the ports of a job, in the order of its ranks.
    """
    if start is not None and start.answer is not None:
        yield from _lay_jobs(problem, _former_ports(problem, start), rng)[:1]

    tenants = problem.tenants
    holders = [job for job, tenant in enumerate(tenants) if tenant.held is not None]
    moving_sets: list[list[int]] = [[]]
    if holders:
        moving_sets += [[job] for job in holders]
    if len(holders) > 1:
        moving_sets.append(holders)
    for moving in moving_sets:
        staying = {job: tenants[job].held or () for job in holders if job not in moving}
        yield from _lay_jobs(problem, staying, rng)


def _former_ports(problem: Tenancy, start: Solution) -> dict[int, tuple[int, ...]]:
    """Return by job the ports that it had in a former solution, where it can have them again.

    Jobs are found by their names. A job of another size, or one whose ports are no longer live,
    is left out.

    Parameters
    ----------
    problem
        The jobs, and the fabric with the ports that are live now.
    start
        The former solution, whose answer is a `TenancyPlan`.

    Returns
    -------
    dict
        ``ports[job]``, in the order of the ranks of the job.
    """
    former_problem: Any = start.problem
    former_plan: Any = start.answer
    names = [tenant.name for tenant in former_problem.tenants]
    ports_of_name = dict(zip(names, former_plan.ports, strict=True))
    live_ports = set(problem.fabric.live_ports.tolist())
    staying = {}
    for job, tenant in enumerate(problem.tenants):
        ports = ports_of_name.get(tenant.name)
        if ports is not None and len(ports) == tenant.n_ports and live_ports.issuperset(ports):
            staying[job] = ports
    return staying


def _lay_jobs(
    problem: Tenancy, staying: dict[int, tuple[int, ...]], rng: np.random.Generator
) -> list[Ports]:
    """List good choices of ports for several jobs that share a switch; some jobs keep theirs.

    The ports of one job should lie near each other, since circuits between them then pass few
    cells. The free ports are put into a row, along the boundary of the mesh. The jobs that do not
    stay take ports from this row one after the other, each as many as it needs. All places to
    begin are tried, and some orders of the jobs.

    Parameters
    ----------
    problem
        The jobs and the fabric that they share.
    staying
        ``staying[job]``: the ports of those jobs that keep theirs, in the order of their ranks.
    rng
        Shuffles the other jobs.

    Returns
    -------
    list of tuple of tuple of int
        At most `MOST` choices, the best first: those with the fewest cells on the shortest routes
        between ports of the same job. ``choice[job]`` are the ports of a job, in the order of its
        ranks.
    """
    # ``cells[source, destination]``: the cells on a shortest route between two ports, infinite
    # where there is none.
    tenants = problem.tenants
    cells = problem.fabric.route_cells().astype(np.float64)
    cells[cells == UNREACHED] = np.inf

    # The row of ports that nobody keeps.
    taken = {port for ports in staying.values() for port in ports}
    boundary = _ports_along_boundary(problem.fabric)
    free = np.array([port for port in boundary if port not in taken], dtype=np.int64)

    # The orders in which the other jobs are laid: as given, by size, and some at random.
    moving = [job for job in range(len(tenants)) if job not in staying]
    by_size = sorted(moving, key=lambda job: -tenants[job].n_ports)
    orders = [moving, by_size]
    orders += [rng.permutation(moving).tolist() for _ in range(_SHUFFLED_ORDERS)]
    n_starts = len(free)
    if not moving:
        orders = [[]]
        n_starts = 1
    if problem.fabric.graph is None:
        n_starts = 1  # no port is nearer than another

    # From each free port on, jobs take as many ports as they need, one job after the other. A
    # choice is as good as the shortest routes between the ports of each job are short.
    cells_of_choice: dict[Ports, float] = {}
    for order in orders:
        ends = np.cumsum([0, *(tenants[job].n_ports for job in order)])
        for first in range(n_starts):
            check_time()
            turned = np.roll(free, -first)
            chosen = dict(staying)
            for place, job in enumerate(order):
                offered = turned[ends[place] : ends[place + 1]].tolist()
                chosen[job] = _stay_where_possible(tenants[job], offered)
            choice = tuple(chosen[job] for job in range(len(tenants)))
            inside = [float(cells[np.ix_(ports, ports)].sum()) for ports in choice]
            cells_of_choice[choice] = sum(inside)
    return sorted(cells_of_choice, key=lambda choice: cells_of_choice[choice])[:MOST]


def _stay_where_possible(tenant: Tenant, offered: list[int]) -> tuple[int, ...]:
    """Return the ports of a job's ranks: those that are offered, each held one where it is."""
    held_ports = tenant.held or (-1,) * len(offered)
    new_ports = iter([port for port in offered if port not in held_ports])
    return tuple(port if port in offered else next(new_ports) for port in held_ports)


def _ports_along_boundary(fabric: Fabric) -> NDArray[np.int64]:
    """List the live ports in the order of their terminals on the boundary."""
    live = fabric.live_ports
    if fabric.graph is None:
        return live
    place_of_terminal = {
        terminal: place for place, terminal in enumerate(fabric.graph.perimeter.tolist())
    }
    terminals = fabric.source_terminals[live].tolist()
    places = [place_of_terminal.get(terminal, 0) for terminal in terminals]
    return live[np.argsort(places, kind="stable")]


def plan_tenancy(
    problem: Tenancy,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
    params: TenancyParams | None = None,
) -> Solution:
    """Solve a tenancy: ports for each job, and slots in which the jobs run side by side.

    All choices of ports (`list_choices`) are tried with more and more slots. In each try, the rows
    of jobs, which say who meets whom, are spread over the slots and routed; a local search
    exchanges rows where circuits have no routes.

    Without a limit it takes a second or two of processor time for 32 ports.

    Parameters
    ----------
    problem
        The jobs and the fabric that they share.
    limits
        Limits of time, of the gap and of iterations; an iteration is one choice of ports and
        slots.
    rng
        Draws orders of jobs, rows and exchanges.
    on_event
        Receives progress, new best answers and bounds.
    start
        A former solution: jobs keep its ports in the first choices.
    params
        The most exchanges, for each slot and in all; None for the defaults.

    Returns
    -------
    Solution
        Its answer is a `TenancyPlan`, beside the schedule. It is OPTIMAL where nobody moves and
        there are no more slots than the worst job needs.
    """
    clock = limits.start()
    search = _SlotSearch(problem, limits, rng, on_event, params or TenancyParams())
    bound = problem.lower_bound()
    answers = search.answers(start)
    best, limit, _ = frame.take_best(answers, bound, clock, on_event, "ports and slots")
    if best is None:
        stats = {"slots_lower_bound": problem.min_slots}
        return frame.conclude(problem, "negotiated", None, bound, limit, stats=stats)
    plan, schedule = best
    cost_s = search.cost_s(plan.ports, schedule)
    stats = {"slots": schedule.n_slots, "slots_lower_bound": problem.min_slots}
    parts: dict[str, Any] = {"schedule": schedule, "answer": plan, "stats": stats}
    return frame.conclude(problem, "negotiated", cost_s, bound, limit, **parts)


class _SlotSearch:
    """A search for ports and slots, with the best cost until now.

    A *lane* has the rows of one job, ``lane[slot, vertex]``: the partner of each vertex in each
    slot, `IDLE` where it has none.
    """

    def __init__(
        self,
        problem: Tenancy,
        limits: Limits,
        rng: np.random.Generator,
        on_event: OnEvent,
        params: TenancyParams,
    ) -> None:
        """Prepare a search for the ports and time slots of several jobs on one switch.

        Parameters
        ----------
        problem
            The jobs, and the fabric that they share.
        limits
            When to stop; the clock starts now.
        rng
            Draws orders and moves.
        on_event
            Called with ticks of the search.
        params
            The most moves, for each slot and in all.
        """
        self.problem = problem
        self.rng = rng
        self.on_event = on_event
        self.params = params
        self.clock = limits.start()
        self.router = None if problem.fabric.graph is None else CellRouter(problem.fabric)
        self.best_cost_s = np.inf

    def cost_s(self, ports: Ports, schedule: Schedule) -> float:
        """Return the objective of an answer: seconds of all slots and of circuits that change.

        `ports` are those of each job.
        """
        n_changed = self.problem.changed_circuits(ports, schedule.matchings)
        return schedule.makespan_s + self.problem.delay_s * n_changed

    def answers(self, start: Solution | None) -> Iterator[tuple[float, Answer] | None]:
        """Try to run several jobs side by side on one switch, in as few time slots as possible.

        A job needs some rows: one row says which of its ports are partners in one slot. First as
        few slots are tried as there may be, then one more, and so on. With each number of slots
        all good choices of the ports of jobs are tried. It ends when more slots cannot be better
        than the best answer so far, or would be more than all jobs need one after the other.

        Parameters
        ----------
        start
            A former solution, whose ports are tried first; None if there is none.

        Yields
        ------
        (float, (TenancyPlan, Schedule)) or None
            The cost in seconds and the answer; None for a try that failed.
        """
        problem = self.problem
        choices = list(list_choices(problem, self.rng, start))
        rows_of_job: list[JobRows | None] = [None] * len(problem.tenants)
        most_slots: int | None = None
        for n_slots in count(problem.min_slots):
            # This many slots would take as long as the best answer, or longer than all jobs one
            # after the other.
            if n_slots * (problem.slot_s + problem.delay_s) >= self.best_cost_s:
                return
            if most_slots is not None and n_slots > most_slots:
                return

            # Rows for so many slots: drawn anew each time, but for those of collectives, which
            # have an order and are made once. A job without rows needs more slots.
            for job, tenant in enumerate(problem.tenants):
                rows = rows_of_job[job]
                if rows is None or not rows.in_order:  # those of collectives stay as they are
                    rows_of_job[job] = plan_job(problem, tenant, n_slots, self.rng)
            works = [
                work for work in rows_of_job if work is not None and len(work.rows) <= n_slots
            ]
            if len(works) < len(rows_of_job):
                continue
            if not most_slots:
                most_slots = sum(len(work.rows) for work in works)  # one job after the other
            for ports in choices:
                yield self._try_ports(ports, works, n_slots)

    def _try_ports(
        self, ports: Ports, works: list[JobRows], n_slots: int
    ) -> tuple[float, Answer] | None:
        """Try to run several jobs side by side, on given ports and in a given number of slots.

        A row of a job says which of its ports are partners in one slot. Rows are spread over the
        slots at random; on a mesh, the circuits of each slot are then routed through its cells.

        Parameters
        ----------
        ports
            The ports of each job, in the order of its ranks.
        works
            The rows of each job, and whether they have to stay in their order.
        n_slots
            The number of slots, no fewer than the rows of any job.

        Returns
        -------
        (float, (TenancyPlan, Schedule)) or None
            The cost in seconds, and the answer; None if some circuit has no route.
        """
        lanes = [_spread_rows(work, n_slots, self.rng) for work in works]
        states = None
        if self.router is not None:
            states = self._route(self.router, ports, works, lanes)
            if states is None:
                return None
        schedule = Schedule(
            matchings=self._unite(ports, lanes),
            durations_s=np.full(n_slots, self.problem.slot_s),
            delay_s=self.problem.delay_s,
            cell_states=states,
        )
        plan = TenancyPlan(ports=ports, plans=tuple(work.plan for work in works))
        cost_s = self.cost_s(ports, schedule)
        self.best_cost_s = min(self.best_cost_s, cost_s)
        return cost_s, (plan, schedule)

    def _unite(self, ports: Ports, lanes: list[NDArray[np.int64]]) -> NDArray[np.int32]:
        """Put the rows of all jobs together into matchings of the switch.

        Parameters
        ----------
        ports
            The ports of each job, in the order of its ranks.
        lanes
            ``lanes[job][slot, vertex]``: the partner of a vertex, -1 where idle. Vertices are the
            ports of the job, counted from 0; of ports with two directions first all inputs, then
            all outputs.

        Returns
        -------
        int32 array, shape (slots, ports)
            ``matchings[slot, source] = destination``, -1 where idle.
        """
        n_slots = len(lanes[0]) if lanes else 0
        matchings = np.full((n_slots, self.problem.fabric.n_ports), IDLE, dtype=np.int32)
        for ports_of_job, lane in zip(ports, lanes, strict=True):
            # The first vertices are inputs, or ports of both directions; those of outputs, which
            # follow, have the same numbers of ports.
            n_ports = len(ports_of_job)
            numbers = np.array(ports_of_job)
            partner = lane[:, :n_ports]
            matchings[:, numbers] = np.where(partner == IDLE, IDLE, numbers[partner % n_ports])
        return matchings

    def _route(
        self,
        router: CellRouter,
        ports: Ports,
        works: list[JobRows],
        lanes: list[NDArray[np.int64]],
    ) -> NDArray[np.int8] | None:
        """Find cell states for all slots of several jobs that share one mesh of cells.

        In each slot each port has at most one partner, and circuits are routed through cells. A
        row says which ranks of a job are partners in one slot. A slot has excess if some of its
        circuits have no route, or take more cells than the shortest routes do.

        All slots are routed once. Then follows a local search: a move exchanges rows of one job
        between a slot with excess and a few others, and stays if the excess of all slots together
        does not grow.

        Parameters
        ----------
        router
            The router of the fabric; its workspace is overwritten.
        ports
            The ports of each job, in the order of its ranks.
        works
            The rows of each job, and whether they have to stay in their order.
        lanes
            ``lanes[job][slot, vertex]``: the partner of a vertex, -1 where idle. Changed by the
            moves that stay.

        Returns
        -------
        int8 array, shape (slots, cells), or None
            The states: 0 bar, 1 cross, -1 free. None if a circuit has no route in the end.
        """
        # Without slots or circuits all cells are free.
        n_slots = len(lanes[0]) if lanes else 0
        problem = AllToAll(self.problem.fabric)
        planner = SlotPlanner(problem, router, self.clock, self.rng, self.on_event)
        if not n_slots or not any(len(work.rows) for work in works):
            return np.full((n_slots, self.problem.fabric.n_cells), -1, dtype=np.int8)

        # The circuits of all jobs in a slot are routed together.
        factors = [planner.factor(row) for row in self._unite(ports, lanes)]
        if planner.route_all(np.stack(factors)) is not None:
            return None

        # `job_of_port` has each job as often as it has ports, for a draw by size. An excess of at
        # least FAILED says that some circuit has no route; below that it counts extra cells.
        n_moves = 0
        if n_slots > 1:
            n_moves = min(self.params.moves_per_slot * n_slots, self.params.most_moves)
        job_of_port = np.repeat(np.arange(len(ports)), [len(numbers) for numbers in ports])
        least_excess = planner.excess
        last_gain = 0
        for move in range(n_moves):
            # The search ends once all circuits have routes and nothing was gained for long.
            excessive = [slot for slot, routed in enumerate(planner.plan) if routed.excess]
            if planner.excess < least_excess:
                least_excess = planner.excess
                last_gain = move
            has_all_routes = least_excess < FAILED
            gains_nothing = move - last_gain > _MOVES_WITHOUT_GAIN * n_slots
            if (has_all_routes and gains_nothing) or not excessive or self.clock.remaining_s <= 0:
                break
            if move % _MOVES_BETWEEN_EVENTS == 0:
                self.on_event(Tick("exchange", move, n_moves))

            # A job, the larger the more often, changes its rows in a slot with excess and others.
            job = int(self.rng.choice(job_of_port))
            slot = excessive[self.rng.integers(len(excessive))]
            change = self._choose_change(works[job], lanes[job], slot)
            if change is not None:
                self._try_change(planner, ports, lanes, job, change)
        if planner.excess >= FAILED:
            return None
        return np.stack([planner.states(routed) for routed in planner.plan])

    def _try_change(
        self,
        planner: SlotPlanner,
        ports: Ports,
        lanes: list[NDArray[np.int64]],
        job: int,
        change: RowChange,
    ) -> None:
        """Give a job new rows in some slots, and take them back where the routes become worse.

        Parameters
        ----------
        planner
            Has the routes of all slots, which are replaced if the change stays.
        ports
            The ports of each job.
        lanes
            ``lanes[job][slot, vertex]``: the partner of a vertex, -1 where idle; changed.
        job
            The number of the job.
        change
            The slots, and the new row of each.
        """
        slots = change.slots
        rows_before = lanes[job][slots]
        lanes[job][slots] = change.rows
        matchings = self._unite(ports, [lane[slots] for lane in lanes])
        factors = [planner.factor(row) for row in matchings]
        if not replace_slots(planner, slots, np.stack(factors)):
            lanes[job][slots] = rows_before

    def _choose_change(
        self, work: JobRows, lane: NDArray[np.int64], slot: int
    ) -> RowChange | None:
        """Choose at random how a job could use a few of its slots in another way.

        A row says which vertices (ports, or their sending and receiving sides) are partners in one
        slot. There are three kinds of changes, each of which keeps all pairs of partners:

        - three rows without idle ports are mixed, and split anew into three rows;
        - two slots exchange their rows;
        - two slots exchange a part of their rows: the vertices that are joined to one of them by
          partners in either row, directly or over others.

        Parameters
        ----------
        work
            The rows of the job, and whether they have to stay in their order.
        lane
            ``lane[slot, vertex]``: the partner of a vertex in each slot, -1 where idle.
        slot
            A slot with circuits that have no route, or a long one.

        Returns
        -------
        RowChange or None
            The slots and their new rows; None if nothing would change, or if rows that have an
            order would lose it.
        """
        # Three slots, in one of two cases; it may be that these cannot be split.
        n_slots, n_vertices = lane.shape
        if not work.in_order and n_slots > 2 and self.rng.integers(2):
            offsets = self.rng.choice(n_slots - 1, size=2, replace=False)
            three = self.rng.permutation([slot, *((slot + 1 + offsets) % n_slots)])
            rows = self._split_anew(lane[three])
            if rows is not None:
                return RowChange(three.tolist(), rows)

        # Otherwise two slots.
        other = int((slot + 1 + self.rng.integers(n_slots - 1)) % n_slots)
        if work.in_order:
            # The order stays only if one of the rows from one slot to the other has circuits.
            between = lane[min(slot, other) : max(slot, other) + 1]
            if (between != IDLE).any(axis=1).sum() != 1:
                return None

        # All vertices are exchanged or, in one of two cases, those that are joined to one of them.
        two_rows = lane[[slot, other]]
        vertices = list(range(n_vertices))
        if not work.in_order and self.rng.integers(2):
            vertices = find_chain(two_rows, int(self.rng.integers(n_vertices)))
        if (two_rows[:, vertices] == IDLE).all():
            return None
        two_rows[:, vertices] = two_rows[::-1, vertices]
        return RowChange([slot, other], two_rows)

    def _split_anew(self, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Split the pairs of three rows into three others at random.

        `rows` and the result have shape (3, vertices): the partner of each vertex. None if a port
        idles, or if the random split fails.
        """
        n_vertices = rows.shape[1]
        new_rows = np.empty((3, n_vertices), dtype=np.int64)
        place = np.empty(n_vertices, np.int64)
        path = np.empty(n_vertices + 2, np.int64)
        start = int(self.rng.integers(n_vertices))
        coins = int(self.rng.integers(1 << 31))
        if (rows == IDLE).any():
            return None
        is_split = exchange(rows, start, coins, new_rows, place, path)
        return new_rows if is_split else None


class RowChange(NamedTuple):
    """New rows of one job in some slots."""

    slots: list[int]
    rows: NDArray[np.int64]
    """``rows[place in slots, vertex]``."""


def _spread_rows(work: JobRows, n_slots: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Give the rows of a job to random slots, in their order if they have one; return its lane."""
    lane = np.full((n_slots, work.rows.shape[1]), IDLE)
    slots = rng.choice(n_slots, size=len(work.rows), replace=False)
    if work.in_order:
        slots = np.sort(slots)
    lane[slots] = work.rows
    return lane
