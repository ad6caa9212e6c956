"""Measure whether the queue of `RollingSchedule` stays finite, and how long flows wait.

    python benchmarks/rolling_stability.py [--cells 0 8 16] [--slots 30000] [--cpu-s 200]
    python benchmarks/rolling_stability.py --flows-per-port 30 300 --seeds 20 10 [--loads 0.5 0.8]

A cell is a load, a number of ports, a pattern of traffic and a size of flows; `list_cells` names
all of them. Flows arrive at random, and the clock moves to the end of each slot that is committed.
The same flows are then served by a plain rival: maximum weight with hysteresis, which in slots of
a fixed length takes the matching of the most queued bytes, if it has more than the held one has by
a factor, for three lengths and factors.

The second form compares mean waits: all of so many flows arrive and are served, with so many
seeds. It prints a table in Markdown: for each load and number of flows, and each rival, the mean
ratio of our mean wait to that of the rival, and its 95 % confidence interval.

A queue is stable if its backlog stops to grow. *Growth* is the mean backlog of the last quarter of
the run over that of the second. Times are in delays, which are 1 s here.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import t

import optmatch as om

DELAY_S = 1.0
SIZES_S = (0.5, 20.0, 200.0)
KINDS = ("uniform", "skewed", "diagonal", "permutations")
LOADS = (0.5, 0.8, 0.9, 0.95)
PORTS = (8, 16, 32)
OVERLOAD = 1.3
HYSTERESES = ((5.0, 1.2), (5.0, 2.0), (20.0, 1.3))
"""Rivals: the length of a slot in delays, and the factor by which another matching is heavier."""

_FLOWS_AT_ONCE = 20_000
_DONE_S = 1e-9  # a flow of so little is complete


class Cell(NamedTuple):
    """What arrives at a switch."""

    load: float  # the part of the time that each port is asked for, at both ends
    n_ports: int
    kind: str  # one of KINDS
    size_s: float  # the mean size of a flow, in seconds of circuit time


class Flow(NamedTuple):
    """A flow of which each byte takes a second."""

    arrival_s: float
    source: int
    destination: int
    size_s: float


class Sample(NamedTuple):
    """The backlog at the beginning of a slot."""

    start_s: float
    backlog_s: float  # of a port, in the mean of all
    duration_s: float


class Run(NamedTuple):
    """How a policy served the flows of a cell."""

    quarters_s: tuple[float, float, float, float]  # mean backlog of a port in each quarter
    mean_wait_s: float  # from the arrival of a flow until it is complete
    carried: float  # seconds of circuit time that were served, for each port and second

    @property
    def growth(self) -> float:
        """The backlog of the last quarter over that of the second."""
        return self.quarters_s[3] / max(self.quarters_s[1], 1e-9)


def list_cells() -> list[Cell]:
    """List the kinds of traffic that are measured.

    The first 24 have loads below 1, and each load meets each number of ports twice. The last 4
    have overload: more arrives than circuits can carry.
    """
    patterns = list(product(SIZES_S, KINDS))
    cells = []
    for load, n_ports, _ in product(LOADS, PORTS, range(2)):
        # Five steps in a circle of twelve come to all patterns twice.
        size_s, kind = patterns[len(cells) * 5 % len(patterns)]
        cells.append(Cell(load, n_ports, kind, size_s))
    for n_ports, size_s in product((8, 32), (20.0, 0.5)):
        cells.append(Cell(OVERLOAD, n_ports, "uniform", size_s))
    return cells


def draw_rates(kind: str, n_ports: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw how likely a flow has each source and destination.

    Parameters
    ----------
    kind
        The pattern of traffic: `uniform` for all pairs of ports alike, `skewed` for log-normal
        shares, `diagonal` for two partners of each port, of which one has two thirds, and
        `permutations` for a sum of four random permutations with the weights 4 to 1.
    n_ports
        The number of ports.
    rng
        Draws what is random.

    Returns
    -------
    ndarray, shape (n_ports, n_ports)
        Probabilities by source and destination. All rows and columns have the same sum, so that
        all ports are equally busy.
    """
    ports = np.arange(n_ports)
    rates = np.zeros((n_ports, n_ports))
    if kind == "uniform":
        rates = 1.0 - np.eye(n_ports)
    elif kind == "skewed":
        rates = rng.lognormal(0, 1.5, (n_ports, n_ports))
        np.fill_diagonal(rates, 0)
    elif kind == "diagonal":
        rates[ports, (ports + 1) % n_ports] = 2
        rates[ports, (ports + 2) % n_ports] = 1
    else:
        for weight in (4, 3, 2, 1):
            rates[ports, rng.permutation(n_ports)] += weight

    # Sinkhorn's scaling makes the sums equal.
    for _ in range(200):
        rates = rates / rates.sum(axis=1, keepdims=True)
        rates = rates / rates.sum(axis=0)
    return rates / rates.sum()


