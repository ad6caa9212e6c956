"""Method `best` for placements: heuristics and bounds by the pattern of the circuits.

The worst loss is one of the losses of circuits. All searches ask the same question for one
threshold after another: can all circuits be had without exceeding it? An all-to-all is a clique
(tabu search, and an eigenvalue that says no); a ring is a cycle (CP-SAT, which says yes or no);
any other pattern is searched by min-conflicts, and shaving says no. The sum of losses is annealed
for all patterns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    Limit,
    Limits,
    OnEvent,
    Solution,
    Tick,
    uncounted,
)
from optmatch.problems import HostPlacement, ShavingProof, SpectralProof
from optmatch.problems.placements import FREE_HOST
from optmatch.solvers.frame import run_in_portions, stoppable
from optmatch.solvers.params import PlacementParams
from optmatch.solvers.placements.annealing import AnnealingState, Cooling, anneal
from optmatch.solvers.placements.circuits import Circuits
from optmatch.solvers.placements.cliques import CliqueState, search_clique
from optmatch.solvers.placements.conflicts import ConflictState, reduce_conflicts
from optmatch.solvers.placements.progress import PlacementSearch, candidates_of
from optmatch.solvers.placements.shaving import Shaving

_FEW_PORTS = 10
"""Up to so many ports CP-SAT proves the answer in less than a second."""

_EXACT_WORK_S = 2.0
"""The work of one such model, in seconds as CP-SAT counts them."""

_COOLING = 0.1
"""The last temperature of annealing, as a share of the first one."""

_MAX_ROUNDS = 20
"""Each round makes twice the effort of the last one, so no limit of time lets so many begin."""


def solve_best(
    problem: HostPlacement,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    start: Solution | None = None,
    params: PlacementParams | None = None,
) -> Solution:
    """Place hosts by the search that fits their pattern; the default.

    For 64 hosts on 320 ports the answer comes in the first second, and the bound and its check
    take up to half a minute. On up to ten ports CP-SAT settles what is left. With a limit of time
    the searches begin again, each time with twice the effort, until it is over.

    Parameters
    ----------
    problem
        The placement: hosts get ports of a switch so that their circuits lose least.
    limits
        When the search has to end.
    rng
        Random numbers of the search.
    on_event
        Is called with each better answer and bound.
    start
        A former solution, whose placement is the first one if it fits this problem; or None.
    params
        How many steps and trials the searches make; None for the defaults.

    Returns
    -------
    Solution
        The best placement that was found, and a bound of its objective, in dB.
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
    """Keep a former answer as the first one if it answers this problem, too.

    It does if it has as many hosts, each with a port of its own that the host may have here.

    Parameters
    ----------
    search
        The search that has just begun.
    start
        A former solution, of this problem or another placement; ``port_of_host[host]`` is its
        answer.
    """
    former = start.answer.port_of_host
    candidates = candidates_of(search.problem)
    fits = len(former) == search.problem.n_hosts and len(set(former.tolist())) == len(former)
    fits = fits and former.max(initial=0) < search.problem.fabric.n_ports
    if fits and candidates[np.arange(len(former)), former].all():
        search.keep(former)


def _search(search: PlacementSearch, params: PlacementParams) -> None:
    """Search in rounds: one without a limit of time, else until it is over.

    Parameters
    ----------
    search
        The best placement and the bound so far; both are improved.
    params
        The steps and trials of the first round; each further round makes twice as many.
    """
    for round_number in range(_MAX_ROUNDS):
        _search_once(search, params, 2**round_number)
        if search.is_closed:
            search.limit = None
            return

        # A small problem is settled by CP-SAT, so that no second round is needed.
        if round_number == 0 and len(search.problem.fabric.live_ports) <= _FEW_PORTS:
            with uncounted():
                from optmatch.solvers.placements.exact import settle_exactly

            settle_exactly(search, _EXACT_WORK_S)
        has_no_limit = search.clock.remaining_s == np.inf
        if search.is_closed or has_no_limit:
            return
        search.limit = search.clock.exceeded(0)
        if search.limit is not None:
            return


