"""The best answers to tiny slice problems by trying every place of every server."""

from itertools import permutations, product

from optmatch.problems import SliceAllocation


def best_slice(problem: SliceAllocation) -> float | None:
    """Find the least load of a tiny slice problem; None if nothing fits."""
    best: float | None = None
    before = problem.loads
    racks = problem.fabric.server_coordinates[:, 0]
    for plan in problem.slice_shapes:
        pairs = list(zip(plan.pairs.tolist(), plan.weights.tolist(), strict=True))
        for servers in permutations(problem.free_servers.tolist(), plan.n_slots):
            if len({int(racks[server]) for server in servers}) > 1 and not problem.fabric.joined:
                continue
            choices = [problem.candidates(servers[a], servers[b], w) for (a, b), w in pairs]
            for routes in product(*choices):
                loads = before.copy()
                for route, (_, weight) in zip(routes, pairs, strict=True):
                    loads[list(route)] += weight
                used = [edge for route in routes for edge in route]
                if (loads <= problem.fabric.edge_fibres).all():
                    load = float(loads[used].max(initial=0))
                    best = load if best is None else min(best, load)
    return best