def yield_flows(cell: Cell, seed: int) -> Iterator[Flow]:
    """Draw flows without end, in the order in which they arrive.

    They arrive as a Poisson process, so often that each port is asked for the load of the cell.
    Their sizes are exponential, and their ports are drawn by the pattern of the cell
    (`draw_rates`).
    """
    rng = np.random.default_rng(seed)
    n_ports = cell.n_ports
    rates = draw_rates(cell.kind, n_ports, rng).ravel()
    interval_s = cell.size_s / (n_ports * cell.load)
    now_s = 0.0
    while True:
        arrivals_s = now_s + np.cumsum(rng.exponential(interval_s, _FLOWS_AT_ONCE))
        now_s = float(arrivals_s[-1])
        sources, destinations = np.divmod(rng.choice(n_ports**2, _FLOWS_AT_ONCE, p=rates), n_ports)
        sizes_s = rng.exponential(cell.size_s, _FLOWS_AT_ONCE)
        columns = (arrivals_s, sources, destinations, sizes_s)
        for values in zip(*(column.tolist() for column in columns), strict=True):
            yield Flow(*values)


def mean_of_quarters(samples: Sequence[Sample], end_s: float) -> tuple[float, float, float, float]:
    """Average the backlog over each quarter of a run.

    Parameters
    ----------
    samples
        The backlog at the beginning of each slot; slots are weighed by their length.
    end_s
        The end of the run, which begins at 0.

    Returns
    -------
    tuple of four float
        By quarter the mean backlog of a port in seconds; 0 for a quarter in which no slot begins,
        as in a short run whose slots are long.
    """
    # The reshaping keeps three columns also where there is no slot at all.
    start_s, backlog_s, duration_s = np.array(samples).reshape(-1, 3).T
    quarter = np.minimum(4 * start_s / end_s, 3).astype(int)
    slot_s = np.bincount(quarter, duration_s, minlength=4)
    weighed = np.bincount(quarter, backlog_s * duration_s, minlength=4)
    means_s = np.divide(weighed, slot_s, out=np.zeros(4), where=slot_s > 0)
    first, second, third, fourth = means_s.tolist()
    return first, second, third, fourth


def run_ours(
    n_ports: int, flows: Iterator[Flow], n_slots: float = np.inf, cpu_s: float = np.inf
) -> tuple[Run, list[Flow], float]:
    """Serve flows by `RollingSchedule`.

    Parameters
    ----------
    n_ports
        The number of ports.
    flows
        What arrives, in the order of time, perhaps without end.
    n_slots, cpu_s
        The run ends after so many slots or so much time of the processor, but not before its first
        slot; or when all is served.

    Returns
    -------
    (Run, list of Flow, float)
        What came of it, the flows that arrived, and when it ended.
    """
    rolling = om.RollingSchedule(om.IdealSwitch(n_ports), DELAY_S, time_limit_s=0.0)
    flow = next(flows, None)
    arrived: list[Flow] = []
    samples: list[Sample] = []
    began_s = time.process_time()
    while len(samples) < n_slots:
        if samples and time.process_time() - began_s >= cpu_s:
            break

        # Without demand there is no slot until the next flow arrives.
        backlog_s = float(rolling.queued_bytes.sum()) / n_ports
        slot = rolling.next_slot()
        if slot is not None:
            end_s = slot.end_s
            samples.append(Sample(slot.start_s, backlog_s, end_s - slot.start_s))
        elif flow is not None:
            end_s = flow.arrival_s
        else:
            break

        # All flows of the slot arrive at their own times.
        while flow is not None and flow.arrival_s <= end_s:
            rolling.advance(flow.arrival_s)
            rolling.add(flow.source, flow.destination, flow.size_s)
            arrived.append(flow)
            flow = next(flows, None)
        rolling.advance(end_s)

    figures = rolling.figures()
    now_s = rolling.now_s
    served_s = sum(flow.size_s for flow in arrived) - figures["queued_bytes"]
    run = Run(mean_of_quarters(samples, now_s), figures["mean_wait_s"], served_s / now_s / n_ports)
    return run, arrived, now_s


