"""The state of a search for a placement: the best answer, the bound, and what is asked next."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import RTOL, Bound, Clock, Limit, Limits, NewBest, OnEvent, Solution
from optmatch.problems import HostPlacement, HostPorts, ShavingProof, SpectralProof
from optmatch.problems.placements import FREE_HOST
from optmatch.solvers.frame import conclude


def candidates_of(problem: HostPlacement) -> NDArray[np.bool_]:
    """Return ``candidates[host, port]``: whether a host may get a port.

    A host that holds a port already keeps it, and nobody else gets it; all others may have any
    port that is not dead.

    Parameters
    ----------
    problem
        The placement; ``held[host]`` is a port, or `FREE_HOST` for a host without one.

    Returns
    -------
    bool array, shape (hosts, ports)
    """
    candidates = np.zeros((problem.n_hosts, problem.fabric.n_ports), dtype=bool)
    candidates[:, problem.fabric.live_ports] = True
    for host, port in enumerate(problem.held):
        if port != FREE_HOST:
            candidates[:, port] = False
            candidates[host, :] = False
    for host, port in enumerate(problem.held):
        if port != FREE_HOST:
            candidates[host, port] = True
    return candidates


class PlacementSearch:
    """The best placement so far, and what is proved of the objective.

    Attributes
    ----------
    loss_db
        ``loss_db[source port, destination port]``, infinite where no circuit can be.
    best
        ``best[host]``: the ports of the best answer; None while there is none.
    thresholds_db
        All different losses of circuits that can be, ascending; the worst loss is one of them.
    best_db, bound_db
        Its objective, infinite without one, and the bound; in dB.
    bound_by
        ``"cp-sat"`` if a search without certificate shows the bound; empty otherwise.
    certificate
        The proof of the bound, if it needs one.
    limit
        Why the search ended early; None if it did not.
    """

    def __init__(
        self,
        problem: HostPlacement,
        limits: Limits,
        rng: np.random.Generator,
        on_event: OnEvent,
        name: str,
    ) -> None:
        """Begin a search for a placement, without an answer and with the bound of the problem.

        Parameters
        ----------
        problem
            The placement: hosts get ports so that their circuits lose least, in dB.
        limits
            When the search has to end; its clock starts now.
        rng
            Random numbers of the search.
        on_event
            Is called with each better answer and bound.
        name
            The name of the method in the solution.
        """
        self.problem = problem
        self.clock: Clock = limits.start()
        self.rng = rng
        self.on_event = on_event
        self.name = name
        self.loss_db = problem.usable_loss_db
        self.best: NDArray[np.int64] | None = None
        self.best_db = np.inf
        self.bound_db = problem.lower_bound()
        self.bound_by = ""
        self.certificate: SpectralProof | ShavingProof | None = None
        self.limit: Limit | None = None
        self.thresholds_db = np.unique(self.loss_db[np.isfinite(self.loss_db)])

    @property
    def is_closed(self) -> bool:
        """Whether the answer is as good as the bound, or there is none."""
        return self.bound_db == np.inf or self.best_db <= self.bound_db * (1 + RTOL)

    def keep(self, port_of_host: NDArray[np.integer]) -> None:
        """Keep a placement if it is better.

        Parameters
        ----------
        port_of_host
            The port of each host; it is copied. Its objective, in dB, is infinite if a circuit is
            over its budget, and it is not kept then.
        """
        objective_db = self.problem.objective_of(port_of_host)
        if objective_db < self.best_db:
            self.best = np.asarray(port_of_host, dtype=np.int64).copy()
            self.best_db = objective_db
            self.on_event(NewBest(objective_db))

    def next_threshold(self, floor_db: float = -np.inf) -> float:
        """Return the loss in the middle between bound and best answer, for a binary search.

        The worst loss of an answer is one of the losses of circuits (`thresholds_db`, ascending).
        An answer that keeps to the returned loss is better than the best one.

        Parameters
        ----------
        floor_db
            A loss below which nothing is sought, in dB.

        Returns
        -------
        float
            In dB, below the objective of the best answer; 0 if no circuit can be used.
        """
        if not len(self.thresholds_db):
            return 0.0  # there is no circuit, and none is needed
        low = int(np.searchsorted(self.thresholds_db, max(self.bound_db, floor_db)))
        high = int(np.searchsorted(self.thresholds_db, self.best_db))
        return float(self.thresholds_db[min((low + high) // 2, high - 1)])

    def threshold_above_bound(self, n_more: int) -> float:
        """Return the loss that is so many larger than the bound in the list of all losses."""
        place = int(np.searchsorted(self.thresholds_db, self.bound_db)) + n_more
        return float(self.thresholds_db[min(place, len(self.thresholds_db) - 1)])

    def loss_below(self, loss_db: float) -> float:
        """Return the largest loss of a circuit below one; -1 if there is none."""
        place = int(np.searchsorted(self.thresholds_db, loss_db))
        return float(self.thresholds_db[place - 1]) if place else -1.0

    def thresholds_between(self, low_db: float, high_db: float) -> NDArray[np.float64]:
        """Return the losses of circuits above one, up to another one; ascending."""
        first = int(np.searchsorted(self.thresholds_db, low_db, side="right"))
        last = int(np.searchsorted(self.thresholds_db, high_db))
        return self.thresholds_db[first:last]

    def take_proof(self, threshold_db: float, proof: SpectralProof | ShavingProof) -> None:
        """Take a proof that some circuit of every answer loses so much, or more.

        Parameters
        ----------
        threshold_db
            The loss in dB, which is a bound then; infinite if there is no answer at all.
        proof
            The certificate, which the verifier can check.
        """
        if threshold_db > self.bound_db:
            self.bound_db = threshold_db
            self.bound_by = ""
            self.certificate = proof
            self.on_event(Bound(threshold_db))

    def raise_bound(self, threshold_db: float, bound_by: str) -> None:
        """Note that every answer has a circuit that loses more than a threshold.

        The worst circuit of every answer then loses as much as the next larger loss of a circuit,
        or there is no answer, and the bound is infinite. A bound that is no better is passed over.
        There is no certificate.

        Parameters
        ----------
        threshold_db
            The loss that no answer keeps to, in dB.
        bound_by
            Which search has shown it.
        """
        place = int(np.searchsorted(self.thresholds_db, threshold_db, side="right"))
        bound_db = np.inf
        if place < len(self.thresholds_db):
            bound_db = float(self.thresholds_db[place])
        if bound_db > self.bound_db:
            self.bound_db = bound_db
            self.bound_by = bound_by
            self.certificate = None
            self.on_event(Bound(bound_db))

    def conclude(self, limit: Limit | None) -> Solution:
        """Make a solution of what is known at the end of the search.

        Parameters
        ----------
        limit
            The limit that has ended the search; None if it came to its end, or if an earlier part
            has noted the limit itself.

        Returns
        -------
        Solution
            The best placement with its objective, the bound and its certificate; without an answer
            if none was found.
        """
        stats: dict[str, Any] = {"bound_by": self.bound_by} if self.bound_by else {}
        limit = limit or self.limit
        if self.best is None:
            # An infinite bound is a proof that nothing answers the problem.
            if self.bound_db == np.inf:
                stats["reason"] = "no ports for all hosts have only circuits within their budgets"
            return conclude(
                self.problem,
                self.name,
                None,
                self.bound_db,
                limit,
                certificate=self.certificate,
                stats=stats,
            )
        return conclude(
            self.problem,
            self.name,
            self.best_db,
            self.bound_db,
            limit,
            answer=HostPorts(port_of_host=self.best),
            certificate=self.certificate,
            stats=stats,
        )