def _search_once(search: PlacementSearch, params: PlacementParams, effort: int) -> None:
    """Search for answers and bounds once, by the methods that fit objective and pattern.

    A sum of losses is annealed; only that nothing keeps to the budgets can be proved of it. For
    the worst loss, an all-to-all needs a clique of ports (tabu search, and eigenvalues for the
    bound), a ring without hosts that have a port already a cycle (CP-SAT), and all else takes
    min-conflicts and shaving.

    Parameters
    ----------
    search
        The best placement and the bound so far; both are improved.
    params
        The numbers of steps and trials.
    effort
        By how much all numbers of steps and trials are multiplied.
    """
    problem = search.problem
    is_free = all(port == FREE_HOST for port in problem.held)
    if problem.objective == "total-loss-db":
        _anneal_total(search, params.starts * effort, params.annealing_steps)
        if search.best is None and problem.pattern == "all-to-all":
            _prove_impossible(search, params.eigenvalue_steps * effort)
        elif search.best is None:
            _prove_by_shaving(search, params.trials * effort, params.bound_step_db)
    elif problem.pattern == "all-to-all":
        _search_cliques(search, params.exchanges * effort)
        _prove_by_eigenvalue(search, params.eigenvalue_steps * effort, params.bound_step_db)
    elif problem.pattern == "ring" and is_free:
        _search_rings(search, params.ring_work_s * effort)
    else:
        _reduce_worst(search, params.moves * effort)
        _prove_by_shaving(search, params.trials * effort, params.bound_step_db)


def _draw_placement(search: PlacementSearch) -> NDArray[np.int64]:
    """Draw a port for each host that has none, all different and uniformly among the open ports.

    Parameters
    ----------
    search
        Its problem says which hosts have a port already (``held[host]``, `FREE_HOST` without one)
        and which ports are live; its random numbers go on.

    Returns
    -------
    NDArray
        ``port_of[host]``; int64, shape (hosts,).
    """
    problem = search.problem
    port_of = np.array(problem.held or (FREE_HOST,) * problem.n_hosts, dtype=np.int64)
    open_ports = np.setdiff1d(problem.fabric.live_ports, port_of[port_of != FREE_HOST])
    without = port_of == FREE_HOST
    port_of[without] = search.rng.permutation(open_ports)[: np.count_nonzero(without)]
    return port_of


def _search_cliques(search: PlacementSearch, n_exchanges: int) -> None:
    """Lower the worst loss of an all-to-all by tabu search for cliques, in a bisection.

    At a threshold of loss, ports that lose more between each other are apart; hosts need a set of
    ports no two of which are apart, a clique. A threshold at which nothing is found counts as too
    low from then on, and proves nothing.

    Parameters
    ----------
    search
        The best placement so far, which is improved.
    n_exchanges
        The steps of tabu search for each threshold.
    """
    problem = search.problem
    # Two hosts send to each other, so of each pair of ports the worse direction counts.
    worse_db = np.maximum(search.loss_db, search.loss_db.T)
    # Held and dead ports are never exchanged.
    held_ports = [port for port in problem.held if port != FREE_HOST]
    fixed_ports = np.array([*problem.fabric.dead_ports, *held_ports], dtype=np.int64)
    floor_db = -np.inf
    members = _draw_placement(search)
    search.keep(members)
    while not search.is_closed and search.clock.remaining_s > 0:
        threshold_db = search.next_threshold(floor_db)
        if threshold_db <= floor_db:
            return
        is_excluded = worse_db > threshold_db
        np.fill_diagonal(is_excluded, False)

        # Exchanges begin with the best set so far.
        if search.best is not None:
            members = search.best
        state = CliqueState.start(is_excluded, members, fixed_ports, search.rng)

        def exchange(
            first: int,
            last: int,
            is_excluded: NDArray[np.bool_] = is_excluded,
            state: CliqueState = state,
        ) -> bool:
            """Make some steps of tabu search; tell whether the ports are a clique now.

            Parameters
            ----------
            first, last
                The first step, and the one behind the last.
            is_excluded, state
                Which pairs of ports are apart at the present threshold, and the set of ports.
            """
            return search_clique(is_excluded, state, first, last) == 0

        if not run_in_portions(search.clock, n_exchanges, exchange):
            floor_db = threshold_db
            continue

        # Hosts of an all-to-all are alike: those that have a port keep it, others take any.
        port_of = np.array(problem.held or (FREE_HOST,) * problem.n_hosts, dtype=np.int64)
        new_ports = np.setdiff1d(np.flatnonzero(state.is_member), port_of)
        port_of[port_of == FREE_HOST] = new_ports
        search.keep(port_of)


def _prove_worst_loss(search: PlacementSearch, n_steps: int, threshold_db: float) -> bool:
    """Try to show that some circuit of an all-to-all loses `threshold_db` or more.

    It is shown by a matrix whose largest eigenvalue is below the number of hosts: no set of so
    many ports has all pairs below that loss then.

    Parameters
    ----------
    search
        Takes the proof, if there is one.
    n_steps
        The most eigenvalue decompositions.
    threshold_db
        The loss, in dB; infinite to show that no placement keeps to the link budgets.

    Returns
    -------
    bool
        Whether it was shown.
    """
    with uncounted():
        from optmatch.solvers.placements.spectral import bound_joint_ports

    worse_db = np.maximum(search.loss_db, search.loss_db.T)
    is_excluded = worse_db >= threshold_db
    np.fill_diagonal(is_excluded, False)
    entries = bound_joint_ports(is_excluded, search.problem.n_hosts, search.clock, n_steps)
    if entries is None:
        return False
    proof = SpectralProof(threshold_db=threshold_db, entries=np.where(is_excluded, entries, 0.0))
    search.take_proof(threshold_db, proof)
    return True


