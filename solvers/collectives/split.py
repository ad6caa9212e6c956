"""Uneven all-to-alls whose blocks split: circuits by weighted matchings, routes by programming.

A *sequence* says which circuits are there in each round. For a sequence the routes are a linear
programme: how much of each block takes which path, a path being circuits of later and later
rounds; each round lasts as long as its busiest circuit. Its prices say what a circuit of any two
ranks would be worth in any round: the best matching by these values replaces a round, as long as
that helps. The first sequences are greedy matchings of what is left to carry; of a few ranks all
are tried.

Words that are used here:

- a *block* is what one rank sends to one other, and a *part* of it are the bytes that take one
  path. The parts of a block lie in it end to end;
- a *sequence* is an array ``sequence[round, lane, rank]`` of the rank to which each rank
  transmits; a rank that transmits to itself has no circuit. The same circuits in several rounds
  are a *configuration* that is *held*, or an *epoch* of the plan. A path takes circuits of later
  and later rounds, and costs the sum of their prices;
- amounts of data are seconds of one circuit, or multiples of `SplitSearch.least_s`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock, uncounted
from optmatch.problems import Collective
from optmatch.problems.collectives.bounds import hops_within
from optmatch.problems.collectives.plan import COPY
from optmatch.solvers.collectives.plans import Laid, lay
from optmatch.solvers.collectives.rounds import FloatArray, IntArray, Rounds

FEW_RANKS = 4
"""Up to this number of ranks all matchings are tried in each round."""
BEAM_WIDTH = 12
"""Sequences of as many rounds that are made longer."""
LENGTHS_TRIED = 6
"""Lengths of greedy sequences."""
DETOUR_FACTOR = 1.25
"""How many times farther blocks go than counting of hops says, in estimates of lengths."""
GREEDY_SLACK = 1.4
"""How much a greedy matching counts as carried, as a multiple of an even part of the work. It is
more than 1, as routes later share out what is left over all configurations."""
PATHS_OF_A_SEARCH = 400_000
"""Paths of all programmes together: some 40 s."""
MOST_SIMPLEX_PATHS = 5_000
"""Up to this number of paths the simplex method is faster."""

LEAST_DRAWN_RANKS = 24
"""From this number of ranks on paths are drawn by prices, as there are too many to list all."""


class _Routed(NamedTuple):
    """A sequence with its plan, and the dual prices of the programme that found the routes."""

    sequence: Sequence
    """``sequence[round, lane, rank]``: to whom a rank transmits; itself stands for nobody."""
    laid: Laid
    """The plan, which has the routes."""
    loads: FloatArray
    """``loads[round]``: the length of each round, in units of the least time."""
    worth: FloatArray
    """``worth[source, target]``: what a second less of this block would save, in seconds of the
    plan; 0 for blocks without bytes. It is the dual price of the equation of the block."""
    price: FloatArray
    """``price[round, lane, rank]``: what a second on this circuit costs others, 0 or more, in
    seconds of the plan. It is the dual price of the inequality of the circuit, whose sign is the
    other one, as more room would make the plan shorter."""

    @property
    def time_s(self) -> float:
        """The seconds of the plan."""
        return self.laid.time_s


def _part_of_busiest(seconds: FloatArray) -> FloatArray:
    """Return ``seconds[rank]`` over the largest of them, from 0 to 1; all 0 if all are 0."""
    return seconds / (seconds.max() or 1.0)


class SplitSearch:
    """The search for a fast plan of one uneven all-to-all.

    All times are those of one circuit, of which a rank has one for each of its lanes.
    ``demand_s[source, destination]`` is how long a circuit takes for a block, and `each_s` the
    fixed seconds of a round. Blocks that have bytes are numbered: ``chunk[block]`` is ``source *
    ranks + destination``, and ``block_s[block]`` its seconds. `least_s` is how long the busiest
    rank sends or receives without detours: the unit of programmes. ``prompt[rank]`` tells whether
    a rank is ready before the last of the late ranks are; True of all ranks if none is late.

    `best` is the fastest sequence until now, with its routes; `known` are the bytes of all that
    were tried, and `routed` the seconds of each that was routed, of few ranks. `effort` counts the
    paths that programmes may still have, and `path_s` is what a path cost in the last one.

    Parameters
    ----------
    problem
        The all-to-all, with one-way circuits, and blocks that may be cut anywhere.
    clock
        The search ends when it has run out.
    """

    def __init__(self, problem: Collective, clock: Clock) -> None:
        """Measure the all-to-all; there is no plan yet."""
        self.problem = problem
        self.clock = clock
        self.demand_s = problem.demand / problem.rate_bytes_per_s
        self.each_s = problem.round_s
        self.chunk = np.flatnonzero(self.demand_s)
        self.block_s = self.demand_s.reshape(-1)[self.chunk]
        busiest_s = max(float(self.demand_s.sum(axis=axis).max()) for axis in (0, 1))
        self.least_s = busiest_s / problem.lanes
        self.best: _Routed | None = None
        self.effort = PATHS_OF_A_SEARCH

        # Rounds without the ranks that are ready last can begin before these are.
        late = problem.late
        self.prompt = np.ones(problem.n_ranks, dtype=np.bool_)
        if late.any():
            self.prompt = late < late.max()
        self.known: set[bytes] = set()
        self.routed: list[tuple[float, Sequence]] = []
        self.path_s = 0.0

    def run(self) -> Laid | None:
        """Search for a fast plan of the all-to-all, and return the best one.

        If there are few ranks all short sequences are tried. Else greedy ones come first, and then
        local search takes the first change of the best of them that makes it faster, until none
        does. The result is None if no sequence has paths for all data, or time was too short.
        """
        # The first stage.
        has_few = self.problem.n_ranks <= FEW_RANKS
        first_sequences = self._list_greedy_sequences()
        if has_few:
            first_sequences = self._list_short_sequences()
        for sequence in first_sequences:
            if not self._may_go_on():
                break
            self._try(sequence)

        # The second stage: `any` stops at the first change that is faster, and the search goes on
        # from that.
        is_better = not has_few
        while is_better and self.best is not None and self._may_go_on():
            is_better = any(
                self._may_go_on() and self._try(changed) for changed in self._change(self.best)
            )
        return None if self.best is None else self.best.laid

    def _may_go_on(self) -> bool:
        """Tell whether there is effort and time for another programme."""
        return self.effort > 0 and self.clock.exceeded(iterations=0) is None

    def fixed_s(self, sequence: Sequence) -> float:
        """Return the seconds of the rounds of a sequence and of its changes, without any data.

        The first circuits cost a delay, too, unless the problem starts with them.

        Example: three rounds over the circuits A, A and B have three start-ups and one delay, or
        two if the problem starts dark.
        """
        # The start is "free" (the first circuits are there), "dark" (none are), or an array like
        # one round of the sequence, in which -1 stands for nobody.
        n_changes = int((np.diff(sequence, axis=0) != 0).any(axis=(1, 2)).sum())
        start = self.problem.start
        if isinstance(start, str):
            is_set_up = start == "free"
        else:
            idle = sequence[0] == np.arange(sequence.shape[2])
            is_set_up = bool((np.where(idle, -1, sequence[0]) == start).all())
        n_delays = n_changes + (not is_set_up)
        return self.each_s * len(sequence) + self.problem.delay_s * n_delays

    def _try(self, sequence: Sequence) -> bool:
        """Find routes over a sequence, and keep it as ``self.best`` if it is the fastest so far.

        Returns whether it is. A sequence that cannot be the fastest, or was tried before, is not
        routed. The time of a sequence of few ranks is added to ``self.routed``.
        """
        # Without a look at routes: it is known, or too long even if nothing took a detour. The
        # key of a sequence are the bytes of its array.
        limit_s = np.inf
        if self.best is not None:
            limit_s = self.best.time_s * (1 - 1e-9)
        key = sequence.tobytes()
        if key in self.known or self.fixed_s(sequence) + self.least_s >= limit_s:
            return False

        self.known.add(key)
        routed = self._route(sequence)
        if routed is None:
            return False
        if self.problem.n_ranks <= FEW_RANKS:
            self.routed.append((routed.time_s, sequence))
        if routed.time_s >= limit_s:
            return False
        self.best = routed
        return True

    def _list_greedy_sequences(self) -> Iterator[Sequence]:
        """Yield a few greedy sequences, of the lengths that are estimated as fastest."""
        # The `LENGTHS_TRIED` lengths with the best estimates, in the order of the number of
        # configurations.
        best_lengths = sorted(self._estimate_lengths())[:LENGTHS_TRIED]
        for n_configs, held, estimate_s in sorted((k, held, s) for s, k, held in best_lengths):
            if self.best is not None and estimate_s >= self.best.time_s:
                continue
            # With late ranks some configurations may come before they are ready.
            early_choices = {0}
            if not self.prompt.all():
                early_choices = {0, n_configs // 2, n_configs - 1}
            for n_early in sorted(early_choices):
                yield self._make_greedy(n_configs, held, n_early)

    def _estimate_lengths(self) -> list[tuple[float, int, int]]:
        """Estimate how long an all-to-all takes with more or fewer rounds, before it is planned.

        More configurations take longer to set up, but data then need fewer hops, as each rank has
        had circuits to more of the others.

        Returns tuples: seconds, number of configurations, rounds for which each is held. The
        hops of data are counted (`hops_within`): of 8 ranks with one port each, 3 configurations
        of one round reach 3 with one hop, 3 with two, and 1 with three. The three largest blocks
        of a rank count one hop each, three others two, and the smallest one three.
        """
        n = self.problem.n_ranks
        lanes = self.problem.lanes

        # work_s[k]: the mean over ranks of the k-th largest block of a rank, in seconds, with all
        # its ports. Rows are sorted by falling size (as negative numbers), and lose their last
        # entry, the 0 of the rank for itself.
        work_s = -np.sort(-self.demand_s, axis=1)[:, :-1].mean(axis=0) / lanes

        # Numbers of configurations: all small ones, and steps of about 30 % from there on.
        numbers_of_configs = sorted({*range(1, 17), 20, 26, 34, 44, n - 1, n})
        estimates = []
        for n_configs, held in product(numbers_of_configs, (1, 2, 3)):
            hops = hops_within(n, n_configs, n_configs * held, lanes)

            # Too few configurations do not reach all n - 1 others; n of them always do, even where
            # counting says less. Data go farther than counting says, by a factor of
            # `DETOUR_FACTOR`.
            if len(hops) == n - 1 or n_configs == n:
                load_s = max(self.least_s, DETOUR_FACTOR * float(work_s[: len(hops)] @ hops))
                fixed_s = (n_configs - 1) * self.problem.delay_s + n_configs * held * self.each_s
                estimates.append((fixed_s + load_s, n_configs, held))
        return estimates

    def _make_greedy(self, n_configs: int, held: int, n_early: int) -> Sequence:
        """Choose circuits for all rounds of an all-to-all, in turn, by what is left to send.

        There are `n_configs` configurations of `held` rounds. The circuits of a lane are a
        matching of senders and receivers. A maximum-weight matching is taken, lane after lane:

        - a circuit is worth what is left of the data from its sender to its receiver. It is taken
          to carry no more of them than an even part of all work: the seconds for which the busiest
          rank sends or receives on each lane (`least_s`), over the number of configurations, times
          `GREEDY_SLACK`;
        - it counts up to three times if its ranks have as much left to do as the busiest ones.

        The data that a chosen circuit carries are taken off those that are left.

        A round with a circuit of a late rank would have to wait for it. The first `n_early`
        configurations therefore leave out the ranks that are ready last.

        Example: the busiest rank sends for 8 s on each lane, and there are 4 configurations. A
        circuit is taken to carry 1.4 * 8 / 4 = 2.8 s of a block at most.
        """
        with uncounted():
            from scipy.optimize import linear_sum_assignment

        n = self.problem.n_ranks
        lanes = self.problem.lanes
        even_part_s = GREEDY_SLACK * self.least_s / n_configs
        left_s = self.demand_s.copy()  # left_s[source, destination]
        matchings = []
        for number in range(n_configs * lanes):
            # The value of a circuit is what it carries, in seconds, times 1 to 3: the urgency of a
            # rank is 1 for the busiest one. By the fourth power one with half as much to do has
            # 1/16 only.
            value = np.minimum(left_s, even_part_s)
            send_urgency = _part_of_busiest(left_s.sum(axis=1)) ** 4
            receive_urgency = _part_of_busiest(left_s.sum(axis=0)) ** 4
            value *= 1 + send_urgency[:, None] + receive_urgency

            # Circuits of late ranks are worth nothing before these are ready. A matching joins all
            # ranks, so they are removed afterwards.
            is_early = number < n_early * lanes
            if is_early:
                value[~self.prompt] = 0.0
                value[:, ~self.prompt] = 0.0
            # A rank that faces itself has no circuit, which is worse than any circuit.
            np.fill_diagonal(value, -1.0)
            rank, peer = linear_sum_assignment(value, maximize=True)
            if is_early:
                both_are_prompt = self.prompt & self.prompt[peer]
                peer = np.where(both_are_prompt, peer, rank)
            left_s[rank, peer] = np.maximum(left_s[rank, peer] - even_part_s, 0.0)
            matchings.append(peer)
        configurations = np.array(matchings).reshape(n_configs, lanes, n)
        return np.repeat(configurations, held, axis=0)

    def _list_short_sequences(self) -> Iterator[Sequence]:
        """Yield all circuits for up to three rounds, then some for more rounds (beam search).

        The `BEAM_WIDTH` best sequences of three rounds get a fourth round in any place, and the
        best of four rounds a fifth one.

        The caller has to time each sequence before it takes the next one: it puts the seconds into
        ``self.routed``, from which the best ones are taken here.
        """
        # Choices are all sets of circuits ``peer[lane, rank]`` that the ranks can have in a round;
        # a rank that transmits to itself has none. Two ranks that transmit to nobody could still
        # transmit to each other, so such sets are left out: of three ranks two rings are left, and
        # three pairs. All lanes have the same circuits, but perhaps in those of the start.
        ranks = np.arange(self.problem.n_ranks)
        permuted = [np.array(permutation) for permutation in permutations(range(len(ranks)))]
        maximal = [peer for peer in permuted if (peer == ranks).sum() < 2]
        choices = [np.repeat(peer[None], self.problem.lanes, axis=0) for peer in maximal]
        if not isinstance(self.problem.start, str):
            first_peer = self.problem.start.astype(np.int64)
            choices.append(np.where(first_peer < 0, ranks, first_peer))

        for n_rounds in (1, 2, 3):
            for rounds in product(choices, repeat=n_rounds):
                yield np.array(rounds)

        # Sequences of one round more, with any circuits in it, in any place.
        for n_rounds in (3, 4):
            fastest_first = sorted(self.routed, key=lambda timed: timed[0])
            as_long = [sequence for _, sequence in fastest_first if len(sequence) == n_rounds]
            for sequence in as_long[:BEAM_WIDTH]:
                for turn, peer_of_lane in product(range(n_rounds + 1), choices):
                    yield np.insert(sequence, turn, peer_of_lane, axis=0)

    def _change(self, best: _Routed) -> Iterator[Sequence]:
        """Yield what the local search tries next: changes of the sequence `best`.

        First the circuits of one lane in one round are those which the dual prices say are worth
        most, then one round is left out; the shortest rounds come first.

        Of 5 rounds and 2 lanes, for example, there are 10 changes of circuits, and then 5
        sequences of 4 rounds.
        """
        shortest_first = np.argsort(best.loads, kind="stable").tolist()
        for turn in shortest_first:
            worthiest = self._choose_worthiest_circuits(best, turn)
            for lane in range(self.problem.lanes):
                changed = best.sequence.copy()
                changed[turn, lane] = worthiest
                yield changed
        if len(best.sequence) > 1:
            for turn in shortest_first:
                yield np.delete(best.sequence, turn, axis=0)

    def _choose_worthiest_circuits(self, best: _Routed, turn: int) -> IntArray:
        """Choose the circuits that would save most in one round.

        A circuit from u to v in round `turn` would let a block of worth w go at the price of its
        path to u before this round, and from v on after it: it saves w less both, 2 for a worth of
        5 and prices of 1 and 2. Of all blocks the one that saves most counts. The matching of most
        savings is the result ``peer[rank]``: to whom each rank would transmit.
        """
        with uncounted():
            from scipy.optimize import linear_sum_assignment

        # cost_before[source, rank] of the cheapest paths in the rounds before `turn`, and
        # cost_after[rank, target] of those from `turn` on.
        n = self.problem.n_ranks
        cost_before = find_cheapest_paths(best.sequence[:turn], best.price[:turn])[-1]
        cost_after = find_cheapest_paths(best.sequence[turn:], best.price[turn:])[-1]

        # worth_at[u, target]: the worth of a block to this target less its prices up to u, for the
        # source for which this is most. value[u, v]: this less the prices from v on, for the best
        # target; 0 if the circuit saves nothing. Blocks without bytes save nothing.
        worth = np.where(self.demand_s > 0, best.worth, -np.inf)
        worth_at = np.array([(worth - cost_before[:, u, None]).max(axis=0) for u in range(n)])
        value = np.array([(worth_at - cost_after[v]).max(axis=1) for v in range(n)]).T
        value = np.maximum(np.nan_to_num(value, neginf=0.0), 0.0)  # value[u, v]

        # Any circuit, even one that is worth nothing, is better than none.
        np.fill_diagonal(value, -1e-9)
        peer_of_rank: IntArray = linear_sum_assignment(value, maximize=True)[1]
        return peer_of_rank

    def _route(self, sequence: Sequence) -> _Routed | None:
        """Share out the data of an all-to-all among paths over given circuits, to end soonest.

        ``sequence[round, lane, rank]`` are the circuits. Between few ranks all short paths are
        listed, between many some good ones are drawn. A linear programme then says how much each
        path carries, and its dual prices are kept. Returns None if some block has no path, if the
        programme would not end in time, or if it has no solution.

        Takes the paths off ``self.effort``, and writes ``self.path_s``, the seconds that the
        programme took for each path.
        """
        n = self.problem.n_ranks
        if n < LEAST_DRAWN_RANKS:
            paths = list_paths(self.demand_s, sequence, every=n <= FEW_RANKS)
        else:
            paths = draw_paths(self.demand_s, sequence)
        if paths is None:
            return None

        # A programme that would not end in time is not begun. It is estimated to take as long for
        # each path as the last programme did, and half of that more.
        n_paths = len(paths.block)
        if 1.5 * n_paths * self.path_s > self.clock.remaining_s:
            return None
        # Paths are drawn `PATH_DRAWS` times; one drawing takes as long as ten paths in the
        # programme.
        began_s = self.clock.elapsed_s
        self.effort -= n_paths + (10 * PATH_DRAWS if n >= LEAST_DRAWN_RANKS else 0)
        solved = self._solve_programme(sequence, paths)
        self.path_s = (self.clock.elapsed_s - began_s) / n_paths
        if solved.status != 0:
            return None

        # The marginal of a row is by how much the objective grows with its right-hand side. A
        # larger block makes the plan longer (`eqlin`, positive), and more room on a circuit makes
        # it shorter (`ineqlin`, negative). The first inequalities are those of circuits, a row for
        # each entry of ``sequence``; one more may follow them.
        worth = np.zeros((n, n))
        worth.reshape(-1)[self.chunk] = solved.eqlin.marginals
        marginals = solved.ineqlin.marginals[: sequence.size]
        price = np.maximum(-marginals, 0.0).reshape(sequence.shape)

        # The solution has the amounts on paths, then the lengths of rounds, all in units of
        # `least_s`; amounts are scaled to carry each block exactly, in seconds. Only the plan that
        # is laid from them tells the time, as it also waits for late ranks.
        amounts = self._carry_whole_blocks(paths, solved.x[:n_paths])
        return _Routed(
            sequence=sequence,
            laid=self._lay(sequence, paths, amounts),
            loads=solved.x[n_paths : n_paths + len(sequence)],
            worth=worth,
            price=price,
        )

    def _carry_whole_blocks(self, paths: Paths, solution: FloatArray) -> FloatArray:
        """Return the amounts on paths, in seconds of a circuit, such that they carry all blocks.

        ``solution[path]`` is the amount by the programme, in units of `least_s`. It keeps to its
        equations up to a tolerance only, so the paths of each block are scaled. Example: a block
        of 10 us has paths that carry 6.001 us and 4.001 us, and are scaled by 10 / 10.002.
        """
        # Less than a billionth of the unit is noise of the programme.
        amounts = np.where(solution < 1e-9, 0.0, solution) * self.least_s
        carried = np.bincount(paths.block, weights=amounts, minlength=len(self.chunk))

        # Blocks that are tiny beside the others are lost in the tolerance, and no path carries
        # them: they go over the first of their paths. Any amount will do, as it is scaled below.
        blocks, first_path = np.unique(paths.block, return_index=True)
        is_lost = carried[blocks] == 0.0
        amounts[first_path[is_lost]] = self.least_s
        carried[blocks[is_lost]] = self.least_s
        return amounts * (self.block_s / carried)[paths.block]

    def _solve_programme(self, sequence: Sequence, paths: Paths) -> Any:
        """Choose how much of each block goes over each path, by a linear programme.

        All quantities are in units of `least_s`.

        - Variables: the amount on each path, then the length of each round.
        - Inequalities, one for each circuit: the amounts of all paths over it are at most the
          length of its round.
        - Equations, one for each block: its paths carry all of it.
        - Objective: the sum of the lengths is least.

        If ranks are late there is one variable more, the *begin*: when the first round with one of
        the latest ranks begins. It is no earlier than these are ready, nor than the rounds before
        it end. The objective is then the begin and the lengths of the rounds from there on. The
        rounds before count only if they delay the begin.

        Example: 3 rounds, of which the last two have circuits of a rank that is ready at time 5.
        The lengths are x0, x1, x2, and the begin b. The objective is b + x1 + x2, with b >= 5 and
        x0 + fixed <= b, where fixed are the start-ups and delays before the second round sends.

        Returns the result of `scipy.optimize.linprog`. Its status is 0 if it has an answer; `x`
        are the variables in this order, and the marginals of its rows their dual prices.
        """
        with uncounted():
            from scipy.optimize import linprog
            from scipy.sparse import csr_array

        rounds, lanes, n = sequence.shape
        n_paths = len(paths.block)
        n_circuits = rounds * lanes * n

        # Entries (row, column, factor) of the inequalities: 1 for each path over a circuit, -1 for
        # the length of its round. Circuits are numbered by round, lane and rank.
        path, turn, lane, rank = paths.hop.T
        circuits = np.arange(n_circuits)
        round_of_circuit = circuits // (lanes * n)
        row = np.concatenate([(turn * lanes + lane) * n + rank, circuits])
        column = np.concatenate([path, n_paths + round_of_circuit])
        factor = np.concatenate([np.ones(len(path)), -np.ones(n_circuits)])
        most = np.zeros(n_circuits)
        goal = np.append(np.zeros(n_paths), np.ones(rounds))
        low = np.zeros(len(goal))

        if not self.prompt.all():
            # The first round in which a path sends from or to one of the latest ranks, those that
            # are not `prompt`; `rounds`, behind the last one, if none does. The columns of the
            # lengths before it, and of the begin.
            receiver = sequence[turn, lane, rank]
            is_prompt_hop = self.prompt[rank] & self.prompt[receiver]
            first_late_round = int(turn[~is_prompt_hop].min(initial=rounds))
            lengths_before = np.arange(n_paths, n_paths + first_late_round)
            begin = n_paths + rounds

            # Row `n_circuits`, behind those of circuits: the sum of the lengths before, less the
            # begin, is at most -fixed. To the fixed seconds the rounds before add their start-ups
            # and changes, and the first late round its change: its start-up, `each_s`, comes after
            # the begin. Example: 2 rounds before it without changes have 2 `each_s`.
            row = np.append(row, np.full(first_late_round + 1, n_circuits))
            column = np.append(column, [*lengths_before, begin])
            factor = np.concatenate([factor, np.ones(first_late_round), [-1.0]])
            fixed_s = self.fixed_s(sequence[: first_late_round + 1]) - self.each_s
            most = np.append(most, -fixed_s / self.least_s)
            # The begin counts in place of the lengths before it.
            goal = np.append(goal, 1.0)
            goal[lengths_before] = 0.0
            # The latest ranks are all ready at the same time, and no begin is before that.
            low = np.append(low, self.problem.late.max() / self.least_s)

        # The equations, over the blocks that have bytes.
        carried = csr_array(
            (np.ones(n_paths), (paths.block, np.arange(n_paths))),
            shape=(len(self.chunk), len(goal)),
        )

        # The simplex method is faster for few paths, an interior-point method for many.
        options: dict[str, Any] = {}
        if np.isfinite(self.clock.remaining_s):
            options["time_limit"] = max(self.clock.remaining_s, 0.01)
        return linprog(
            goal,
            A_ub=csr_array((factor, (row, column)), shape=(len(most), len(goal))),
            b_ub=most,
            A_eq=carried,
            b_eq=self.block_s / self.least_s,
            bounds=np.column_stack([low, np.full(len(goal), np.inf)]),
            method="highs-ds" if n_paths < MOST_SIMPLEX_PATHS else "highs-ipm",
            options=options,
        )

    def _lay(self, sequence: Sequence, paths: Paths, amounts: FloatArray) -> Laid:
        """Make the plan, in bytes, of circuits by round and paths of data over them.

        ``amounts[path]`` is what a path carries of its block, in seconds of a circuit. Each
        circuit that a path takes becomes one send of the plan. If several paths share a block,
        their bytes lie in it end to end.

        Example: a block of 8 bytes has two paths, with 3 and 5 bytes. The sends of the first one
        carry 3 bytes from byte 0 on, those of the second one 5 bytes from byte 3 on.
        """
        problem = self.problem
        n = problem.n_ranks
        amounts = amounts * problem.rate_bytes_per_s  # from here on bytes, by path
        block = self.chunk[paths.block]

        # begin[path]: where the part of its block begins, exactly where the part before it ends.
        # The first parts of all blocks begin at 0, then come all second ones, and so on. In `used`
        # the paths of a block follow each other, so that the part before is one place before.
        used = np.flatnonzero(amounts > 0)
        used = used[np.argsort(block[used], kind="stable")]
        place_in_block = np.arange(len(used)) - np.searchsorted(block[used], block[used])
        begin = np.zeros(len(amounts))
        for place in range(1, int(place_in_block.max(initial=0)) + 1):
            parts_of_place = np.flatnonzero(place_in_block == place)
            begin[used[parts_of_place]] = (
                begin[used[parts_of_place - 1]] + amounts[used[parts_of_place - 1]]
            )

        # The hops of paths that carry something become sends: rows of round, source, destination,
        # chunk and kind. Rounds without sends drop out, and the others are numbered anew
        # (`new_turn`).
        hops = paths.hop[amounts[paths.hop[:, 0]] > 0]
        hops = hops[np.argsort(hops[:, 1], kind="stable")]
        path, turn, lane, rank = hops.T
        target = sequence[turn, lane, rank]
        turns, new_turn = np.unique(turn, return_inverse=True)
        kind = np.full(len(path), COPY)
        sends = np.column_stack([new_turn.reshape(-1), rank, target, block[path], kind])

        # A rank that transmits to itself has no circuit.
        circuits = np.where(sequence == np.arange(n), -1, sequence)[turns]

        # If each block takes one path, whole blocks are sent, and parts need not be said.
        parts: FloatArray | None = None
        is_some_block_cut = len(np.unique(block[used])) < len(used)
        if is_some_block_cut:
            parts = np.column_stack([begin[path], amounts[path]])
        return lay(problem, Rounds(sends, n * n, list(circuits), parts=parts))


ENOUGH_PATHS = 4
"""Blocks get longer paths until they have this number of them."""
MOST_PATHS = 1_600_000
"""Paths that are listed at most."""
PATH_DRAWS = 300
"""Times that paths are drawn."""
PATHS_KEPT = 5
"""How many paths of a block are kept: those that carry the most."""
NO_LANE = -1
"""In place of a lane: a path waits in this round."""

Sequence = IntArray
"""``sequence[round, lane, rank]``: to whom it transmits; to itself stands for nobody."""


class Paths(NamedTuple):
    """Paths of blocks, by number."""

    block: IntArray
    """``block[path]``: the block that it carries, among those that have bytes, row by row."""
    hop: IntArray
    """Rows of path, round, lane and rank that sends, by path and then by round."""


def list_paths(demand_s: FloatArray, sequence: Sequence, every: bool) -> Paths | None:
    """List paths of each block over a given sequence of circuits, the short ones first.

    The circuits change from round to round. A path takes one circuit in each of some rounds, one
    after another, and waits at a rank in the rounds between. It comes to no rank twice.

    Example: the circuit 0 -> 1 in round 0, and 1 -> 2 and 0 -> 2 in round 1. The block from 0 to 2
    has two paths: directly in round 1, or over rank 1 in both rounds.

    Once a block has `ENOUGH_PATHS` paths, no longer ones are listed for it, unless `every` path is
    wanted.

    ``demand_s[source, target]`` is the size of the block of each pair of ranks, as the seconds
    that one circuit takes for it. The result is None if some block has no path, or there are more
    paths than `MOST_PATHS`.
    """
    # Blocks with data are numbered row by row: number_of_block[source, target]. The lists have an
    # array for each set of paths that is found: their blocks, the ranks at which they start, and
    # their lanes by round.
    rounds, lanes, n = sequence.shape
    ranks = np.arange(n)
    has_data = demand_s > 0  # [source, target]
    number_of_block = np.cumsum(has_data.reshape(-1)).reshape(has_data.shape) - 1
    blocks = [np.empty(0, np.int64)]
    sources = [np.empty(0, np.int64)]
    lanes_of_paths = [np.empty((0, rounds), np.int64)]
    n_paths = np.zeros((n, n), dtype=np.int64)  # of each block, [source, target]
    total = 0  # the paths of all blocks

    # Paths of 1, 2, ... hops: each choice of rounds and of a lane in each of them is followed from
    # all sources at the same time. Blocks stay open during the paths of one length, so those of
    # equal length are all listed.
    for length in range(1, rounds + 1):
        # Blocks that have too few paths get those of this length. Direct paths are listed for all
        # blocks.
        enough = ENOUGH_PATHS if length > 1 else 1
        is_open = has_data & (n_paths < enough) | (has_data & every)
        if not is_open.any():
            break
        # `turns` are the rounds of the hops, ascending, and `chosen_lanes` their lanes.
        n_new = np.zeros_like(n_paths)
        for turns in combinations(range(rounds), length):
            for chosen_lanes in product(range(lanes), repeat=length):
                # visited[hop, source]: where the path from a source is after `hop` hops.
                visited = np.empty((length + 1, n), dtype=np.int64)
                visited[0] = ranks
                lane_of_round = np.full(rounds, NO_LANE)
                for hop, (turn, lane) in enumerate(zip(turns, chosen_lanes, strict=True)):
                    visited[hop + 1] = sequence[turn, lane][visited[hop]]
                    lane_of_round[turn] = lane

                # A path is of use if its block needs it, and it comes to no rank twice. There is
                # at most one from each source: is_path[source].
                is_path = is_open[ranks, visited[-1]]
                for earlier, later in combinations(range(length + 1), 2):
                    is_path &= visited[earlier] != visited[later]

                source = np.flatnonzero(is_path)
                target = visited[-1, source]
                total += len(source)
                n_new[source, target] += 1
                blocks.append(number_of_block[source, target])
                sources.append(source)
                lanes_of_paths.append(np.tile(lane_of_round, (len(source), 1)))
        n_paths += n_new
        if total > MOST_PATHS:
            return None

    # Every block needs a path.
    if (has_data & (n_paths == 0)).any():
        return None
    block = np.concatenate(blocks)
    return _list_hops(sequence, block, np.concatenate(sources), np.concatenate(lanes_of_paths))


def _list_hops(
    sequence: Sequence, block: IntArray, source: IntArray, lane_of: NDArray[np.integer[Any]]
) -> Paths:
    """List the hops of paths, given from which rank each starts, and over which lane it goes on.

    ``block[path]`` and ``source[path]`` are the block of a path and its first rank, and
    ``lane_of[path, round]`` the lane, or `NO_LANE` where the path waits. A path from rank 2 with
    the lanes 0, waits, 1 has a hop over lane 0 from rank 2 in round 0, and one over lane 1, from
    where that circuit leads, in round 2.
    """
    # ``rank[path]`` is where the path is before the round.
    rank = source.copy()
    rows = []
    for turn, lane in enumerate(lane_of.T):
        path = np.flatnonzero(lane != NO_LANE)
        rows.append(np.column_stack([path, np.full(len(path), turn), lane[path], rank[path]]))
        rank[path] = sequence[turn, lane[path], rank[path]]
    hops = np.concatenate(rows)
    return Paths(block, hops[np.argsort(hops[:, 0], kind="stable")])


def draw_paths(demand_s: FloatArray, sequence: Sequence) -> Paths | None:
    """Find a few good paths of each block, which together load the circuits of a round evenly.

    The method is that of Frank and Wolfe. It draws `PATH_DRAWS` times the cheapest path of every
    block, at prices that grow exponentially with the loads of circuits. Draw k = 0, 1, ... takes
    over the part 2 / (k + 2) of all blocks: all of them at first, then two thirds, a half, and so
    on. ``demand_s[source, target]`` is the size of each block, as the seconds that one circuit
    takes for it. The result is None if some block has no path.
    """
    rounds, lanes, n = sequence.shape
    source, target = np.nonzero(demand_s)
    n_blocks = len(source)

    # origin[round, lane, rank]: which rank transmits to this one; itself if none does.
    origin = np.broadcast_to(np.arange(n), sequence.shape).copy()
    circuits = np.nonzero(sequence != np.arange(n))  # arrays of round, lane and sender
    origin[*circuits[:2], sequence[circuits]] = circuits[2]

    # The drawn path of each block: lane_of[draw, round, block]. A path has a name, by which it is
    # known again: the sum of random numbers of its block, and of its lane in each round in which
    # it moves, modulo 2^64. names[draw, block].
    rng = np.random.default_rng(0)
    block_mark = rng.integers(1 << 62, size=n_blocks)
    lane_mark = rng.integers(1 << 62, size=(rounds, lanes))
    names = np.tile(block_mark, (PATH_DRAWS, 1))
    lane_of = np.full((PATH_DRAWS, rounds, n_blocks), NO_LANE, dtype=np.int16)

    # Draw paths at the prices of circuits, by round, lane and sender; `loads` are the mixture of
    # all draws by then, in seconds.
    price = np.ones(sequence.shape)
    loads = np.zeros(sequence.shape)
    for draw in range(PATH_DRAWS):
        # Backwards from the targets: ``rank[block]`` is where the block is after a round. It came
        # over a circuit of the round if that made its path cheaper than the rounds before alone,
        # ``cost[turn]``, over the lane of the cheapest one, and was at the sender before.
        cost = find_cheapest_paths(sequence, price)
        if not np.isfinite(cost[-1, source, target]).all():
            return None
        drawn_loads = np.zeros((rounds, lanes * n))
        rank = target.copy()
        for turn in reversed(range(rounds)):
            moved = np.flatnonzero(cost[turn + 1, source, rank] < cost[turn, source, rank])
            senders = origin[turn][:, rank[moved]]  # [lane, moved block]
            costs = cost[turn, source[moved], senders]
            costs += np.take_along_axis(price[turn], senders, axis=1)
            lane = costs.argmin(axis=0)
            rank[moved] = senders[lane, np.arange(len(moved))]
            lane_of[draw, turn, moved] = lane
            names[draw, moved] += lane_mark[turn, lane]
            block_s = demand_s[source[moved], target[moved]]
            drawn_loads[turn] = np.bincount(lane * n + rank[moved], block_s, lanes * n)

        # The price of a circuit is exp(load / smoothing), such that all prices of a round add up
        # to 1 (a softmax). The smoothing falls from draw to draw, from 0.2 to 0.006 times the mean
        # load of the busiest circuits, until in the end almost only the busiest one has a price.
        loads += 2 / (draw + 2) * (drawn_loads.reshape(sequence.shape) - loads)
        longest = loads.max(axis=(1, 2), keepdims=True)
        smoothing = longest.mean() * 0.2 * 0.03 ** (draw / PATH_DRAWS)
        price = np.exp((loads - longest) / smoothing)
        price /= price.sum(axis=(1, 2), keepdims=True)

    # Each different path once: `first` is where it was drawn for the first time, ``draw * n_blocks
    # + block``. Draw number k counts k + 1 times for its paths, as later draws carry more in the
    # end. The heaviest paths of each block are kept, which come first in `order` among those of
    # the block.
    _, first, path_of_draw = np.unique(names, return_index=True, return_inverse=True)
    draw_weight = np.arange(1, PATH_DRAWS + 1).repeat(n_blocks)
    weight = np.bincount(path_of_draw.reshape(-1), draw_weight)
    first_draw, block = np.divmod(first, n_blocks)
    order = np.lexsort((-weight, block))
    place_in_block = np.arange(len(order)) - np.searchsorted(block[order], block[order])
    kept_paths = order[place_in_block < PATHS_KEPT]
    block = block[kept_paths]
    return _list_hops(sequence, block, source[block], lane_of[first_draw[kept_paths], :, block])


def find_cheapest_paths(sequence: Sequence, price: FloatArray) -> FloatArray:
    """Return the costs of the cheapest paths between all ranks before each round, and at the end.

    A path takes one circuit at most in each round, in the order of rounds, and waits in others.
    ``price[round, lane, rank]`` is that of the circuit over which a rank sends. The result
    ``cost[round, source, rank]`` is the sum of the prices up to this round, infinite without a
    path; ``cost[-1]`` has those over all rounds. Cost O(rounds lanes ranks^2).

    Example: the circuit 0 -> 1 in round 0 costs 2, and 1 -> 2 in round 1 costs 3. Then ``cost[1,
    0, 1]`` is 2, and ``cost[2, 0, 2]`` is 5.
    """
    rounds, lanes, n = sequence.shape
    cost = np.empty((rounds + 1, n, n))
    cost[0] = np.where(np.eye(n) > 0, 0.0, np.inf)
    for turn, lane in product(range(rounds), range(lanes)):
        if lane == 0:
            cost[turn + 1] = cost[turn]
        # over_circuit[source, rank]: the cost of coming from the rank to its peer in this round.
        peer = sequence[turn, lane]
        over_circuit = cost[turn] + price[turn, lane]
        cost[turn + 1][:, peer] = np.minimum(cost[turn + 1][:, peer], over_circuit)
    return cost