class _Queues:
    """The flows that wait, first come first served for each pair of ports."""

    def __init__(self, n_ports: int, flows: Sequence[Flow]) -> None:
        self.left_s = np.zeros((n_ports, n_ports))
        self.waits_s: list[float] = []  # of complete flows
        self.served_s = 0.0
        self._coming = deque(flows)
        self._waiting: dict[tuple[int, int], deque[Flow]] = {}

    def next_arrival_s(self) -> float | None:
        """Return when the next flow arrives; None if all have."""
        return self._coming[0].arrival_s if self._coming else None

    def admit(self, until_s: float) -> None:
        """Let all flows arrive that do so until then."""
        while self._coming and self._coming[0].arrival_s <= until_s:
            flow = self._coming.popleft()
            pair = flow.source, flow.destination
            self._waiting.setdefault(pair, deque()).append(flow)
            self.left_s[pair] += flow.size_s

    def serve(self, pair: tuple[int, int], start_s: float, end_s: float) -> None:
        """Serve the flows of a circuit, each from its arrival on."""
        waiting = self._waiting.get(pair)
        now_s = start_s
        while waiting and now_s < end_s:
            flow = waiting[0]
            begin_s = max(now_s, flow.arrival_s)
            if begin_s >= end_s:
                return
            part_s = min(flow.size_s, end_s - begin_s)
            now_s = begin_s + part_s
            rest_s = flow.size_s - part_s
            waiting[0] = flow._replace(size_s=rest_s, arrival_s=flow.arrival_s)
            self.left_s[pair] -= part_s
            self.served_s += part_s
            if rest_s < _DONE_S:
                self.waits_s.append(now_s - flow.arrival_s)
                waiting.popleft()
        if not waiting:
            self.left_s[pair] = 0.0


def run_maximum_weight(
    n_ports: int, flows: Sequence[Flow], end_s: float, slot_s: float, factor: float
) -> Run:
    """Serve flows by maximum weight with hysteresis.

    Parameters
    ----------
    n_ports
        The number of ports.
    flows
        What arrives, in the order of time.
    end_s
        The end of the run; infinite to serve everything.
    slot_s
        The length of a slot, without the delay before it.
    factor
        The held matching stays unless another one has more queued bytes by this factor.
    """
    sources = np.arange(n_ports)
    held: NDArray[np.int64] | None = None
    queues = _Queues(n_ports, flows)
    samples: list[Sample] = []
    now_s = 0.0
    while now_s < end_s:
        queues.admit(now_s)
        if not queues.left_s.any():
            arrival_s = queues.next_arrival_s()
            if arrival_s is None:
                break
            now_s = arrival_s
            continue

        start_s = now_s
        backlog_s = float(queues.left_s.sum()) / n_ports
        _, heaviest = linear_sum_assignment(queues.left_s, maximize=True)
        heaviest_s = queues.left_s[sources, heaviest].sum()
        if held is None or heaviest_s > factor * queues.left_s[sources, held].sum():
            now_s += DELAY_S
            held = heaviest
        slot_end_s = now_s + slot_s
        samples.append(Sample(start_s, backlog_s, slot_end_s - start_s))
        queues.admit(slot_end_s)
        for pair in zip(sources.tolist(), held.tolist(), strict=True):
            queues.serve(pair, now_s, slot_end_s)
        now_s = slot_end_s
    end_s = min(end_s, now_s)
    return Run(
        mean_of_quarters(samples, end_s),
        float(np.mean(queues.waits_s)) if queues.waits_s else 0.0,
        queues.served_s / end_s / n_ports,
    )


class WaitRatio(NamedTuple):
    """Our mean wait over that of a rival, as a mean over several seeds."""

    mean: float
    half_width: float  # of the 95 % confidence interval, by Student's t


def compare_waits(cell: Cell, n_flows: int, n_seeds: int) -> list[WaitRatio]:
    """Serve so many flows completely, with several seeds, and compare the mean waits.

    Parameters
    ----------
    cell
        What arrives.
    n_flows
        How many flows arrive with each seed.
    n_seeds
        The seeds are 0 to `n_seeds` - 1; 2 or more.

    Returns
    -------
    list of WaitRatio
        One for each rival, in the order of `HYSTERESES`.
    """
    ratios = []
    for seed in range(n_seeds):
        flows = list(islice(yield_flows(cell, seed), n_flows))
        ours, _, _ = run_ours(cell.n_ports, iter(flows))
        rivals = [run_maximum_weight(cell.n_ports, flows, np.inf, *rival) for rival in HYSTERESES]
        ratios.append([ours.mean_wait_s / rival.mean_wait_s for rival in rivals])

    # The seeds are independent, and a ratio has the same flows above and below the line.
    means = np.mean(ratios, axis=0)
    deviations = np.std(ratios, axis=0, ddof=1) / np.sqrt(n_seeds)
    half_widths = t.ppf(0.975, n_seeds - 1) * deviations
    return [
        WaitRatio(mean, half_width)
        for mean, half_width in zip(means.tolist(), half_widths.tolist(), strict=True)
    ]