def _prove_impossible(search: PlacementSearch, n_steps: int) -> bool:
    """Try to show that some circuit of an all-to-all is over its budget, wherever hosts are."""
    return _prove_worst_loss(search, n_steps, np.inf)


def _prove_by_eigenvalue(search: PlacementSearch, n_steps: int, step_db: float) -> None:
    """Raise the bound of an all-to-all by eigenvalues, as near to the best answer as they reach.

    The first threshold is just below the best answer, or the budgets where there is none; the
    distance to it doubles until a proof is found, and then a bisection goes back once or twice.

    Parameters
    ----------
    search
        What is known so far.
    n_steps
        The eigenvalue decompositions for each threshold.
    step_db
        How exact the bound is sought.
    """
    # Nothing above the best answer can be proved, or above the largest loss if there is none.
    top_db = search.best_db
    if search.best is None:
        top_db = float(search.thresholds_db[-1])
    if search.best is None and _prove_impossible(search, n_steps):
        return
    distance_db = 0.0
    failed_at_db = top_db
    while top_db - distance_db > search.bound_db and search.clock.remaining_s > 0:
        if _prove_worst_loss(search, n_steps, top_db - distance_db):
            break
        failed_at_db = top_db - distance_db
        distance_db = max(2 * distance_db, step_db)

    # The interval between the last failure and the proof is halved: each try takes as long as the
    # first ones, so there are two.
    for _halving in range(2):
        middle_db = (search.bound_db + failed_at_db) / 2
        if failed_at_db - search.bound_db < step_db:
            break
        if search.clock.remaining_s <= 0 or search.certificate is None:
            break
        if not _prove_worst_loss(search, n_steps, middle_db):
            failed_at_db = middle_db


def _search_rings(search: PlacementSearch, work_s: float) -> None:
    """Close in on the best ring of hosts by CP-SAT, threshold by threshold.

    A ring needs a cycle of circuits over as many ports as hosts. At a threshold of loss CP-SAT
    either finds a cycle of circuits below it, or proves that there is none, which raises the
    bound.

    Parameters
    ----------
    search
        The best placement and the bound so far; both are improved.
    work_s
        The most work for each threshold, in seconds as CP-SAT counts them.
    """
    with uncounted():
        from optmatch.solvers.placements.rings import find_ring

    # Few circuits make small models, so thresholds rise from the bound, by more each time, until
    # there is a ring.
    if search.best is None:
        search.keep(_draw_placement(search))
    n_more = search.problem.fabric.n_ports
    while not search.is_closed:
        threshold_db = min(search.next_threshold(), search.threshold_above_bound(n_more))
        n_more *= 2
        verdict = find_ring(
            search.loss_db <= threshold_db,
            search.problem.n_hosts,
            search.clock,
            work_s,
            int(search.rng.integers(1 << 30)),
        )
        if verdict.ports is not None:
            search.keep(verdict.ports)
        elif verdict.impossible:
            search.raise_bound(threshold_db, "cp-sat")
        else:
            search.limit = search.clock.exceeded(0) or Limit.EXHAUSTED
            return


