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
    """A maximum flow, and the minimum cut that proves it."""

    served: Numbers
    """(jobs,): how much each job gets."""
    cut: SupplyProof
    """The smallest cut, which proves that there is no larger flow."""
    arcs: Numbers
    """(arcs,): resources that pass each arc, in the order of `Network.tails`."""


class _Arcs(NamedTuple):
    """Arcs between two layers of nodes."""

    tails: Numbers
    """(arcs,): the node that an arc leaves."""
    heads: Numbers
    """(arcs,): the node to which it leads."""
    capacities: Numbers
    """(arcs,): the most resources that may pass it."""


class Network:
    """A flow network: resources flow from a source through classes and groups to jobs and a sink.

    The flow on an arc is a number of resources. A class holds the resources that may serve the
    same jobs; a group holds the jobs that the same classes may serve. All classes that may serve a
    job lead to its group, so there are classes x groups arcs, and not classes x jobs.

    Where each job has a cap on the resources of each plane, a group has a node for each plane, and
    so has a job: the arc from that node to the job has the cap as its capacity. Without caps there
    is one plane, and the job is itself the node of its plane.

    Parameters
    ----------
    problem
        The resources, the jobs, and the classes and groups that follow from them.

    Attributes
    ----------
    caps
        ``caps[job, plane]``: the most resources of a plane that a job can use; None if nothing
        limits them.
    n_planes
        The number of planes; 1 without caps.
    sink
        The number of the last node; the source is node 0.
    plane_nodes
        ``plane_nodes[job, plane]``: the node through which a job gets resources of a plane.
    job_nodes
        ``job_nodes[job]``: the node from which an arc leads to the sink.
    ends
        ``arcs[ends[k]:ends[k + 1]]`` lie behind layer k: source to classes, classes to groups,
        groups to jobs by plane, and, with caps only, jobs by plane to jobs.
    tails, heads, capacities
        (arcs,): from which node to which an arc leads, and how many resources may pass it. Arcs
        from jobs to the sink are not among them, since their capacities are those of a call.
    """

    def __init__(self, problem: PortSharing) -> None:
        """Make the nodes and arcs, layer by layer.

        Nodes are numbered layer by layer from the source, node 0. With 2 classes, 2 groups, 3 jobs
        and no caps they are 0, then 1 and 2, 3 and 4, 5 to 7, and the sink 8; with caps on 2
        planes the groups have the nodes 3 to 6, the jobs by plane 7 to 12, the jobs 13 to 15, and
        the sink is 16. The demands of jobs are no part of the network: each call brings its own.
        """
        jobs = problem.jobs
        classes = problem.classes
        self.problem = problem
        self.caps = jobs.plane_caps
        self.n_planes = 1 if self.caps is None else self.caps.shape[1]

        # Nodes are numbered layer by layer: the source, classes, groups by plane, jobs by plane
        # (if there are caps), jobs, the sink. Without caps a job is its own node of the plane.
        n_classes, n_groups = classes.eligible.shape
        first_class = 1
        first_group = first_class + n_classes
        first_plane_node = first_group + n_groups * self.n_planes
        n_extra_nodes = 0 if self.caps is None else jobs.n_jobs * self.n_planes
        first_job = first_plane_node + n_extra_nodes
        self.sink = first_job + jobs.n_jobs
        self.job_nodes = first_job + np.arange(jobs.n_jobs)
        plane_nodes = first_plane_node + np.arange(jobs.n_jobs * self.n_planes)
        self.plane_nodes = plane_nodes.reshape(jobs.n_jobs, self.n_planes)

        # The sizes of classes and the caps limit the flow; all other arcs let every resource pass.
        n_resources = int(classes.sizes.sum())
        class_of_arc, group_of_arc = np.nonzero(classes.eligible)
        job_of_plane_node, plane = np.divmod(np.arange(len(plane_nodes)), self.n_planes)
        from_source = _Arcs(
            tails=np.zeros(n_classes, dtype=np.int64),
            heads=first_class + np.arange(n_classes),
            capacities=classes.sizes,
        )
        to_groups = _Arcs(
            tails=first_class + class_of_arc,
            heads=first_group + group_of_arc * self.n_planes + classes.plane[class_of_arc],
            capacities=np.full(len(class_of_arc), n_resources),
        )
        to_plane_nodes = _Arcs(
            tails=first_group + classes.group_of[job_of_plane_node] * self.n_planes + plane,
            heads=plane_nodes,
            capacities=np.full(len(plane_nodes), n_resources),
        )
        layers = [from_source, to_groups, to_plane_nodes]
        if self.caps is not None:
            under_caps = _Arcs(
                tails=plane_nodes,
                heads=first_job + job_of_plane_node,
                capacities=self.caps.reshape(-1),
            )
            layers.append(under_caps)

        # One array for all layers, as OR-Tools takes them: layer k is arcs[ends[k]:ends[k + 1]].
        self.ends = np.cumsum([0, *(len(layer.tails) for layer in layers)])
        self.tails = _join([layer.tails for layer in layers])
        self.heads = _join([layer.heads for layer in layers])
        self.capacities = _join([layer.capacities for layer in layers])

    def serve(self, demand: ArrayLike) -> LargestFlow:
        """Return a maximum flow of resources to jobs, and its minimum cut.

        A job gets at most ``demand[job]``. The cut is that of the nodes that the source still
        reaches in the residual network.
        """
        # The arcs of the network come first, then one from each job to the sink.
        demands = np.asarray(demand, dtype=np.int64)
        n_network_arcs = len(self.tails)
        solver = max_flow.SimpleMaxFlow()
        arcs = solver.add_arcs_with_capacity(
            np.concatenate((self.tails, self.job_nodes)),
            np.concatenate((self.heads, np.full(len(demands), self.sink))),
            np.concatenate((self.capacities, demands)),
        )
        if solver.solve(0, self.sink) != solver.OPTIMAL:
            raise SolverError("a largest flow was not found")
        flows = solver.flows(arcs)

        # Where the source still reaches the node of a job and plane, an arc behind it is full: its
        # capacity, a cap or the demand of the job, is counted by the cut. The mark for that is 1.
        is_reached = np.zeros(self.sink + 1, dtype=np.int8)
        is_reached[solver.get_source_side_min_cut()] = 1
        return LargestFlow(
            served=flows[n_network_arcs:],
            cut=SupplyProof(tight=is_reached[self.plane_nodes]),
            arcs=flows[:n_network_arcs],
        )

    def extend(self, needed: ArrayLike) -> LargestFlow:
        """Return a maximum flow to all demands in which each job gets at least ``needed[job]``.

        It is a minimum-cost flow as large as a maximum flow. Two arcs lead from each job to the
        sink: one of cost -1 for what the job needs, one of cost 0 for the rest of its demand. Some
        flow has to serve all needs, and then the least cost is reached when all are served.
        """
        demand = self.problem.jobs.demand
        least = np.asarray(needed, dtype=np.int64)
        largest = self.serve(demand)

        n_jobs = len(least)
        n_network_arcs = len(self.tails)
        solver = min_cost_flow.SimpleMinCostFlow()
        arcs = solver.add_arcs_with_capacity_and_unit_cost(
            np.concatenate((self.tails, self.job_nodes, self.job_nodes)),
            np.concatenate((self.heads, np.full(2 * n_jobs, self.sink))),
            np.concatenate((self.capacities, least, demand - least)),
            np.repeat([0, -1, 0], [n_network_arcs, n_jobs, n_jobs]),
        )
        total = int(largest.served.sum())
        solver.set_node_supply(0, total)
        solver.set_node_supply(self.sink, -total)
        if solver.solve() != solver.OPTIMAL:
            raise SolverError("a flow that serves all needs was not found")

        # What a job gets is the sum over its two arcs.
        flows = solver.flows(arcs)
        served = flows[n_network_arcs:].reshape(2, -1).sum(axis=0)
        return LargestFlow(served=served, cut=largest.cut, arcs=flows[:n_network_arcs])

    def assign(self, flow: LargestFlow) -> NDArray[np.int32]:
        """Return ``job_of[resource]``, -1 for no job, from a flow that only counts resources.

        At each group the first resource to come is the first to leave. Example: into a group come
        3 resources of class 0 and 2 of class 1, and out of it go 4 to job 0 and 1 to job 1::

            classes   0 0 0 1 | 1
            jobs      0 0 0 0 | 1

        The pieces are 3 of class 0 for job 0, 1 of class 1 for job 0, and 1 of class 1 for job 1.
        """
        # Arcs into groups and arcs out of groups, both in the order of the groups, so that their
        # flows lie above each other as in the example.
        classes = self.problem.classes
        first_in, first_out, end_out = self.ends[1:4].tolist()
        arcs_in = first_in + np.argsort(self.heads[first_in:first_out], kind="stable")
        arcs_out = first_out + np.argsort(self.tails[first_out:end_out], kind="stable")

        # A piece ends where either line changes: after 3, 4 and 5 resources in the example. Each
        # has its class, its job and its number of resources. Nodes of classes are numbered from 1,
        # and arcs out of groups come job by job, one for each plane of the job.
        end_of_arc_in = np.cumsum(flow.arcs[arcs_in])
        end_of_arc_out = np.cumsum(flow.arcs[arcs_out])
        end_of_piece = np.union1d(end_of_arc_in, end_of_arc_out)
        end_of_piece = end_of_piece[end_of_piece > 0]
        sizes = np.diff(end_of_piece, prepend=0)
        arc_in_of_piece = arcs_in[np.searchsorted(end_of_arc_in, end_of_piece)]
        arc_out_of_piece = arcs_out[np.searchsorted(end_of_arc_out, end_of_piece)]
        class_of_piece = self.tails[arc_in_of_piece] - 1
        job_of_piece = (arc_out_of_piece - first_out) // self.n_planes

        # The unused resources of each class are a piece for no job (-1). In `order` pieces are
        # sorted by class, and this one is the last of its class, as the sort is stable.
        n_classes = len(classes.sizes)
        used = np.bincount(class_of_piece, sizes, n_classes).astype(np.int64)
        class_of_piece = np.concatenate((class_of_piece, np.arange(n_classes)))
        job_of_piece = np.concatenate((job_of_piece, np.full(n_classes, -1))).astype(np.int32)
        sizes = np.concatenate((sizes, classes.sizes - used))
        order = np.argsort(class_of_piece, kind="stable")

        # The resources of each class, first come first, take the jobs of its pieces in turn. NumPy
        # sorts numbers of two bytes by radix, which is quicker.
        narrow: type[np.integer[Any]] = np.uint16 if n_classes < 2**16 else np.int32
        class_of_resource = classes.class_of.astype(narrow)
        job_of = np.empty(len(class_of_resource), dtype=np.int32)
        resources_by_class = np.argsort(class_of_resource, kind="stable")
        job_of[resources_by_class] = np.repeat(job_of_piece[order], sizes[order])
        return job_of


def _join(arrays: list[Numbers]) -> Numbers:
    """Put arrays of one layer after the other."""
    return np.concatenate([np.asarray(array, dtype=np.int64) for array in arrays])