def print_table(
    cells: Sequence[Cell], flows_per_port: Sequence[int], n_seeds: Sequence[int]
) -> None:
    """Print ratios of mean waits as a table in Markdown, row by row as they are known.

    Parameters
    ----------
    cells
        What arrives, one group of rows for each.
    flows_per_port
        The flows that arrive, for each port.
    n_seeds
        How many seeds are run for each of these numbers.
    """
    rivals = [f"slots of {slot_s:g}, factor {factor:g}" for slot_s, factor in HYSTERESES]
    columns = ["load", "mean flow, in delays", "flows a port", "seeds", *rivals]
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    for cell in cells:
        for n_flows_of_port, n_seeds_of_row in zip(flows_per_port, n_seeds, strict=True):
            ratios = compare_waits(cell, cell.n_ports * n_flows_of_port, n_seeds_of_row)
            row = [f"{cell.load:g}", f"{cell.size_s:g}", f"{n_flows_of_port}", f"{n_seeds_of_row}"]
            row += [f"{ratio.mean:.2f} ± {ratio.half_width:.2f}" for ratio in ratios]
            print(f"| {' | '.join(row)} |", flush=True)


def measure_cell(number: int, n_slots: int, cpu_s: float) -> dict[str, Any]:
    """Serve the flows of one kind of traffic by `RollingSchedule`, and also by all rivals.

    Parameters
    ----------
    number
        The place of the traffic in `list_cells`; also the seed of its flows.
    n_slots, cpu_s
        Our run ends after so many slots or so much time of the processor. The runs of the rivals
        end at the same time of the clock.

    Returns
    -------
    dict
        The traffic; how many flows arrived until `end_s`; of ours and of each rival the growth of
        the backlog and the part of the time that circuits carried; our mean wait in seconds, and
        the same over the shortest one of all rivals.
    """
    cell = list_cells()[number]
    began_s = time.process_time()
    ours, flows, end_s = run_ours(cell.n_ports, yield_flows(cell, number), n_slots, cpu_s)
    ours_cpu_s = time.process_time() - began_s
    rivals = [run_maximum_weight(cell.n_ports, flows, end_s, *rival) for rival in HYSTERESES]

    # In a short run a rival may have completed no flow, and then has no mean wait.
    shortest_wait_s = min(rival.mean_wait_s for rival in rivals)
    wait_over_best_rival = None
    if shortest_wait_s > 0:
        wait_over_best_rival = ours.mean_wait_s / shortest_wait_s
    return {
        "cell": number,
        **cell._asdict(),
        "flows": len(flows),
        "end_s": end_s,
        "growth": ours.growth,
        "growth_of_rivals": [rival.growth for rival in rivals],
        "wait_s": ours.mean_wait_s,
        "wait_over_best_rival": wait_over_best_rival,
        "carried": ours.carried,
        "carried_by_rivals": [rival.carried for rival in rivals],
        "cpu_s": ours_cpu_s,
    }


def main() -> None:
    """Run the cells that are asked for, and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__, prog="rolling_stability.py")
    cells = list_cells()
    parser.add_argument("--cells", type=int, nargs="*", default=range(len(cells)))
    parser.add_argument("--slots", type=int, default=30_000)
    parser.add_argument("--cpu-s", type=float, default=200.0, help="at most, for each cell")
    parser.add_argument(
        "--flows-per-port", type=int, nargs="+", help="serve so many, and compare waits"
    )
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[20], help="2 or more; one number, or one for each"
    )
    parser.add_argument("--ports", type=int, default=16, help="of the comparison of waits")
    parser.add_argument("--loads", type=float, nargs="*", default=(0.5, 0.8, 0.9))
    parser.add_argument("--sizes-s", type=float, nargs="*", default=(20.0,))
    options = parser.parse_args()
    if min(options.seeds) < 2:
        parser.error("--seeds: a confidence interval needs 2 or more")
    if options.slots < 1:
        parser.error("--slots: 1 or more")
    if options.flows_per_port is not None:
        flows_per_port = options.flows_per_port
        if min(flows_per_port) < 1:
            parser.error("--flows-per-port: 1 or more")
        n_seeds = options.seeds
        if len(n_seeds) == 1:
            n_seeds = n_seeds * len(flows_per_port)
        if len(n_seeds) != len(flows_per_port):
            parser.error(f"--seeds: {len(n_seeds)} of {len(flows_per_port)} numbers")
        compared = [
            Cell(load, options.ports, "uniform", size_s)
            for load, size_s in product(options.loads, options.sizes_s)
        ]
        print_table(compared, flows_per_port, n_seeds)
        return
    for number in options.cells:
        print(json.dumps(measure_cell(number, options.slots, options.cpu_s)), flush=True)


if __name__ == "__main__":
    main()