def _movable(search: PlacementSearch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the hosts that have no port yet, and the ports that they may have.

    Parameters
    ----------
    search
        Its problem says which hosts have a port already (``held[host]``).

    Returns
    -------
    hosts, ports : NDArray
        Both ascending, int64. Ports are those that are live and that no host has already.
    """
    problem = search.problem
    port_of_host = np.array(problem.held or (FREE_HOST,) * problem.n_hosts, dtype=np.int64)
    open_ports = np.setdiff1d(problem.fabric.live_ports, port_of_host).astype(np.int64)
    return np.flatnonzero(port_of_host == FREE_HOST), open_ports


def _reduce_worst(search: PlacementSearch, n_moves: int) -> None:
    """Lower the threshold by min-conflicts until one is not reached, which proves nothing.

    Each threshold is just below the best answer, and the search goes on from there: an answer
    with some circuits less at the top is near.

    Parameters
    ----------
    search
        The best placement so far, which is improved.
    n_moves
        The most steps, each the move of one host, for each threshold.
    """
    hosts, open_ports = _movable(search)
    port_of = _draw_placement(search)
    search.keep(port_of)
    if not len(hosts):
        return
    circuits = Circuits.of(search.problem.pairs, search.problem.n_hosts)
    # Without an answer within the budgets, the first threshold is the largest loss of a circuit.
    threshold_db = float(search.thresholds_db[-1])
    if search.problem.objective_of(port_of) < np.inf:
        threshold_db = search.loss_below(search.problem.objective_of(port_of))
    while not search.is_closed and search.clock.remaining_s > 0:
        is_above = (search.loss_db > threshold_db).astype(np.int64)
        np.fill_diagonal(is_above, 0)
        state = ConflictState.start(circuits, is_above, port_of, open_ports, search.rng)
        fewest = np.array([1 << 60])

        def move_hosts(
            first: int,
            last: int,
            is_above: NDArray[np.int64] = is_above,
            state: ConflictState = state,
            fewest: NDArray[np.int64] = fewest,
        ) -> bool:
            """Make some steps of min-conflicts; tell whether all circuits keep to the threshold.

            The values of the present threshold are bound as defaults, since each threshold has its
            own.

            Parameters
            ----------
            first, last
                The first step, and the one behind the last.
            is_above, state, fewest
                Which pairs of ports are above the threshold, the placement, and the fewest
                conflicts so far.
            """
            return reduce_conflicts(circuits, is_above, state, fewest, (first, last)) == 0

        if not run_in_portions(search.clock, n_moves, move_hosts):
            return
        port_of = state.port_of
        search.keep(port_of)
        threshold_db = search.loss_below(search.problem.objective_of(port_of))


def _prove_by_shaving(search: PlacementSearch, n_trials: int, step_db: float) -> None:
    """Raise the bound by shaving, in a bisection of the thresholds up to the best answer.

    Shaving puts hosts on ports for a trial and removes those ports that leave another host without
    one. If a host has no port left, every placement has a circuit that loses the threshold or
    more. Without an answer it is tried first whether any placement keeps to the budgets.

    Parameters
    ----------
    search
        What is known so far.
    n_trials
        The trials for each threshold.
    step_db
        How exact the bound is sought.
    """
    if search.best is None:
        shaving = Shaving(search.problem, np.isfinite(search.loss_db))
        proof = shaving.search(search.clock, n_trials)
        if proof is not None:
            search.take_proof(np.inf, ShavingProof(threshold_db=np.inf, removed=proof))
            return
    # Nothing above the best answer can be proved; a threshold that fails is the ceiling of the
    # next ones.
    ceiling_db = min(search.best_db, float(search.thresholds_db[-1]))
    while search.clock.remaining_s > 0:
        between_db = search.thresholds_between(search.bound_db, ceiling_db)
        if not len(between_db) or ceiling_db - search.bound_db < step_db:
            return
        threshold_db = float(between_db[(len(between_db) - 1) // 2])
        shaving = Shaving(search.problem, search.loss_db < threshold_db)
        proof = shaving.search(search.clock, n_trials)
        if proof is None:
            ceiling_db = threshold_db
        else:
            search.take_proof(threshold_db, ShavingProof(threshold_db=threshold_db, removed=proof))


def _anneal_total(search: PlacementSearch, n_starts: int, n_steps: int) -> None:
    """Anneal the sum of losses, once from each of some random placements.

    Parameters
    ----------
    search
        The best placement so far, which is improved.
    n_starts
        How many random placements are annealed.
    n_steps
        The steps of each annealing.
    """
    hosts, open_ports = _movable(search)
    if not len(hosts):
        search.keep(np.array(search.problem.held))
        return
    # A circuit that cannot be used costs as much as a hundred of the worst ones.
    circuits = Circuits.of(search.problem.pairs, search.problem.n_hosts)
    sources, destinations = search.problem.pairs.T
    largest_db = float(search.thresholds_db[-1])
    cost = np.where(np.isfinite(search.loss_db), search.loss_db, 100 * (largest_db + 0.01))
    # Temperatures are multiples of how much losses differ.
    spread_db = float(np.std(search.loss_db[np.isfinite(search.loss_db)])) or 1e-3
    cooling = Cooling(3 * spread_db, 3 * spread_db * _COOLING, n_steps)
    for _start in range(n_starts):
        if search.is_closed or search.clock.remaining_s <= 0:
            return
        port_of = _draw_placement(search)
        total_db = float(cost[port_of[sources], port_of[destinations]].sum())
        state = AnnealingState.start(port_of, (hosts, open_ports), len(cost), total_db, search.rng)

        def cool(first: int, last: int, state: AnnealingState = state) -> bool:
            """Make some steps of annealing; False, as there is no reason to stop early.

            Parameters
            ----------
            first, last
                The first step, and the one behind the last.
            state
                The placement that is annealed.
            """
            anneal(circuits, cost, state, cooling, (first, last))
            return False

        run_in_portions(search.clock, n_steps, cool)
        search.keep(state.best_port_of)
