"""Repair of a schedule whose fabric breaks: reroute, exchange pairs, or prove it impossible.

Most faults touch few slots, and most slots they touch need new routes only for the circuits at the
broken cell. Hence a schedule is repaired slot by slot, from the routes it has; where that fails,
exact tests come first. A further fault never makes anything possible, so what is proved for some
faults holds for all sets that contain them.

A *fault* is a cell that is dead (it carries no light) or stuck in bar or in cross. A slot is *hit*
by a fault if light passes the cell in a state that it can no longer take. A schedule *survives* if
all of its slots can be routed in spite of the faults.

A route is the list of terminals by which light leaves cells, numbered 4 * cell + 0 to 3. Routes
are negotiated: circuits are ripped up and rerouted at rising prices of links that two of them
want. The *excess* of a slot is `FAILED` or more if some circuit has no route.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fault, Faulty
from optmatch.fabrics.faults import STATES
from optmatch.model import FREE, Limits, Schedule, Status, ignore, uncounted
from optmatch.problems import AllToAll, Routing
from optmatch.solvers.all_to_all.planner import (
    FAILED,
    QUICK,
    SlotPlanner,
    exchange_pairs,
)
from optmatch.solvers.all_to_all.slot_shortage import decide_small
from optmatch.solvers.routing.columns import Master
from optmatch.solvers.routing.pathfinder import (
    EFFORTS,
    FAR,
    Effort,
    MeshArrays,
    RoutedCircuits,
    negotiate,
)
from optmatch.solvers.routing.router import CellRouter

Outcome = Literal["survived", "failed", "unrepaired"]

_EXCHANGES = 16  # for each slot, where circuits are left without a path
_ROUNDS = 60  # rounds of pricing, for a proof
_MANY = 0.25  # the part of lost slots beyond which a proof is likelier than a repair
_CASES = 20  # nodes of branch and price, for a proof about one matching


class Verdict(NamedTuple):
    """The outcome of a schedule after some faults."""

    outcome: Outcome
    """Whether it has ``"survived"``, has ``"failed"`` (proved), or is ``"unrepaired"`` (open)."""
    how: str
    """How that was found. Survived: ``"untouched"`` (no slot is hit), ``"rerouted"`` (the same
    matchings), ``"exchanged"`` (pairs moved between slots), ``"search"`` (an exact model). Failed:
    ``"dead pair"`` (two ports that nothing joins), ``"prices"`` (linear programme), ``"search"``
    (exhausted). Open: ``"effort"``, all steps gave up."""
    matchings: NDArray[np.int32] | None = None
    """(slots, ports) ``[slot, source] = destination``, -1 where idle; None if it has not
    survived."""
    states: NDArray[np.int8] | None = None
    """(slots, cells): the states that carry them, 0 bar, 1 cross, -1 where no light passes."""
    causes: tuple[Fault, ...] = ()
    """The faults that the proof needs."""


class _Damage(NamedTuple):
    """Some faults, and the wiring that they leave to the router."""

    faults: tuple[Fault, ...]
    """The faults; all are of cells."""
    wiring: MeshArrays
    """The graph of the fabric, in which a stuck cell leads light the same way in both states."""
    base: NDArray[np.int64]
    """(terminals,): the price of leaving by a terminal: `FAR` into or out of dead cells, else
    0."""


class Repair:
    """A schedule of a fabric without faults, and the known proofs and routes for its repair.

    Matchings stay as they are, except in an all-to-all that is not `fixed`: its pairs may move
    from slot to slot. Verdicts depend neither on the order of the questions nor on any clock.

    Parameters
    ----------
    problem
        The problem of the schedule, on a fabric without faults.
    schedule
        Its matchings, and the cell states that carry them.
    fixed
        Whether no pair may move from slot to slot, even in an all-to-all.

    Attributes
    ----------
    problem : AllToAll or None
        The all-to-all whose pairs may move from slot to slot; None if none may.
    matchings : int32 array, shape (slots, ports)
        ``matchings[slot, source] = destination``, -1 where idle.
    states : int8 array, shape (slots, cells)
        0 bar, 1 cross, -1 where no light passes.
    router : CellRouter
        Finds routes on the fabric; its workspace is overwritten.
    """

    def __init__(self, problem: Any, schedule: Schedule, *, fixed: bool = False) -> None:
        """Read the routes of all slots out of their states; nothing is judged yet."""
        self.fabric = problem.fabric
        self.problem = problem if isinstance(problem, AllToAll) and not fixed else None
        self.router = CellRouter(self.fabric)
        self.matchings = schedule.matchings
        self.states: NDArray[np.int8] = np.asarray(schedule.cell_states)

        # For each slot its routes and their lengths: ``routes[source, step]`` are the terminals by
        # which light leaves its cells, of which the first ``lengths[source]`` count.
        self._routes = [
            self.router.follow(matching, states)
            for matching, states in zip(self.matchings, self.states, strict=True)
        ]
        self._alone: dict[Fault, Verdict] = {}
        """The verdict on each single fault that was asked for."""
        self._fatal: list[Verdict] = []
        """Verdicts on several faults that cannot be survived together."""
        self._rows: dict[tuple[int, Fault], NDArray[np.int8]] = {}
        """``_rows[slot, fault][cell]``: states of a slot that avoid a single fault."""

    def forget(self) -> None:
        """Forget the proofs for several faults, which stand for others that contain them."""
        self._fatal.clear()

    def judge(self, faults: tuple[Fault, ...]) -> Verdict:
        """Say whether the schedule survives some faults of cells, and how.

        Answers for a single fault are remembered, as are proofs that several cannot be survived:
        they hold with any further faults.
        """
        if len(faults) == 1:
            (fault,) = faults
            if fault not in self._alone:
                self._alone[fault] = self._judge(faults)
            return self._alone[fault]

        # Faults are fatal together if one of them is, or some of them that were judged before.
        for fault in faults:
            alone = self.judge((fault,))
            if alone.outcome == "failed":
                return alone
        for verdict in self._fatal:
            if set(verdict.causes) <= set(faults):
                return verdict
        verdict = self._judge(faults)
        if verdict.outcome == "failed":
            self._fatal.append(verdict)
        return verdict

    def _judge(self, faults: tuple[Fault, ...]) -> Verdict:
        """Judge faults of cells without looking for a former verdict on the same faults.

        Slots whose cells do not conflict with the faults stay. In others the broken circuits are
        routed anew with little effort; slots in which that fails go to `_repair_lost`.
        """
        # ``hits[slot, fault]``: whether light passes the cell in a state that it cannot take.
        states = self.states
        hits = _find_hit_slots(states, faults)
        touched = np.flatnonzero(hits.any(axis=1)).tolist()
        if not touched:
            return Verdict("survived", "untouched", self.matchings, states)

        # Each slot that the faults touch takes a former repair that fits, or is routed anew.
        damage = self._damage_graph(faults)
        states = states.copy()
        lost: list[int] = []
        for slot in touched:
            row = self._find_known_repair(slot, faults, hits[slot])
            if row is None:
                row = self._reroute_slot(slot, damage, QUICK)
                if row is not None and len(faults) == 1:
                    self._rows[slot, faults[0]] = row
            if row is not None:
                states[slot] = row
                continue

            # At the first slot that fails: a pair that no state of the cells connects is a proof.
            if not lost:
                met = {pair for row in self.matchings.tolist() for pair in enumerate(row)}
                if not met.isdisjoint(Faulty.of(self.fabric, faults).dead_pairs()):
                    return Verdict("failed", "dead pair", causes=faults)
            lost.append(slot)
        if not lost:
            return Verdict("survived", "rerouted", self.matchings, states)
        return self._repair_lost(damage, states, lost)

    def _find_known_repair(
        self, slot: int, faults: tuple[Fault, ...], hits: NDArray[np.bool_]
    ) -> NDArray[np.int8] | None:
        """Look for a known repair of one of the faults that also holds with the other faults.

        ``hits[k]`` says whether fault k hits the slot. The result is the states of the slot,
        ``states[cell]``, or None.
        """
        for fault in (faults[k] for k in np.flatnonzero(hits)):
            row = self._rows.get((slot, fault))
            if row is not None and not _find_hit_slots(row[None], faults).any():
                return row
        return None

    def _damage_graph(self, faults: tuple[Fault, ...]) -> _Damage:
        """Turn faults into a graph and costs for the router.

        A stuck cell leads light the same way in both states. A dead cell is closed: no light
        leaves it, nor any cell beside it towards it. The least costs to each port stay those
        without faults, which are still lower bounds, as the search (A*) needs them.
        """
        wiring = self.router.wiring
        exits = wiring.exits.copy()
        base = np.zeros(len(wiring.mate), dtype=np.int64)
        for fault in faults:
            # The four terminals of the cell. Light that enters at one leaves by that of the state
            # in which the cell is stuck, column 0 (bar) or 1 (cross) of ``exits[terminal,
            # state]``, whatever is asked for: that column takes the place of both.
            ends = slice(4 * fault.place, 4 * fault.place + 4)
            if fault.kind == "dead-cell":
                mates = wiring.mate[ends]
                base[ends] = base[mates[mates >= 0]] = FAR
            else:
                exits[ends] = exits[ends][:, [STATES[fault.kind]]]
        return _Damage(faults, wiring._replace(exits=exits), base)

    def _reroute_slot(self, slot: int, damage: _Damage, effort: Effort) -> NDArray[np.int8] | None:
        """Negotiate new paths for the circuits at broken cells; other circuits may give way.

        `slot` is a row of ``self.matchings``. Its present routes, but for those through a cell of
        `damage` in a wrong state, are where the negotiation begins, and `effort` says when it
        gives up. Returns ``states[cell]`` of the slot; None if the negotiation gave up.
        """
        # Only circuits through cells that are in the wrong state lose their routes; those through
        # a cell that is stuck in the state they need keep them.
        routes = self._routes[slot][0].copy()
        lengths = self._routes[slot][1].copy()
        order = np.flatnonzero(lengths)
        on_route = np.arange(routes.shape[1]) < lengths[:, None]
        hits = _find_hit_slots(self.states[[slot]], damage.faults)[0]
        for fault, hit in zip(damage.faults, hits, strict=True):
            if hit:
                lengths[((routes // 4 == fault.place) & on_route).any(axis=1)] = 0
        partner = self.matchings[slot].astype(np.int64)
        status = negotiate(
            damage.wiring,
            self.router.workspace,
            effort,
            damage.base,
            RoutedCircuits(order, partner, routes, lengths),
        )
        return None if status < 0 else self.router.states(order, routes, lengths)

    def _repair_lost(self, damage: _Damage, states: NDArray[np.int8], lost: list[int]) -> Verdict:
        """Look for a repair of slots that quick routing left, or for a proof that there is none.

        The first of these steps that answers ends it:

        1. If many slots are lost: prices of links that prove that so many slots cannot hold all
           pairs, by a linear programme over routes.
        2. Each lost slot is routed again with more patience: its matching stays as it is.
        3. If matchings are fixed: an exact search of the routes of each slot that is left.
        4. Else pairs are exchanged between slots until all have routes.
        5. The prices of step 1, if they were not asked for before.
        6. On a small mesh, an exact model of the whole schedule.

        `lost` are the numbers of these slots. ``states[slot, cell]`` has the states of all slots,
        also those that are repaired already, and receives those of further ones. Where no step
        answers, the verdict is "unrepaired".
        """
        broken = Faulty.of(self.fabric, damage.faults)

        # `problem` is None where no pair may move to another slot: then prices of the whole and
        # exchanges are of no use. If many slots are lost, a proof by prices is the likeliest
        # answer; else it comes after the search for a repair.
        problem = None if self.problem is None else replace(self.problem, fabric=broken)
        many_lost = len(lost) > _MANY * len(self.matchings)
        if problem is not None and many_lost and self._refuted_by_prices(damage):
            return Verdict("failed", "prices", causes=damage.faults)

        # `unrouted` are the slots that more patience does not help.
        unrouted = []
        for slot in lost:
            for effort in EFFORTS[1:]:
                row = self._reroute_slot(slot, damage, effort)
                if row is not None:
                    states[slot] = row
                    break
            else:
                unrouted.append(slot)
        if not unrouted:
            return Verdict("survived", "rerouted", self.matchings, states)

        # Fixed matchings are searched exactly; else pairs move between slots, or it is proved that
        # this is in vain.
        if problem is None:
            return self._route_exactly(broken, states, unrouted)
        exchanged = self._exchange_pairs(problem, states)
        if exchanged is None and not many_lost and self._refuted_by_prices(damage):
            return Verdict("failed", "prices", causes=damage.faults)
        return (
            exchanged
            or self._ask_exact_model(problem, damage.faults)
            or Verdict("unrepaired", "effort")
        )

    def _exchange_pairs(self, problem: AllToAll, states: NDArray[np.int8]) -> Verdict | None:
        """Move pairs between slots until all have a path; None if some pair is left without one.

        It is None, too, if there are more slots than needed: exchanges are between full slots.
        ``states[slot, cell]`` are the states to begin with, of which some pairs have lost their
        ways. Exchanges are bounded by their number and not by the clock, so that a verdict can be
        repeated.
        """
        if len(self.matchings) != problem.min_slots:
            return None
        moves = _EXCHANGES * len(self.matchings)
        clock = Limits(iterations=moves).start()
        planner = SlotPlanner(
            problem, CellRouter(problem.fabric), clock, np.random.default_rng(0), ignore
        )

        # The slots as the planner has them; what is broken is routed with little effort.
        for matching, row in zip(self.matchings, states, strict=True):
            routes = planner.router.follow(matching, row)
            planner.plan.append(planner.route_slot(planner.factor(matching), *routes, QUICK))
        exchange_pairs(planner, tolerated=FAILED - 1)
        if any(slot.excess >= FAILED for slot in planner.plan):
            return None
        return _survive(planner, "exchanged")

    def _ask_exact_model(self, problem: AllToAll, faults: tuple[Fault, ...]) -> Verdict | None:
        """Ask the exact model of a small mesh, which takes seconds; None if it cannot decide.

        `problem` is on the fabric with the `faults`, which the verdict names if there is no
        schedule in as many slots as before.
        """
        clock = Limits().start()
        rng = np.random.default_rng(0)
        decision = decide_small(problem, clock, rng, len(self.matchings))
        if decision.refuted:
            return Verdict("failed", "search", causes=faults)
        if decision.slots is None:
            return None
        planner = SlotPlanner(problem, CellRouter(problem.fabric), clock, rng, ignore)
        planner.plan = decision.slots
        return _survive(planner, "search")

    def _refuted_by_prices(self, damage: _Damage) -> bool:
        """Tell whether prices of links prove that as many slots as before are too few.

        All pairs of the all-to-all are routed in one linear programme, in which each link may be
        passed once in each slot. Its dual variables are prices of links. If the cheapest paths of
        all pairs cost more than all links in all slots together, there is no schedule.
        """
        shut = frozenset(np.flatnonzero(damage.base >= FAR).tolist())
        cells = [fault.place for fault in damage.faults]
        self._master.break_cells(damage.wiring, shut, cells)

        # No circuit is kept from further terminals, {}, and no bound is enough to end early. The
        # programme is infeasible if its prices prove that no schedule has so few slots.
        bound = self._master.bound({}, np.inf, Limits().start(), rounds=_ROUNDS)
        return bound.infeasible

    @cached_property
    def _master(self) -> Master:
        """The linear programme over routes; those found for some faults help with the next."""
        assert self.problem is not None
        pairs = self.problem.pairs.astype(np.int64)
        return Master(self.router, pairs, capacity=len(self.matchings))

    def _route_exactly(
        self, broken: Faulty, states: NDArray[np.int8], unrouted: list[int]
    ) -> Verdict:
        """Route the slots whose states were not found yet exactly, by branch and price.

        `broken` is the fabric with the faults. `unrouted` are the numbers of the slots without
        states, and ``states[slot, cell]`` receives theirs. The verdict is "failed" as soon as one
        matching is refuted, "survived" if all are routed, or "unrepaired" if the search of some
        matching met its limit.
        """
        with uncounted():
            from optmatch.solvers.routing.branch_and_price import search

        outcome: Verdict = Verdict("survived", "rerouted", self.matchings, states)
        for slot in unrouted:
            problem = Routing(broken, self.matchings[slot])
            rng = np.random.default_rng(0)
            limits = Limits(iterations=_CASES)
            solution = search(problem, limits, rng, ignore)
            if solution.status is Status.INFEASIBLE:
                return Verdict("failed", "search", causes=broken.faults)
            if solution.schedule is None or solution.schedule.cell_states is None:
                outcome = Verdict("unrepaired", "effort")
            else:
                states[slot] = solution.schedule.cell_states[0]
        return outcome


def _survive(planner: SlotPlanner, how: str) -> Verdict:
    """Return the verdict that the slots of a plan, all of whose circuits have routes, survive."""
    matchings = np.stack([planner.matching(slot.partner) for slot in planner.plan])
    states = np.stack([planner.states(slot) for slot in planner.plan])
    return Verdict("survived", how, matchings, states)


def _find_hit_slots(states: NDArray[np.int8], faults: tuple[Fault, ...]) -> NDArray[np.bool_]:
    """Tell which slots are hit by which faults, ``hits[slot, fault]``.

    A slot is hit if light passes the cell of the fault in it, in a state that the cell can no
    longer take; no light may pass a dead cell.
    """
    # The state of the cell of each fault in each slot, and the state in which it is stuck. A dead
    # cell has a number that is no state, so that any light conflicts with it.
    present_states = states[:, [fault.place for fault in faults]]
    stuck = np.array([STATES[fault.kind] for fault in faults], dtype=np.int8)
    hits: NDArray[np.bool_] = (present_states != FREE) & (present_states != stuck)
    return hits
