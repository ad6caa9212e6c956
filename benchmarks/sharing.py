"""Sharing: millions of resources, the same by networkx, and one online decision.

    python benchmarks/sharing.py [--resources 7000000] [--raw 3000]

Resources have four attributes, uniform in [0, 1); 1,000 jobs have bounds on the 4 levels 0, 1/4,
1/2 and 3/4 of each, seed 0. networkx gets the class graph, and resource by resource the largest
problem that it is asked to do. Times are of the processor, the least of some runs, but for one
decision, which is a median of the clock.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np

import optmatch as om
from optmatch.model import Limits, ignore
from optmatch.problems import Jobs, PortSharing, Resources
from optmatch.solvers.sharing.first_fit import Dispatcher
from optmatch.solvers.sharing.flows import serve_most
from optmatch.solvers.sharing.network import Network

JOBS, LEVELS = 1000, 4


def draw(count: int) -> tuple[Resources, Jobs]:
    """Draw resources and jobs whose demands are a little more than there is."""
    rng = np.random.default_rng(0)
    least = rng.integers(0, LEVELS, (4, JOBS)) / LEVELS
    has = rng.random((4, count))
    demand = rng.integers(count // 7000, max(2 * count // 950, 2), JOBS)
    return Resources(has), Jobs(demand, least)


def least_s(run: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    """Return the least time of the processor of some runs, and what the last returned."""
    spent = []
    for _ in range(times):
        before = time.process_time()
        found = run()
        spent.append(time.process_time() - before)
    return min(spent), found


def by_classes(problem: PortSharing) -> int:
    """Let networkx find the flow from classes to jobs."""
    graph, classes = nx.DiGraph(), problem.classes
    for number, row in enumerate(classes.jobs_of):
        graph.add_edge("s", number, capacity=int(classes.sizes[number]))
        graph.add_edges_from((number, ("job", job)) for job in np.flatnonzero(row).tolist())
    for job, wants in enumerate(problem.jobs.demand.tolist()):
        graph.add_edge(("job", job), "t", capacity=wants)
    return int(nx.maximum_flow_value(graph, "s", "t"))


def by_resources(problem: PortSharing) -> int:
    """Let networkx find the flow from resources to jobs."""
    graph, classes = nx.DiGraph(), problem.classes
    eligible = [np.flatnonzero(row).tolist() for row in classes.jobs_of]
    for number, kind in enumerate(classes.class_of.tolist()):
        graph.add_edge("s", number, capacity=1)
        graph.add_edges_from((number, ("job", job)) for job in eligible[kind])
    for job, wants in enumerate(problem.jobs.demand.tolist()):
        graph.add_edge(("job", job), "t", capacity=wants)
    return int(nx.maximum_flow_value(graph, "s", "t"))


def decide(jobs: Jobs) -> float:
    """Return the median time of one decision, from attributes to a job, in microseconds."""
    rng, dispatcher, spent = np.random.default_rng(1), Dispatcher(jobs), []
    for job in range(JOBS):
        dispatcher.ask(job, 100, -float(jobs.demand[job]))
    devices = rng.random((50_000, 4)).tolist()
    for values in devices:
        dispatcher.find(values)  # the first of a kind costs a look at all jobs
    for values in devices:
        before = time.perf_counter_ns()
        dispatcher.offer(dispatcher.find(values))
        spent.append(time.perf_counter_ns() - before)
    return float(np.median(spent)) / 1000


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resources", type=int, default=7_000_000)
    parser.add_argument("--raw", type=int, default=3000)
    options = parser.parse_args()
    there, jobs = draw(options.resources)
    rng = np.random.default_rng(0)
    classify_s, problem = least_s(lambda: PortSharing(there, jobs))
    solve_s, solution = least_s(lambda: serve_most(problem, Limits(), rng, ignore))
    check_s, report = least_s(lambda: om.verify(problem, solution))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    served = int((solution.answer.job_of >= 0).sum())
    print(f"{options.resources} resources, {JOBS} jobs, {problem.n_classes} classes")
    print(f"classify {classify_s:.2f} s, max-flow {solve_s:.2f} s, verify {check_s:.2f} s;")
    print(f"{served} served, {solution.status.value}, verified: {report.ok}; {peak:.2f} GiB")
    peer_s, found = least_s(lambda: by_classes(problem), 1)
    flow_s, _ = least_s(lambda: Network(problem).serve(jobs.demand))
    print(f"the flow on classes: networkx {peer_s:.1f} s, ours {1000 * flow_s:.1f} ms,", end=" ")
    print(f"{peer_s / flow_s:.0f} times; equal: {found == served}")
    small = PortSharing(*draw(options.raw))
    raw_s, found = least_s(lambda: by_resources(small), 1)
    ours_s, ours = least_s(
        lambda: serve_most(PortSharing(small.resources, small.jobs), Limits(), rng, ignore)
    )
    equal = found == int((ours.answer.job_of >= 0).sum())
    print(
        f"networkx on {options.raw} resources: {raw_s:.1f} s, ours {1000 * ours_s:.1f} ms,",
        end=" ",
    )
    print(f"{raw_s / ours_s:.0f} times; equal: {equal}")
    print(f"one decision, {JOBS} jobs: {decide(jobs):.2f} us (median)")


if __name__ == "__main__":
    main()
