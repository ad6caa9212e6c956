"""Method `negotiated` for tenancies: jobs side by side on neighbouring ports.

Each job's question is split into rows of its own. The slots in which jobs do their rows are free,
and the pairs of a row can be exchanged with those of another one: a local search takes what lets
all circuits of a slot be routed at once, on few cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

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

_IDLE = 12
"""Exchanges for each slot that bring nothing: once all has its routes, they save cells alone."""

Ports = tuple[tuple[int, ...], ...]
"""``ports[job]``, in the order of the job."""


def list_choices(
    problem: Tenancy, rng: np.random.Generator, start: Solution | None = None
) -> Iterator[Ports]:
    """List good choices of ports: first no job moves, then one job, then all.

    Before all, those in which jobs are where a former solution had them.

    The other jobs lie one after the other along the free ports, in the order of the terminals on
    the boundary. Of all places to start, and some orders of jobs, those come first in which the
    shortest routes within jobs are shortest.
    """
    tenants = problem.tenants
    if start is not None and start.answer is not None:
        former: Any = start.problem
        were = dict(zip((t.name for t in former.tenants), start.answer.ports, strict=True))
        live = set(problem.fabric.live_ports.tolist())
        kept = {k: were[t.name] for k, t in enumerate(tenants) if t.name in were}
        kept = {k: at for k, at in kept.items() if len(at) == tenants[k].n_ports}
        kept = {k: at for k, at in kept.items() if live.issuperset(at)}
        yield from _near(problem, kept, rng)[:1]
    holders = [k for k, tenant in enumerate(tenants) if tenant.held is not None]
    moves = [[], *([k] for k in holders), holders] if holders else [[]]
    for movers in moves[: None if len(holders) != 1 else 2]:
        kept = {k: tenants[k].held or () for k in holders if k not in movers}
        yield from _near(problem, kept, rng)


def _near(
    problem: Tenancy, kept: dict[int, tuple[int, ...]], rng: np.random.Generator
) -> list[Ports]:
    """List the best choices in which some jobs keep their ports."""
    tenants, cells = problem.tenants, problem.fabric.route_cells().astype(np.float64)
    cells[cells == UNREACHED] = np.inf
    taken = {port for ports in kept.values() for port in ports}
    free = np.array([p for p in _around(problem.fabric) if p not in taken], dtype=np.int64)
    others = [k for k in range(len(tenants)) if k not in kept]
    largest = sorted(others, key=lambda k: -tenants[k].n_ports)
    orders = [others, largest, *(rng.permutation(others).tolist() for _ in range(4))]
    found: dict[Ports, float] = {}
    for order in orders if others else [[]]:
        ends = np.cumsum([0, *(tenants[k].n_ports for k in order)])
        for start in range(len(free) if others and problem.fabric.graph is not None else 1):
            check_time()
            chosen = dict(kept)
            for k, first, last in zip(order, ends, ends[1:], strict=False):
                near = np.roll(free, -start)[first:last]
                chosen[k] = _stay(tenants[k], near.tolist())
            ports = tuple(chosen[k] for k in range(len(tenants)))
            found[ports] = sum(float(cells[np.ix_(each, each)].sum()) for each in ports)
    return sorted(found, key=lambda ports: found[ports])[:MOST]


def _stay(tenant: Tenant, near: list[int]) -> tuple[int, ...]:
    """Leave ranks where they are, as far as their ports are among those given."""
    held = tenant.held or (-1,) * len(near)
    rest = iter([port for port in near if port not in held])
    return tuple(port if port in near else next(rest) for port in held)


def _around(fabric: Fabric) -> NDArray[np.int64]:
    """List the live ports in the order of their terminals on the boundary."""
    live = fabric.live_ports
    if fabric.graph is None:
        return live
    place = {terminal: k for k, terminal in enumerate(fabric.graph.perimeter.tolist())}
    terminals = fabric.source_terminals[live].tolist()
    return live[np.argsort([place.get(each, 0) for each in terminals], kind="stable")]


Answer = tuple[TenancyPlan, Schedule]


def solve(
    problem: Tenancy,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
    params: TenancyParams | None = None,
) -> Solution:
    """Solve a tenancy.

    An iteration is one choice of ports and slots. Without a limit it takes a second or two of
    processor time for 32 ports. The solution is OPTIMAL where nobody moves and there are no more
    slots than the worst job needs.
    """
    clock = limits.start()
    search = _SlotSearch(problem, limits, rng, on_event)
    search.start, search.params = start, params or search.params
    answers = search.answers()
    bound = problem.lower_bound()
    best, limit, _ = frame.take_best(answers, bound, clock, on_event, "ports and slots")
    if best is None:
        stats = {"slots_lower_bound": problem.min_slots}
        return frame.conclude(problem, "negotiated", None, bound, limit, stats=stats)
    plan, schedule = best
    stats = {"slots": schedule.n_slots, "slots_lower_bound": problem.min_slots}
    cost = search.cost(plan.ports, schedule)
    known: dict[str, Any] = {"schedule": schedule, "answer": plan, "stats": stats}
    return frame.conclude(problem, "negotiated", cost, bound, limit, **known)


class _SlotSearch:
    """The state of a solve."""

    def __init__(
        self, problem: Tenancy, limits: Limits, rng: np.random.Generator, on_event: OnEvent
    ) -> None:
        self.problem = problem
        self.rng = rng
        self.on_event = on_event
        self.clock = limits.start()
        self.router = None if problem.fabric.graph is None else CellRouter(problem.fabric)
        self.best = np.inf
        self.start: Solution | None = None
        self.params = TenancyParams()

    def cost(self, ports: Ports, schedule: Schedule) -> float:
        """Return the objective of an answer."""
        changed = self.problem.changed_circuits(ports, schedule.matchings)
        return schedule.makespan_s + self.problem.delay_s * changed

    def answers(self) -> Iterator[tuple[float, Answer] | None]:
        """Try more and more slots, each with all choices of ports, while that can be better."""
        problem = self.problem
        choices = list(list_choices(problem, self.rng, self.start))
        planned: list[JobRows | None] = [None] * len(problem.tenants)
        most = None
        for slots in count(problem.min_slots):
            if slots * (problem.slot_s + problem.delay_s) >= self.best:
                return
            if most is not None and slots > most:
                return
            for k, tenant in enumerate(problem.tenants):
                if (known := planned[k]) is None or not known.in_order:
                    planned[k] = plan_job(problem, tenant, slots, self.rng)
            works = [work for work in planned if work is not None and len(work.rows) <= slots]
            if len(works) < len(planned):
                continue
            most = most or sum(len(work.rows) for work in works)  # one job after the other
            for ports in choices:
                yield self._try(ports, works, slots)

    def _try(self, ports: Ports, works: list[JobRows], slots: int) -> tuple[float, Answer] | None:
        lanes = [_spread(work, slots, self.rng) for work in works]
        states = None
        if self.router is not None:
            states = self._route(self.router, ports, works, lanes)
            if states is None:
                return None
        matchings = self._unite(ports, lanes)
        schedule = Schedule(
            matchings=matchings,
            durations_s=np.full(slots, self.problem.slot_s),
            delay_s=self.problem.delay_s,
            cell_states=states,
        )
        plan = TenancyPlan(ports=ports, plans=tuple(work.plan for work in works))
        cost = self.cost(ports, schedule)
        self.best = min(self.best, cost)
        return cost, (plan, schedule)

    def _unite(self, ports: Ports, lanes: list[NDArray[np.int64]]) -> NDArray[np.int32]:
        """Put the rows of all jobs together: a matching of the switch for each slot."""
        n_ports = self.problem.fabric.n_ports
        slots = len(lanes[0]) if lanes else 0
        matchings = np.full((slots, n_ports), IDLE, dtype=np.int32)
        for own, lane in zip(ports, lanes, strict=True):
            n, mine = len(own), np.array(own)
            partner = lane[:, :n]
            matchings[:, mine] = np.where(partner == IDLE, IDLE, mine[partner % n])
        return matchings

    def _route(
        self,
        router: CellRouter,
        ports: Ports,
        works: list[JobRows],
        lanes: list[NDArray[np.int64]],
    ) -> NDArray[np.int8] | None:
        """Route all slots, changing rows where that helps; None if a circuit has no route."""
        slots = len(lanes[0]) if lanes else 0
        planner = SlotPlanner(
            AllToAll(self.problem.fabric), router, self.clock, self.rng, self.on_event
        )
        matchings = self._unite(ports, lanes)
        if not slots or not any(len(work.rows) for work in works):
            return np.full((slots, self.problem.fabric.n_cells), -1, dtype=np.int8)
        if planner.route_all(np.stack([planner.factor(row) for row in matchings])) is not None:
            return None
        params = self.params
        most = min(params.moves_per_slot * slots, params.most_moves) if slots > 1 else 0
        owners = np.repeat(np.arange(len(ports)), [len(own) for own in ports])
        least, since = planner.excess, 0
        for move in range(most):
            excessive = [k for k, slot in enumerate(planner.plan) if slot.excess]
            least, since = (planner.excess, move) if planner.excess < least else (least, since)
            done = least < FAILED and move - since > _IDLE * slots
            if done or not excessive or self.clock.remaining_s <= 0:
                break
            if move % 64 == 0:
                self.on_event(Tick("exchange", move, most))
            k = int(self.rng.choice(owners))  # large jobs more often
            a = excessive[self.rng.integers(len(excessive))]
            change = self._change(works[k], lanes[k], a)
            if change is None:
                continue
            chosen, new = change
            before = lanes[k][chosen]
            lanes[k][chosen] = new
            matchings = self._unite(ports, [lane[chosen] for lane in lanes])
            rows = [planner.factor(row) for row in matchings]
            if not replace_slots(planner, chosen, np.stack(rows)):
                lanes[k][chosen] = before
        if planner.excess >= FAILED:
            return None
        return np.stack([planner.states(slot) for slot in planner.plan])

    def _change(
        self, work: JobRows, lane: NDArray[np.int64], a: int
    ) -> tuple[list[int], NDArray[np.int64]] | None:
        """Choose a few slots of a job, among them `a`, and new rows for them.

        Three rows without idle ports are split anew, as in an all-to-all. Of two rows, either all
        is exchanged or the vertices that hang together.
        """
        slots, vertices = lane.shape
        if not work.in_order and slots > 2 and self.rng.integers(2):
            others = self.rng.choice(slots - 1, size=2, replace=False)
            three = self.rng.permutation([a, *((a + 1 + others) % slots)])
            new = np.empty((3, vertices), dtype=np.int64)
            place, path = np.empty(vertices, np.int64), np.empty(vertices + 2, np.int64)
            start, coins = int(self.rng.integers(vertices)), int(self.rng.integers(1 << 31))
            full = (lane[three] != IDLE).all()
            if full and exchange(lane[three], start, coins, new, place, path):
                return three.tolist(), new
        b = int((a + 1 + self.rng.integers(slots - 1)) % slots)
        two, chain = lane[[a, b]], list(range(vertices))
        if work.in_order and (lane[min(a, b) : max(a, b) + 1] != IDLE).any(axis=1).sum() != 1:
            return None
        if not work.in_order and self.rng.integers(2):
            chain = find_chain(two, int(self.rng.integers(vertices)))
        if (two[:, chain] == IDLE).all():
            return None
        two[:, chain] = two[::-1, chain]
        return [a, b], two


def _spread(work: JobRows, slots: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Give the rows of a job to random slots, in their order if they have one."""
    lane = np.full((slots, work.rows.shape[1]), IDLE)
    chosen = rng.choice(slots, size=len(work.rows), replace=False)
    lane[np.sort(chosen) if work.in_order else chosen] = work.rows
    return lane
