"""CP-SAT model of schedules of all planes, with circuits that go on and a packet network.

Each plane has so many slots at most; the rest of a pair goes to the packet network. The end is
a fraction of a tick where packets end last, so the objective counts *parts* of a tick: if packets
carry the share p / q of what a circuit carries in a tick, a tick is p parts. A rest of r ticks
then takes r q / p ticks, which are r q parts, a whole number.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import factorial
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from optmatch.model import (
    Bound,
    Clock,
    Limit,
    NewBest,
    OnEvent,
    Schedule,
    Solution,
    Status,
)
from optmatch.problems import Demand, PlaneSchedules, completion_s
from optmatch.solvers.cpsat import Outcome
from optmatch.solvers.demands.plans import read_plan
from optmatch.solvers.exact_models import ExactModel, draw_seed
from optmatch.solvers.frame import PROOF_RTOL, stoppable, tick_rtol

MOST_PORTS = 6  # of the problems that other modules send here
_MOST_CIRCUITS = 2_000  # the most circuits in all slots of all planes; larger models are refused
_MOST_PARTS = 2**40  # the most parts of a tick in the end, so that sums of them are exact


def finish_small(
    problem: Demand,
    solution: Solution,
    clock: Clock,
    rng: np.random.Generator,
    on_event: OnEvent,
    *,
    work: float = np.inf,
) -> Solution:
    """Improve on a schedule of a small demand on an ideal switch, or prove it the best.

    CP-SAT is asked for a schedule that ends earlier than the one at hand. If there is none, that
    one is the best. The model knows three things that others do not: planes, which are switches
    side by side that share the demand; circuits that go on while others change; and a packet
    network, which carries what circuits leave.

    Times are whole ticks, but packets may end in between: then a tick is divided into equal parts,
    and "earlier" means by one part at least. `work` limits CP-SAT, in seconds that it counts by
    its steps. Models that would be too large are not written: the limit is then ``MEMORY``.
    """
    end = solution.objective
    if solution.status is not Status.FEASIBLE or end is None or clock.remaining_s <= 0:
        return solution

    # `share`: what packets carry in a tick, in ticks of a circuit, as a fraction of the printed
    # rates, so that 0.1 is one tenth and not its nearest float. With 2/5, packets take 5/2 ticks
    # for what a circuit carries in one: they end at half ticks, and a tick has two parts.
    share = Fraction(repr(problem.packet_bytes_per_s)) / Fraction(repr(problem.rate_bytes_per_s))
    parts = share.numerator or 1

    # `ticks` is the end of the schedule so far, exact to a part. `most` whole ticks come before
    # it; each slot takes a delay and its shortest length of them, which limits the slots: 22 ticks
    # hold 4 slots with a delay of 3 and a length of 2.
    ticks = round(end / problem.tick_s * parts) / parts
    most = max(0, int(np.ceil(ticks)) - 1)
    slots = most // (problem.delay_ticks + problem.min_slot_ticks)
    if problem.switching == "all-stop" or not problem.delay_ticks:
        # No matching is needed twice: a slot for each permutation will do.
        slots = min(slots, factorial(problem.fabric.n_ports))
    circuits = slots * problem.planes * np.count_nonzero(problem.ticks)
    if circuits > _MOST_CIRCUITS or max(ticks, 1) * max(parts, share.denominator) > _MOST_PARTS:
        return replace(solution, limit=Limit.MEMORY)

    # From here on an interrupt returns what there is, also while the model is written.
    with stoppable() as stop:
        model = PlaneModel(problem, share, slots, round(ticks * parts) - 1)
    if stop.limit is not None:
        return replace(solution, limit=stop.limit)
    outcome = model.solve(clock, on_event, seed=draw_seed(rng), work=work)

    # `proved`: no schedule ends before this time, in seconds. The model has only schedules that
    # end before `solution`; if it has none, that end is the bound.
    proved = end if outcome.infeasible else outcome.lower_bound / parts * problem.tick_s
    if outcome.found:
        schedules = model.read(outcome)
        end = completion_s(problem, schedules)
        answer = None if problem.planes == 1 else PlaneSchedules(schedules=schedules)
        schedule = schedules[0] if problem.planes == 1 else None
        counted = {**solution.stats, "slots": sum(part.n_slots for part in schedules)}
        solution = replace(
            solution, schedule=schedule, answer=answer, objective=end, stats=counted
        )
    optimal = outcome.infeasible or outcome.optimal

    # Without proof of optimality the bound of CP-SAT counts, which no schedule beats.
    bound = end if optimal else min(proved, end)
    stats = dict(solution.stats)
    # The end of packets is no whole number of ticks.
    rtol = PROOF_RTOL
    if problem.packet_share == 0:
        rtol = tick_rtol(bound, problem.tick_s)
    bound_is_higher = bound > solution.lower_bound * (1 + rtol)
    if bound_is_higher:
        stats["bound_by"] = "cp-sat"

    with stoppable() as stop:
        if outcome.found:
            on_event(NewBest(end))
        if bound_is_higher:
            on_event(Bound(bound))
    return replace(
        solution,
        status=Status.OPTIMAL if optimal else Status.FEASIBLE,
        limit=None if optimal else stop.limit or outcome.limit,
        lower_bound=max(solution.lower_bound, bound),
        stats=stats,
    )


class PlaneModel(ExactModel[tuple[Schedule, ...]]):
    """The CP-SAT model of at most so many slots on each plane, and of packets.

    It minimises the end of the schedule, in parts of a tick.

    Parameters
    ----------
    problem
        The demand on an ideal switch.
    share
        The load of a port that packets carry in a tick, in ticks of a circuit; 0 without packets.
    slots
        How many slots each plane may use.
    below
        The largest end that counts, in parts of a tick: a tick has as many as the numerator of
        `share`, or one.

    Attributes
    ----------
    pairs
        Source and destination of each entry of the demand.
    joined
        The pairs that may have a circuit.
    longest
        The ticks of the longest slot that could be of use.
    service
        By pair, the terms whose sum is how many ticks circuits serve it on all planes.
    uses
        ``uses[plane][slot][pair]``: whether the slot has the circuit of a pair.
    ticks
        ``ticks[plane][slot]``: the duration, 0 if the slot is not used.
    """

    def __init__(self, problem: Demand, share: Fraction, slots: int, below: int) -> None:
        """Write the model: the slots of all planes, the rest for packets, and the end of both.

        Planes have a sequence of slots each, and share the demand. The rest that circuits leave of
        a pair goes to the packet network.
        """
        super().__init__()
        self.problem = problem
        self.slots = slots

        # The whole demand in ticks, ``demand[source, destination]``, and ``problem.ticks``, the
        # part of it that may have circuits: pairs over their link budget are left to packets.
        demand = problem.directed_ticks
        self.pairs = [(int(i), int(j)) for i, j in np.argwhere(demand)]
        self.joined = [(int(i), int(j)) for i, j in np.argwhere(problem.ticks)]
        self.longest = max(int(demand.max(initial=0)), problem.min_slot_ticks)
        self.service: dict[tuple[int, int], list[Any]] = {pair: [] for pair in self.pairs}
        self.uses: list[list[dict[tuple[int, int], cp_model.IntVar]]] = []
        self.ticks: list[list[cp_model.IntVar]] = []

        # With a share of p / q a tick has p parts, so that all ends are whole numbers of parts.
        parts = share.numerator or 1
        end = self.model.new_int_var(0, below, "")

        # `lasts` has the end of each plane in ticks. The whole ends no earlier than any of them.
        lasts = [self._add_plane() for _ in range(problem.planes)]
        for last in lasts:
            self.model.add(parts * last <= end)
        # Planes are alike: an order of their ends leaves one of many equal plans.
        for later, earlier in pairwise(lasts):
            self.model.add(later >= earlier)

        # Packets take the rest that circuits leave, if there are any, until the end. With a share
        # of p / q they take r q parts of a tick for a rest of r ticks.
        to_packets = {}
        for pair in self.pairs:
            size = int(demand[pair])
            to_packets[pair] = self.model.new_int_var(0, size if share else 0, "")
            self.model.add(sum(self.service[pair]) + to_packets[pair] >= size)
        for axis in (0, 1):
            for port in range(len(demand)):
                to_packets_of_port = [
                    ticks for pair, ticks in to_packets.items() if pair[axis] == port
                ]
                self.model.add(share.denominator * sum(to_packets_of_port) <= end)
        self.model.minimize(end)

    def _add_plane(self) -> Any:
        """Add one more switch to the model, and the slots in which it serves the demand.

        Each plane has room for ``self.slots`` of them; those in use come first, and the others
        have no ticks and no circuits.

        Adds the plane to ``uses`` and ``ticks``, and what its circuits serve to ``service``.
        Returned is a linear expression: when the plane ends, in ticks with delays.
        """
        model = self.model

        # Variables by slot: whether it is in use, its duration in ticks, and by pair its
        # circuits.
        used = [model.new_bool_var("") for _ in range(self.slots)]
        ticks = [model.new_int_var(0, self.longest, "") for _ in used]
        uses = [{pair: model.new_bool_var("") for pair in self.joined} for _ in used]
        for slot, (is_used, duration, circuits) in enumerate(zip(used, ticks, uses, strict=True)):
            # A slot in use has a length and circuits, one of each port at most; others have none.
            model.add(duration >= self.problem.min_slot_ticks * is_used)
            model.add(duration <= self.longest * is_used)
            for axis in (0, 1):
                for port in range(self.problem.fabric.n_ports):
                    of_port = [use for pair, use in circuits.items() if pair[axis] == port]
                    model.add(sum(of_port) <= is_used)

            # A circuit serves its pair for no longer than the slot lasts, and only if it is up.
            for pair, circuit in circuits.items():
                part = model.new_int_var(0, self.longest, "")
                model.add(part <= duration)
                model.add(part <= self.longest * circuit)
                self.service[pair].append(part)
            if slot == 0:
                continue

            # Slots in use come first, and under all-stop the longest ones: that leaves one of many
            # equal orders. With other switching a circuit that stays serves during the delay too.
            model.add_implication(is_used, used[slot - 1])
            if self.problem.switching == "all-stop":
                model.add(ticks[slot - 1] >= duration)
                continue
            for pair, circuit in circuits.items():
                stays = model.new_bool_var("")
                model.add_implication(stays, circuit)
                model.add_implication(stays, uses[slot - 1][pair])
                self.service[pair].append(self.problem.delay_ticks * stays)
        self.uses.append(uses)
        self.ticks.append(ticks)
        return sum(ticks) + self.problem.delay_ticks * sum(used)

    def read(self, outcome: Outcome) -> tuple[Schedule, ...]:
        """Read the schedules of all planes; slots without duration are left out."""
        schedules = []
        for uses, ticks in zip(self.uses, self.ticks, strict=True):
            plan = read_plan(outcome, uses, ticks, self.problem.fabric.n_ports)
            plan = plan.take(plan.ticks > 0)
            schedules.append(self.problem.schedule(plan.matchings, plan.ticks))
        return tuple(schedules)
