"""Method `best` for placements: heuristics and bounds by the pattern of the circuits.

The worst loss is one of the losses of circuits. All searches ask the same question for one
threshold after another: can all circuits be had without exceeding it? An all-to-all is a clique
(tabu search, and an eigenvalue that says no); a ring is a cycle (CP-SAT, which says yes or no);
any other pattern is annealed. The sum of losses is annealed for all patterns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    Bound,
    Limit,
    Limits,
    OnEvent,
    Solution,
    Tick,
    uncounted,
)
from optmatch.problems import HostPlacement, SpectralProof
from optmatch.problems.placements import FREE_HOST
from optmatch.solvers.frame import stoppable
from optmatch.solvers.params import PlacementParams
from optmatch.solvers.placements.annealing import Circuits, Cooling, PortUse, anneal
from optmatch.solvers.placements.cliques import search_clique
from optmatch.solvers.placements.progress import PlacementSearch, candidates_of

_STAYS = 1 << 60
"""In a list of tabu moves: a port that stays where it is for good."""

_FEW_PORTS = 10
"""So few ports, that CP-SAT proves the answer in less than a second."""

_EXACT_WORK_S = 2.0
"""The work of one such model, in seconds as CP-SAT counts them."""

_FIRST_TEMPERATURE = 0.3
_LAST_TEMPERATURE = 0.03
"""Of annealing, in circuits above the threshold. Between half and twice of them 64 hosts of a
demand on 128 ports lose as much to 0.05 dB."""


def solve_best(
    problem: HostPlacement,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
    params: PlacementParams | None = None,
) -> Solution:
    """Place hosts by the search that fits their pattern; the default.

    64 hosts on 320 ports take some seconds. On up to ten ports CP-SAT settles what is left.
    """
    params = params or PlacementParams()
    search = PlacementSearch(problem, limits, rng, on_event, "best")
    with stoppable() as stop:
        on_event(Tick("best", 0, 1))
        if start is not None and start.answer is not None:
            _take_up(search, start)
        if search.clock.remaining_s <= 0:
            search.limit = Limit.TIME
        elif not search.is_closed:
            _search(search, params)
    return search.conclude(stop.limit)


def _take_up(search: PlacementSearch, start: Solution) -> None:
    """Keep a former answer if it is one to this problem, too."""
    former = start.answer.port_of_host
    candidates = candidates_of(search.problem)
    fits = len(former) == search.problem.n_hosts and len(set(former.tolist())) == len(former)
    fits = fits and former.max(initial=0) < search.problem.fabric.n_ports
    if fits and candidates[np.arange(len(former)), former].all():
        search.keep(former)


def _search(search: PlacementSearch, params: PlacementParams) -> None:
    """Choose the search by objective and pattern, and let CP-SAT finish what is small."""
    problem = search.problem
    is_free = all(port == FREE_HOST for port in problem.held)
    if problem.objective == "total-loss-db":
        _anneal_total(search, params)
        if search.best is None and problem.pattern == "all-to-all":
            _prove_impossible(search, params)
    elif problem.pattern == "all-to-all":
        _search_cliques(search, params)
        _prove_by_eigenvalue(search, params)
    elif problem.pattern == "ring" and is_free:
        _search_rings(search, params)
    else:
        _anneal_worst(search, params)
    if not search.is_closed and len(problem.fabric.live_ports) <= _FEW_PORTS:
        with uncounted():
            from optmatch.solvers.placements.exact import settle_exactly

        settle_exactly(search, _EXACT_WORK_S)


def _draw_placement(search: PlacementSearch) -> NDArray[np.int64]:
    """Draw a port for each host that has none."""
    problem = search.problem
    port_of = np.array(problem.held or (FREE_HOST,) * problem.n_hosts, dtype=np.int64)
    open_ports = np.setdiff1d(problem.fabric.live_ports, port_of[port_of != FREE_HOST])
    without = port_of == FREE_HOST
    port_of[without] = search.rng.permutation(open_ports)[: np.count_nonzero(without)]
    return port_of


def _search_cliques(search: PlacementSearch, params: PlacementParams) -> None:
    """Lower the threshold of an all-to-all by tabu search, in a bisection.

    A threshold at which nothing is found counts as too low from then on, and proves nothing.
    """
    problem = search.problem
    # Two hosts send to each other, so of each pair of ports the worse direction counts.
    worse_db = np.maximum(search.loss_db, search.loss_db.T)
    floor_db = -np.inf
    members = _draw_placement(search)
    search.keep(members)
    while not search.is_closed and search.clock.remaining_s > 0:
        threshold_db = search.next_threshold(floor_db)
        if threshold_db <= floor_db:
            return
        apart = worse_db > threshold_db
        np.fill_diagonal(apart, False)

        # Exchanges begin with the best set so far; held and dead ports are never exchanged.
        is_member = np.zeros(problem.fabric.n_ports, dtype=bool)
        is_member[members if search.best is None else search.best] = True
        tabu_until = np.zeros(problem.fabric.n_ports, dtype=np.int64)
        tabu_until[list(problem.fabric.dead_ports)] = _STAYS
        tabu_until[[port for port in problem.held if port != FREE_HOST]] = _STAYS
        n_conflicts = np.zeros(problem.fabric.n_ports, dtype=np.int64)
        seed = int(search.rng.integers(1 << 30))
        n_left = search_clique(apart, is_member, tabu_until, n_conflicts, (params.exchanges, seed))
        if n_left:
            floor_db = threshold_db
            continue

        # Hosts of an all-to-all are alike: those that have a port keep it, others take any.
        port_of = np.array(problem.held or (FREE_HOST,) * problem.n_hosts, dtype=np.int64)
        new_ports = np.setdiff1d(np.flatnonzero(is_member), port_of)
        port_of[port_of == FREE_HOST] = new_ports
        search.keep(port_of)


def _prove_worst_loss(
    search: PlacementSearch, params: PlacementParams, threshold_db: float
) -> bool:
    """Try to show that some circuit of an all-to-all loses `threshold_db` or more."""
    with uncounted():
        from optmatch.solvers.placements.spectral import bound_joint_ports

    worse_db = np.maximum(search.loss_db, search.loss_db.T)
    apart = worse_db >= threshold_db
    np.fill_diagonal(apart, False)
    n_hosts = search.problem.n_hosts
    entries = bound_joint_ports(apart, n_hosts, search.clock, params.eigenvalue_steps)
    if entries is None:
        return False
    if threshold_db > search.bound_db:
        search.bound_db = threshold_db
        search.bound_by = ""
        entries = np.where(apart, entries, 0.0)
        search.certificate = SpectralProof(threshold_db=threshold_db, entries=entries)
        search.on_event(Bound(threshold_db))
    return True


def _prove_impossible(search: PlacementSearch, params: PlacementParams) -> bool:
    """Try to show that some circuit of an all-to-all is over its budget, wherever hosts are."""
    return _prove_worst_loss(search, params, np.inf)


def _prove_by_eigenvalue(search: PlacementSearch, params: PlacementParams) -> None:
    """Raise the bound of an all-to-all by eigenvalues, as near to the best answer as they reach.

    The first threshold is just below the best answer, or the budgets where there is none; the
    distance to it doubles until a proof is found, and then a bisection goes back once or twice.
    """
    # Nothing above the best answer can be proved, or above the largest loss if there is none.
    top_db = search.best_db
    if search.best is None:
        top_db = float(search.thresholds_db[-1])
    if search.best is None and _prove_impossible(search, params):
        return
    distance_db = 0.0
    failed_at_db = top_db
    while top_db - distance_db > search.bound_db and search.clock.remaining_s > 0:
        if _prove_worst_loss(search, params, top_db - distance_db):
            break
        failed_at_db = top_db - distance_db
        distance_db = max(2 * distance_db, params.bound_step_db)

    # What lies between the last failure and the proof is halved: each try takes as long as the
    # first ones, so there are two.
    for _halving in range(2):
        middle_db = (search.bound_db + failed_at_db) / 2
        if failed_at_db - search.bound_db < params.bound_step_db:
            break
        if search.clock.remaining_s <= 0 or search.certificate is None:
            break
        if not _prove_worst_loss(search, params, middle_db):
            failed_at_db = middle_db


def _search_rings(search: PlacementSearch, params: PlacementParams) -> None:
    """Close in on the best ring by CP-SAT: a threshold has a ring, or is proved to have none."""
    with uncounted():
        from optmatch.solvers.placements.rings import find_ring

    # Few circuits make small models, so thresholds rise from the bound, by more each time, until
    # there is a ring.
    search.keep(_draw_placement(search))
    n_more = search.problem.fabric.n_ports
    while not search.is_closed:
        threshold_db = min(search.next_threshold(), search.threshold_above_bound(n_more))
        n_more *= 2
        verdict = find_ring(
            search.loss_db <= threshold_db,
            search.problem.n_hosts,
            search.clock,
            params.ring_work_s,
            int(search.rng.integers(1 << 30)),
        )
        if verdict.ports is not None:
            search.keep(verdict.ports)
        elif verdict.impossible:
            search.raise_bound(threshold_db, "cp-sat")
        else:
            search.limit = search.clock.exceeded(0) or Limit.EXHAUSTED
            return


class _Annealer:
    """Annealing of one problem, by costs that change from run to run."""

    def __init__(self, search: PlacementSearch, n_steps: int) -> None:
        problem = search.problem
        self.search = search
        self.n_steps = n_steps
        self.circuits = Circuits.of(problem.pairs, problem.n_hosts)
        held = np.array(problem.held or (FREE_HOST,) * problem.n_hosts)
        self.hosts = np.flatnonzero(held == FREE_HOST)
        self.ports = np.setdiff1d(problem.fabric.live_ports, held).astype(np.int64)

    def run(
        self,
        port_of: NDArray[np.int64],
        cost: NDArray[np.float64],
        temperature: float,
        enough: float,
    ) -> tuple[float, NDArray[np.int64]]:
        """Anneal from a placement; return the best cost, and its ``port_of[host]``."""
        host_at = np.full(len(cost), -1, dtype=np.int64)
        host_at[port_of] = np.arange(len(port_of))
        best_port_of = port_of.copy()
        cooling = Cooling(
            self.n_steps,
            temperature,
            temperature * _LAST_TEMPERATURE / _FIRST_TEMPERATURE,
            enough,
            int(self.search.rng.integers(1 << 30)),
        )
        use = PortUse(port_of.copy(), host_at)
        movable = (self.hosts, self.ports)
        best_cost = anneal(self.circuits, use, movable, cost, cooling, best_port_of)
        return best_cost, best_port_of


def _anneal_worst(search: PlacementSearch, params: PlacementParams) -> None:
    """Lower the threshold by annealing, in a bisection; a circuit above it costs 1 and its excess.

    A threshold that is not reached counts as too low from then on, and proves nothing.
    """
    annealer = _Annealer(search, params.annealing_steps)
    if not len(annealer.hosts):
        search.keep(np.array(search.problem.held))
        return
    # An infinite loss counts as one that is far above all others.
    largest_db = float(search.thresholds_db[-1])
    finite_db = np.where(np.isfinite(search.loss_db), search.loss_db, 2 * largest_db + 1)
    port_of = _draw_placement(search)
    search.keep(port_of)
    floor_db = -np.inf
    while not search.is_closed and search.clock.remaining_s > 0:
        threshold_db = largest_db
        if search.best is not None:
            port_of = search.best
            threshold_db = search.next_threshold(floor_db)
        if threshold_db <= floor_db:
            return

        # Each circuit above the threshold counts, and those far above count more.
        excess_db = np.maximum(0.0, finite_db - threshold_db)
        cost = np.where(excess_db > 0, 1.0 + excess_db, 0.0)
        _, port_of = annealer.run(port_of, cost, _FIRST_TEMPERATURE, 0.5)
        before_db = search.best_db
        search.keep(port_of)
        if search.problem.objective_of(port_of) > threshold_db:
            floor_db = threshold_db
            if before_db == np.inf and search.best is None:
                return


def _anneal_total(search: PlacementSearch, params: PlacementParams) -> None:
    """Anneal the sum of losses, once from each of some random placements."""
    annealer = _Annealer(search, params.annealing_steps)
    if not len(annealer.hosts):
        search.keep(np.array(search.problem.held))
        return
    # A circuit that cannot be used costs as much as a hundred of the worst ones.
    largest_db = float(search.thresholds_db[-1])
    cost = np.where(np.isfinite(search.loss_db), search.loss_db, 100 * (largest_db + 0.01))
    spread_db = float(np.std(search.loss_db[np.isfinite(search.loss_db)])) or 1e-3
    for _start in range(params.starts):
        if search.is_closed or search.clock.remaining_s <= 0:
            return
        _, port_of = annealer.run(_draw_placement(search), cost, 3 * spread_db, -np.inf)
        search.keep(port_of)
