"""The flow from classes of resources to jobs: how much jobs get together, and the cut."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from ortools.graph.python import max_flow, min_cost_flow

from optmatch.model import SolverError
from optmatch.problems import PortSharing, SupplyProof

Numbers = NDArray[np.int64]


class LargestFlow(NamedTuple):
    """A largest flow."""

    served: Numbers
    cut: SupplyProof
    arcs: Numbers


class Network:
    """Arcs from a source over classes, groups of jobs on each plane, and jobs to a sink.

    All classes that may serve a job lead to its group, so there are classes x groups arcs, and not
    classes x jobs. Where a plane has a cap for each job, a group has a node for each plane, and a
    job too.
    """

    def __init__(self, problem: PortSharing) -> None:
        jobs, classes = problem.jobs, problem.classes
        n_classes, n_groups = classes.eligible.shape
        self.problem, self.caps = problem, jobs.plane_caps
        self.n_planes = 1 if self.caps is None else self.caps.shape[1]
        group_node = 1 + n_classes
        door_node = group_node + n_groups * self.n_planes
        job_node = door_node + (0 if self.caps is None else jobs.n_jobs * self.n_planes)
        self.sink = job_node + jobs.n_jobs
        of, group = np.nonzero(classes.eligible)
        job, plane = np.divmod(np.arange(jobs.n_jobs * self.n_planes), self.n_planes)
        doors = door_node + np.arange(len(job))  # the job itself where there are no caps
        self.doors = doors.reshape(jobs.n_jobs, self.n_planes)
        most = int(classes.sizes.sum())
        parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = [
            (np.zeros(n_classes, dtype=np.int64), 1 + np.arange(n_classes), classes.sizes),
            (
                1 + of,
                group_node + group * self.n_planes + classes.plane[of],
                np.full(len(of), most),
            ),
            (
                group_node + classes.group_of[job] * self.n_planes + plane,
                doors,
                np.full(len(job), most),
            ),
        ]
        if self.caps is not None:
            parts.append((doors, job_node + job, self.caps.reshape(-1)))
        self.ends = np.cumsum([0, *(len(part[0]) for part in parts)])
        self.jobs = job_node + np.arange(jobs.n_jobs)
        self.tails, self.heads, self.room = (
            np.concatenate([np.asarray(part[k], dtype=np.int64) for part in parts])
            for k in range(3)
        )

    def serve(self, demand: ArrayLike) -> LargestFlow:
        """Return a largest flow to jobs with such demands."""
        wanted = np.asarray(demand, dtype=np.int64)
        solver = max_flow.SimpleMaxFlow()
        arcs = solver.add_arcs_with_capacity(
            np.concatenate((self.tails, self.jobs)),
            np.concatenate((self.heads, np.full(len(wanted), self.sink))),
            np.concatenate((self.room, wanted)),
        )
        if solver.solve(0, self.sink) != solver.OPTIMAL:
            raise SolverError("a largest flow was not found")
        flows = solver.flows(arcs)
        reached = np.zeros(self.sink + 1, dtype=np.int8)
        reached[solver.get_source_side_min_cut()] = 1
        served = flows[len(self.tails) :]
        return LargestFlow(
            served, SupplyProof(tight=reached[self.doors]), flows[: len(self.tails)]
        )

    def extend(self, needed: ArrayLike) -> LargestFlow:
        """Return a largest flow in which each job gets what it needs, which must be possible."""
        demand, least = self.problem.jobs.demand, np.asarray(needed, dtype=np.int64)
        largest = self.serve(demand)
        solver = min_cost_flow.SimpleMinCostFlow()
        arcs = solver.add_arcs_with_capacity_and_unit_cost(
            np.concatenate((self.tails, self.jobs, self.jobs)),
            np.concatenate((self.heads, np.full(2 * len(least), self.sink))),
            np.concatenate((self.room, least, demand - least)),
            np.repeat([0, -1, 0], [len(self.tails), len(least), len(least)]),
        )
        total = int(largest.served.sum())
        solver.set_node_supply(0, total)
        solver.set_node_supply(self.sink, -total)
        if solver.solve() != solver.OPTIMAL:
            raise SolverError("a flow that serves all needs was not found")
        flows = solver.flows(arcs)
        served = flows[len(self.tails) :].reshape(2, -1).sum(axis=0)
        return LargestFlow(served, largest.cut, flows[: len(self.tails)])

    def assign(self, flow: LargestFlow) -> NDArray[np.int32]:
        """Return ``job_of[resource]`` of a flow: the first resources of each class are used."""
        classes, (start, middle, end) = self.problem.classes, self.ends[1:4]
        into = np.argsort(
            self.heads[start:middle], kind="stable"
        )  # to groups, one after the other
        out = np.argsort(self.tails[middle:end], kind="stable")  # from them, in the same order
        came = np.cumsum(flow.arcs[start:middle][into])
        left = np.cumsum(flow.arcs[middle:end][out])
        lasts = np.union1d(came, left)  # the n-th resource to leave a group came n-th
        lasts = lasts[lasts > 0]
        counts = np.diff(lasts, prepend=0)
        of = self.tails[start:middle][into][np.searchsorted(came, lasts)] - 1
        job = out[np.searchsorted(left, lasts)] // self.n_planes
        unused = classes.sizes - np.bincount(of, counts, len(classes.sizes)).astype(np.int64)
        of = np.concatenate((of, np.arange(len(unused))))
        order = np.argsort(of, kind="stable")
        jobs = np.concatenate((job, np.full(len(unused), -1))).astype(np.int32)[order]
        kind = classes.class_of.astype(np.uint16 if len(unused) < 2**16 else np.int32)
        job_of = np.empty(len(kind), dtype=np.int32)
        job_of[np.argsort(kind, kind="stable")] = np.repeat(
            jobs, np.concatenate((counts, unused))[order]
        )
        return job_of
