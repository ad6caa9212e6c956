"""Methods that share resources among jobs: online policies, and optima by flows."""

from __future__ import annotations

from functools import partial

from optmatch.problems import PortSharing
from optmatch.solvers.method import Method, Run


def _policy(name: str) -> Run:
    from optmatch.solvers.sharing.conclusion import interruptible
    from optmatch.solvers.sharing.first_fit import solve

    return interruptible(name, partial(solve, name))


def _takes(name: str, problem: PortSharing) -> bool:
    from optmatch.solvers.sharing.first_fit import takes

    return takes(problem, name)


def _optimum(name: str) -> Run:
    from optmatch.solvers.sharing import completion, flows
    from optmatch.solvers.sharing.conclusion import interruptible

    runs: dict[str, Run] = {
        "max-flow": flows.serve_most,
        "lexicographic": flows.serve_in_order,
        "max-min": flows.serve_fairly,
        "min-jct": completion.solve,
    }
    return interruptible(name, runs[name])


def _asks(name: str, problem: PortSharing) -> bool:
    if name != "min-jct":
        return problem.objective == name
    from optmatch.solvers.sharing.completion import takes

    return takes(problem)


_OPTIMA = {
    "max-flow": "the most that all jobs get together: a largest flow, and its cut",
    "max-min": "the job that lacks most of its fair share lacks as little as possible",
    "min-jct": "all demands met as early as possible on average, of small problems",
    "lexicographic": "jobs in their order, each as much as those before it allow",
}

_POLICIES = {
    "fifo": "each resource to the job that asked first",
    "srsf": "each resource to the job that wants the least",
    "irs": "each resource to the group of jobs that owns its class, scarce classes first",
    "random": "each resource to the first job of a random order",
}

METHODS = (
    *(
        Method(
            name,
            PortSharing,
            partial(_optimum, name),
            summary,
            exact=True,
            suits=None if name == "lexicographic" else partial(_asks, name),
        )
        for name, summary in _OPTIMA.items()
    ),
    *(
        Method(name, PortSharing, partial(_policy, name), summary, suits=partial(_takes, name))
        for name, summary in _POLICIES.items()
    ),
)
"""Methods for shared resources; the first that takes a problem is the default."""
