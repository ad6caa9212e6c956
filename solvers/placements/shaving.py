"""Shaving: shows that hosts cannot be placed if only some pairs of ports may be joined.

A host is put on a port for a trial, and what follows from it is propagated. If some host then has
no port left, the first one is never on that port. Repeated until some host has no port at all, or
until trials find little (singleton arc consistency, Debruyne and Bessière 1997). The list of what
was found is a proof: whoever repeats the trials in its order comes to the same end.

Sets of ports are rows of words, 62 ports a word; only the functions on top of this module know it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock
from optmatch.problems import HostPlacement
from optmatch.solvers.frame import run_in_portions
from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.placements.circuits import Circuits
from optmatch.solvers.placements.progress import candidates_of

_PORTS_PER_WORD = 62
"""The ports of a word; no word is negative, in a kernel as well as in plain Python."""

_LEAST_YIELD = 0.03
"""The share of trials that have to remove a port, looked at after each portion of trials.

With 64 hosts on 128 ports, thresholds 0.05 dB above what 60,000 trials prove have a share of 0.01;
0.15 ends proofs that take 10,000 trials, since the first hosts lose few ports.
"""

_TRIALS_BEFORE_YIELD = 1000
"""From so many trials on the yield counts."""


def sets_of_ports(is_in: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Pack sets of ports into words of `_PORTS_PER_WORD` bits, one bit for each port.

    Parameters
    ----------
    is_in
        ``is_in[row, port]``: whether a set has a port; bool, shape (sets, ports).

    Returns
    -------
    NDArray
        ``words[row, word]``; int64, shape (sets, words). Port p is bit p mod `_PORTS_PER_WORD` of
        word p // `_PORTS_PER_WORD`.
    """
    n_rows, n_ports = is_in.shape
    words = np.zeros((n_rows, -(-n_ports // _PORTS_PER_WORD)), dtype=np.int64)
    for port in range(n_ports):
        words[is_in[:, port], port // _PORTS_PER_WORD] |= 1 << (port % _PORTS_PER_WORD)
    return words


@inner_kernel
def _has(words: NDArray[np.int64], port: int) -> bool:
    """Return whether a set has a port."""
    return bool((words[port // _PORTS_PER_WORD] >> (port % _PORTS_PER_WORD)) & 1)


@inner_kernel
def _remove(words: NDArray[np.int64], port: int) -> None:
    """Take a port out of a set that has it."""
    words[port // _PORTS_PER_WORD] ^= 1 << (port % _PORTS_PER_WORD)


@inner_kernel
def _keep_only(words: NDArray[np.int64], port: int) -> None:
    """Make a set hold one port alone."""
    words[:] = 0
    words[port // _PORTS_PER_WORD] = 1 << (port % _PORTS_PER_WORD)


@inner_kernel
def _shares_with(words: NDArray[np.int64], other_words: NDArray[np.int64], enough: int) -> bool:
    """Return whether two sets have at least `enough` ports in common.

    A set of ports is stored in words of `_PORTS_PER_WORD` bits, one bit for each port.

    Parameters
    ----------
    words, other_words
        The two sets; int64, shape (words,).
    enough
        The number of common ports; 0 is always reached.
    """
    n_common = 0
    for word in range(len(words)):
        common = words[word] & other_words[word]
        # Each pass takes one common port away and counts it.
        while common != 0 and n_common < enough:
            common &= common - 1  # without its lowest port
            n_common += 1
    return n_common >= enough


class FittingPorts(NamedTuple):
    """The circuits that are needed, and those that may be used."""

    circuits: Circuits
    """The circuits that are needed, by host."""
    n_out: NDArray[np.int64]
    """``n_out[host]``: the hosts that it sends to."""
    n_in: NDArray[np.int64]
    """``n_in[host]``: the hosts that send to it."""
    reached: NDArray[np.int64]
    """``reached[port]``: the set of ports to which a circuit may go."""
    reaching: NDArray[np.int64]
    """``reaching[port]``: the set of ports from which a circuit may come."""

    @classmethod
    def of(cls, problem: HostPlacement, is_allowed: NDArray[np.bool_]) -> FittingPorts:
        """Put together the circuits that hosts need and those that ports allow, for kernels.

        Parameters
        ----------
        problem
            The placement; ``pairs[circuit]`` are the source and the destination host of a circuit.
        is_allowed
            ``is_allowed[source port, destination port]``: the circuits that may be used; bool,
            shape (ports, ports).

        Returns
        -------
        FittingPorts
            The circuits by host; the number of hosts that each host sends to (``n_out``) and that
            send to it (``n_in``); and for each port the sets of ports to which a circuit may go
            (``reached``) and from which one may come (``reaching``).
        """
        sources, destinations = problem.pairs.T
        return cls(
            Circuits.of(problem.pairs, problem.n_hosts),
            np.bincount(sources, minlength=problem.n_hosts),
            np.bincount(destinations, minlength=problem.n_hosts),
            sets_of_ports(is_allowed),
            sets_of_ports(is_allowed.T),
        )


class TrialScratch(NamedTuple):
    """Arrays that propagation works in."""

    unions: NDArray[np.int64]
    """Three sets of ports, shape (3, words)."""
    is_stale: NDArray[np.bool_]
    """``is_stale[host]``: whether a partner has lost ports since the host was looked at."""


class ShavingState(NamedTuple):
    """What is known of the ports of hosts, and arrays to try in; a kernel changes all of it."""

    domain: NDArray[np.int64]
    """``domain[host]``: the set of ports that the host may still have."""
    trial: NDArray[np.int64]
    """Likewise during a trial; shape of `domain`."""
    scratch: TrialScratch
    """Arrays that propagation works in."""
    removed: NDArray[np.int32]
    """``removed[k] = host, port``: what has been found, in its order; shape (most, 2)."""
    counts: NDArray[np.int64]
    """The number of rows of `removed`, the next host in `order`, and its next port; shape (3,)."""
    order: NDArray[np.int64]
    """The order in which hosts are tried."""


_REMOVED = 0
_NEXT_HOST = 1
_NEXT_PORT = 2
"""Places in `ShavingState.counts`."""


@inner_kernel
def _can_be(
    network: FittingPorts,
    domain: NDArray[np.int64],
    unions: NDArray[np.int64],
    host: int,
    port: int,
) -> bool:
    """Return whether the partners of a host all have ports that fit if the host is on a port.

    Each partner, a host at the other end of a circuit, needs a port that fits, and all partners
    together as many as they are. A set of ports is stored in words of `_PORTS_PER_WORD` bits, one
    bit for each port.

    Parameters
    ----------
    network
        The circuits by host (those of host h are at the places ``first[h]`` to ``first[h + 1]``),
        and for each port the sets of ports that a circuit may go to (``reached``) and come from
        (``reaching``).
    domain
        ``domain[host]``: the set of ports that a host may still have; int64, shape (hosts, words).
    unions
        The union of these sets over all hosts that the host sends to, and over all that send to
        it; shape (2, words).
    host, port
        The host, and the port that is asked for.
    """
    circuits = network.circuits
    for place in range(circuits.first[host], circuits.first[host + 1]):
        fitting = network.reached[port] if circuits.is_source[place] else network.reaching[port]
        if not _shares_with(domain[circuits.partner[place]], fitting, 1):
            return False
    return _shares_with(unions[0], network.reached[port], network.n_out[host]) and _shares_with(
        unions[1], network.reaching[port], network.n_in[host]
    )


@inner_kernel
def _unite_partners(
    network: FittingPorts, domain: NDArray[np.int64], unions: NDArray[np.int64], host: int
) -> None:
    """Write the ports that the partners of a host may have, together.

    A set of ports is stored in words of `_PORTS_PER_WORD` bits, one bit for each port.

    Parameters
    ----------
    network
        The circuits by host (those of host h are at the places ``first[h]`` to ``first[h + 1]``),
        and for each port the sets of ports that a circuit may go to (``reached``) and come from
        (``reaching``).
    domain
        ``domain[host]``: the set of ports that a host may still have; int64, shape (hosts, words).
    unions
        Result: row 0 is the union over all hosts that the host sends to, row 1 over all that send
        to it; shape (2 or more, words).
    host
        The host.
    """
    circuits = network.circuits
    unions[0] = 0
    unions[1] = 0
    for place in range(circuits.first[host], circuits.first[host + 1]):
        side = 0 if circuits.is_source[place] else 1
        for word in range(domain.shape[1]):
            unions[side, word] |= domain[circuits.partner[place], word]


@inner_kernel
def _mark_partners(circuits: Circuits, scratch: TrialScratch, host: int) -> None:
    """Note that the partners of a host have to be looked at again."""
    for place in range(circuits.first[host], circuits.first[host + 1]):
        scratch.is_stale[circuits.partner[place]] = True


@inner_kernel
def _settle_single_ports(
    circuits: Circuits, domain: NDArray[np.int64], scratch: TrialScratch
) -> bool:
    """Take the port of a host that has no other one from all other hosts.

    Parameters
    ----------
    circuits
        The circuits of all hosts, which say who is a partner (at the other end of a circuit) of
        whom.
    domain
        ``domain[host]``: the set of ports that a host may still have, one bit for each port;
        int64, shape (hosts, words). Changed.
    scratch
        ``is_stale[host]`` is set for the partners of hosts that lose ports, which are to be looked
        at again; row 2 of ``unions`` is overwritten.

    Returns
    -------
    bool
        False if two hosts have the same port alone, so that there is no placement.
    """
    n_hosts, n_words = domain.shape
    taken = scratch.unions[2]
    taken[:] = 0
    # First the ports that are taken: those of hosts with fewer than two ports.
    for host in range(n_hosts):
        if _shares_with(domain[host], domain[host], 2):
            continue
        if _shares_with(domain[host], taken, 1):
            return False
        for word in range(n_words):
            taken[word] |= domain[host, word]
    for host in range(n_hosts):
        # Then all hosts with a choice lose these ports.
        has_several = _shares_with(domain[host], domain[host], 2)
        if has_several and _shares_with(domain[host], taken, 1):
            _mark_partners(circuits, scratch, host)
            for word in range(n_words):
                domain[host, word] &= ~taken[word]
    return True


@inner_kernel
def _all_have_ports(domain: NDArray[np.int64], union: NDArray[np.int64]) -> bool:
    """Return whether every host has a port, and all together as many as they are.

    A set of ports is stored in words of `_PORTS_PER_WORD` bits, one bit for each port.

    Parameters
    ----------
    domain
        ``domain[host]``: the set of ports that a host may still have; int64, shape (hosts, words).
    union
        Scratch: the union of all sets; int64, shape (words,).
    """
    n_hosts, n_words = domain.shape
    union[:] = 0
    for host in range(n_hosts):
        # A set that shares a port with itself is not empty.
        if not _shares_with(domain[host], domain[host], 1):
            return False
        for word in range(n_words):
            union[word] |= domain[host, word]
    return _shares_with(union, union, n_hosts)


@inner_kernel
def propagate(network: FittingPorts, domain: NDArray[np.int64], scratch: TrialScratch) -> bool:
    """Remove ports that a host cannot have, until nothing changes.

    Arc consistency: a port stays if all partners of the host, the hosts at the other ends of its
    circuits, have ports that fit to it. Besides, no two hosts have the same port.

    Parameters
    ----------
    network
        The circuits that are needed, by host, and for each port the sets of ports that a circuit
        may go to (``reached``) and come from (``reaching``).
    domain
        ``domain[host]``: the set of ports that a host may still have, one bit for each port;
        int64, shape (hosts, words). Changed.
    scratch
        ``is_stale[host]`` says which hosts are looked at first, and is cleared as they are;
        ``unions`` has room for three sets of ports.

    Returns
    -------
    bool
        False if it is shown that no placement has all hosts on ports of their sets.
    """
    n_ports = len(network.reached)
    has_stale = True
    while has_stale:
        for host in range(len(domain)):
            if not scratch.is_stale[host]:
                continue
            scratch.is_stale[host] = False
            # Ports of the host that do not fit to those of its partners go; partners of a host
            # that has lost a port are looked at again.
            _unite_partners(network, domain, scratch.unions, host)
            has_changed = False
            has_port = False
            for port in range(n_ports):
                if not _has(domain[host], port):
                    continue
                if _can_be(network, domain, scratch.unions, host, port):
                    has_port = True
                else:
                    _remove(domain[host], port)
                    has_changed = True
            if not has_port:
                return False
            if has_changed:
                _mark_partners(network.circuits, scratch, host)

        # Hosts need different ports.
        if not _settle_single_ports(network.circuits, domain, scratch):
            return False
        if not _all_have_ports(domain, scratch.unions[2]):
            return False
        has_stale = bool(scratch.is_stale.any())
    return True


@inner_kernel
def _begin_trial(network: FittingPorts, state: ShavingState, host: int, port: int) -> None:
    """Put a host on a port for a trial, to see whether some other host is left without a port.

    All other hosts lose the port, but only the partners of the host are looked at because of that:
    one port less in a large set rarely matters.

    Parameters
    ----------
    network
        The circuits by host, and the ports that fit together.
    state
        ``domain[host]`` is the set of ports that a host may still have, in words of bits. The sets
        of the trial go to ``trial``, and ``scratch.is_stale[host]`` marks the hosts to look at
        again.
    host, port
        The host, and the port that it is put on.
    """
    for other in range(len(state.domain)):
        for word in range(state.domain.shape[1]):
            state.trial[other, word] = state.domain[other, word]
        if _has(state.trial[other], port):
            _remove(state.trial[other], port)
        state.scratch.is_stale[other] = False
    _keep_only(state.trial[host], port)
    _mark_partners(network.circuits, state.scratch, host)


@kernel
def try_ports(network: FittingPorts, state: ShavingState, n_trials: int) -> int:
    """Make trials of shaving until one host has no port left, or all hosts have been tried.

    A trial puts a host on a port of its set and removes the ports that others cannot have then
    (`propagate`). If some host is left without one, the first host cannot be on the port, which is
    removed for good.

    Parameters
    ----------
    network
        The circuits that are needed, by host, and the ports that fit together.
    state
        ``domain[host]`` is the set of ports that a host may still have, ``order`` the hosts in the
        order of their trials, ``counts`` the place of the next host in it, its next port, and the
        number of removed ports; ``removed[k]`` is the host and the port of the k-th one. All go on
        from call to call.
    n_trials
        The most trials of this call.

    Returns
    -------
    int
        The number of trials that were made; -1 if it is shown that some host has no port.
    """
    n_ports = len(network.reached)
    domain = state.domain
    counts = state.counts
    n_done = 0
    while counts[_NEXT_HOST] < len(state.order):
        host = state.order[counts[_NEXT_HOST]]
        # Results of the trials of the last host may remove more ports.
        if counts[_NEXT_PORT] == 0:
            state.scratch.is_stale[:] = True
            if not propagate(network, domain, state.scratch):
                return -1
        while counts[_NEXT_PORT] < n_ports:
            if n_done >= n_trials:
                return n_done
            port = counts[_NEXT_PORT]
            counts[_NEXT_PORT] += 1
            if not _has(domain[host], port):
                continue
            n_done += 1
            _begin_trial(network, state, host, port)
            if not propagate(network, state.trial, state.scratch):
                _remove(domain[host], port)
                state.removed[counts[_REMOVED], 0] = host
                state.removed[counts[_REMOVED], 1] = port
                counts[_REMOVED] += 1
        counts[_NEXT_PORT] = 0
        counts[_NEXT_HOST] += 1
    # All hosts have been tried.
    state.scratch.is_stale[:] = True
    if not propagate(network, domain, state.scratch):
        return -1
    return n_done


class Shaving:
    """A search for a proof that a placement has no answer with the circuits that are allowed.

    Parameters
    ----------
    problem
        The placement.
    is_allowed
        ``is_allowed[source port, destination port]``: the circuits that may be used.
    """

    def __init__(self, problem: HostPlacement, is_allowed: NDArray[np.bool_]) -> None:
        """Begin shaving: no port is removed yet, and no trial is made.

        Shaving puts a host on a port for a trial and follows what it rules out. If some host is
        left without a port, the first host cannot be there, and the port is removed for good. No
        answer exists once a host has no port left.

        Parameters
        ----------
        problem
            The placement; its hosts, their circuits, and the ports that each host may have.
        is_allowed
            ``is_allowed[source port, destination port]``: the circuits that may be used; bool,
            shape (ports, ports).
        """
        candidates = candidates_of(problem)
        domain = sets_of_ports(candidates)
        self._network = FittingPorts.of(problem, is_allowed)
        self._n_trials = 0
        self._n_removed_before_round = 0
        # Sets of ports before and during a trial; room for a union of ports and for what is stale;
        # a row (host, port) for each port that may be removed; three counters; and the hosts in
        # the order of their trials, those with the fewest ports first.
        self._state = ShavingState(
            domain,
            np.empty_like(domain),
            TrialScratch(
                np.empty((3, domain.shape[1]), dtype=np.int64),
                np.ones(problem.n_hosts, dtype=bool),
            ),
            np.empty((np.count_nonzero(candidates), 2), dtype=np.int32),
            np.zeros(3, dtype=np.int64),
            np.argsort(candidates.sum(axis=1), kind="stable"),
        )
        self._is_proved = False

    def search(self, clock: Clock, n_trials: int) -> NDArray[np.int32] | None:
        """Look for a proof.

        Parameters
        ----------
        clock
            Ends the search early.
        n_trials
            After so many trials the search gives up.

        Returns
        -------
        int32 array, shape (removed, 2), or None
            Pairs of a host and a port that it never has, in the order in which they were found;
            None if nothing was proved.
        """
        run_in_portions(clock, n_trials, self._try)
        if not self._is_proved:
            return None
        return self._state.removed[: self._state.counts[_REMOVED]].copy()

    def _try(self, first_trial: int, last_trial: int) -> bool:
        """Make some trials; tell whether a proof is complete or none is to be expected.

        A trial puts a host on a port and removes the port if that is impossible. Trials are given
        up if too small a share of them removes a port (`_LEAST_YIELD`), or if a round over all
        hosts has removed none.

        Parameters
        ----------
        first_trial, last_trial
            The trials of this call, numbered from the start of the search; only their number
            counts, and the last one is excluded.

        Returns
        -------
        bool
            Whether to end the search; `_is_proved` then tells a proof from its failure.
        """
        n_done = try_ports(self._network, self._state, last_trial - first_trial)
        if n_done < 0:
            self._is_proved = True
            return True
        self._n_trials += n_done
        counts = self._state.counts
        n_removed = counts[_REMOVED]
        if self._n_trials >= _TRIALS_BEFORE_YIELD and n_removed < _LEAST_YIELD * self._n_trials:
            return True

        # Each round tries all hosts, as long as the last one has removed something.
        if counts[_NEXT_HOST] == len(self._state.order):
            if n_removed == self._n_removed_before_round:
                return True
            self._n_removed_before_round = n_removed
            counts[_NEXT_HOST] = 0
        return False
