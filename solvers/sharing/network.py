"""The flow from classes of resources to jobs: how much jobs get together, and the cut."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from ortools.graph.python import max_flow, min_cost_flow

from optmatch.model import SolverError
from optmatch.problems import PortSharing, SupplyProof

Numbers = NDArray[np.int64]


class LargestFlow(NamedTuple):
    """A largest flow."""

    served: Numbers
    """(jobs,): how much each job gets."""
    cut: SupplyProof
    """The smallest cut, which proves that there is no larger flow."""
    arcs: Numbers
    """(arcs,): the flow on all arcs of the network but those into the sink."""


class _Arcs(NamedTuple):
    """Arcs between two layers of nodes."""

    tails: Numbers
    heads: Numbers
    room: Numbers


class Network:
    """Arcs from a source over classes, groups of jobs on each plane, and jobs to a sink.

    All classes that may serve a job lead to its group, so there are classes x groups arcs, and not
    classes x jobs. Where a plane has a cap for each job, a group has a node for each plane, and a
    job has a door for each plane; without caps the job itself is its only door.

    Attributes
    ----------
    caps
        ``caps[job, plane]``; None if there are none.
    doors
        ``doors[job, plane]``: the node through which a job gets resources of a plane.
    jobs
        ``jobs[job]``: its node.
    ends
        The first arc behind each layer: source to classes, classes to groups, groups to doors, and
        doors to jobs; it begins with 0.
    tails, heads, room
        By arc; those from jobs to the sink are not among them.
    """

    def __init__(self, problem: PortSharing) -> None:
        jobs = problem.jobs
        classes = problem.classes
        self.problem = problem
        self.caps = jobs.plane_caps
        self.n_planes = 1 if self.caps is None else self.caps.shape[1]

        # Nodes are numbered layer by layer: the source, classes, groups by plane, doors, jobs.
        n_classes, n_groups = classes.eligible.shape
        first_class = 1
        first_group = first_class + n_classes
        first_door = first_group + n_groups * self.n_planes
        n_doors = 0 if self.caps is None else jobs.n_jobs * self.n_planes
        first_job = first_door + n_doors
        self.sink = first_job + jobs.n_jobs
        self.jobs = first_job + np.arange(jobs.n_jobs)
        doors = first_door + np.arange(jobs.n_jobs * self.n_planes)
        self.doors = doors.reshape(jobs.n_jobs, self.n_planes)

        n_resources = int(classes.sizes.sum())
        class_of_arc, group_of_arc = np.nonzero(classes.eligible)
        job_of_door, plane_of_door = np.divmod(np.arange(len(doors)), self.n_planes)
        from_source = _Arcs(
            tails=np.zeros(n_classes, dtype=np.int64),
            heads=first_class + np.arange(n_classes),
            room=classes.sizes,
        )
        to_groups = _Arcs(
            tails=first_class + class_of_arc,
            heads=first_group + group_of_arc * self.n_planes + classes.plane[class_of_arc],
            room=np.full(len(class_of_arc), n_resources),
        )
        to_doors = _Arcs(
            tails=first_group + classes.group_of[job_of_door] * self.n_planes + plane_of_door,
            heads=doors,
            room=np.full(len(doors), n_resources),
        )
        layers = [from_source, to_groups, to_doors]
        if self.caps is not None:
            layers.append(_Arcs(doors, first_job + job_of_door, self.caps.reshape(-1)))
        self.ends = np.cumsum([0, *(len(layer.tails) for layer in layers)])
        self.tails = _join([layer.tails for layer in layers])
        self.heads = _join([layer.heads for layer in layers])
        self.room = _join([layer.room for layer in layers])

    def serve(self, demand: ArrayLike) -> LargestFlow:
        """Return a largest flow to jobs with such demands."""
        demands = np.asarray(demand, dtype=np.int64)
        solver = max_flow.SimpleMaxFlow()
        arcs = solver.add_arcs_with_capacity(
            np.concatenate((self.tails, self.jobs)),
            np.concatenate((self.heads, np.full(len(demands), self.sink))),
            np.concatenate((self.room, demands)),
        )
        if solver.solve(0, self.sink) != solver.OPTIMAL:
            raise SolverError("a largest flow was not found")
        flows = solver.flows(arcs)
        is_reached = np.zeros(self.sink + 1, dtype=np.int8)
        is_reached[solver.get_source_side_min_cut()] = 1
        return LargestFlow(
            served=flows[len(self.tails) :],
            cut=SupplyProof(tight=is_reached[self.doors]),
            arcs=flows[: len(self.tails)],
        )

    def extend(self, needed: ArrayLike) -> LargestFlow:
        """Return a largest flow in which each job gets what it needs, which must be possible.

        A flow of least cost: what a job needs goes over an arc of cost -1, the rest of its demand
        over one of cost 0.
        """
        demand = self.problem.jobs.demand
        least = np.asarray(needed, dtype=np.int64)
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
        """Return ``job_of[resource]`` of a flow: the first resources of each class are used.

        A group passes resources on in the order in which they come: the n-th that comes to it, in
        the order of classes, is the n-th that leaves, in the order of doors. The arcs into all
        groups, put one behind the other, and those out of them are two partitions of one line;
        each piece of their common refinement goes from one class to one job.
        """
        classes = self.problem.classes
        first_in, first_out, end_out = self.ends[1:4].tolist()
        arcs_in = first_in + np.argsort(self.heads[first_in:first_out], kind="stable")
        arcs_out = first_out + np.argsort(self.tails[first_out:end_out], kind="stable")
        end_of_arc_in = np.cumsum(flow.arcs[arcs_in])
        end_of_arc_out = np.cumsum(flow.arcs[arcs_out])
        end_of_piece = np.union1d(end_of_arc_in, end_of_arc_out)
        end_of_piece = end_of_piece[end_of_piece > 0]
        sizes = np.diff(end_of_piece, prepend=0)
        arc_in_of_piece = arcs_in[np.searchsorted(end_of_arc_in, end_of_piece)]
        arc_out_of_piece = arcs_out[np.searchsorted(end_of_arc_out, end_of_piece)]
        class_of_piece = self.tails[arc_in_of_piece] - 1
        job_of_piece = (arc_out_of_piece - first_out) // self.n_planes

        # What is left of each class is a piece for no job, behind its other pieces.
        n_classes = len(classes.sizes)
        used = np.bincount(class_of_piece, sizes, n_classes).astype(np.int64)
        class_of_piece = np.concatenate((class_of_piece, np.arange(n_classes)))
        job_of_piece = np.concatenate((job_of_piece, np.full(n_classes, -1))).astype(np.int32)
        sizes = np.concatenate((sizes, classes.sizes - used))
        order = np.argsort(class_of_piece, kind="stable")

        # NumPy sorts numbers of two bytes by radix, which is quicker.
        narrow: type[np.integer[Any]] = np.uint16 if n_classes < 2**16 else np.int32
        class_of_resource = classes.class_of.astype(narrow)
        job_of = np.empty(len(class_of_resource), dtype=np.int32)
        resources_by_class = np.argsort(class_of_resource, kind="stable")
        job_of[resources_by_class] = np.repeat(job_of_piece[order], sizes[order])
        return job_of


def _join(arrays: list[Numbers]) -> Numbers:
    """Put arrays of one layer after the other."""
    return np.concatenate([np.asarray(array, dtype=np.int64) for array in arrays])
