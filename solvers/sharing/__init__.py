"""Methods that share resources among jobs: online policies, and optima by flows.

Words of this room: a *resource*, a port or a machine, comes at some time and serves one job. A
*class* is all resources that may serve the same jobs, and a *group* all jobs that the same
resources may serve. The *demand* of a job is how many resources it wants, and it is *served* by
those it gets. A *policy* gives each resource, as it comes, to the job of the highest priority
(`policies`). An optimum is a maximum flow from classes to jobs; the minimum *cut* proves it
(`network`).
"""

from __future__ import annotations

from functools import partial

from optmatch.problems import PortSharing
from optmatch.solvers.method import Method, Run


def _load_policy(name: str) -> Run:
    """Import the function of an online policy by the name of its method."""
    from optmatch.solvers.sharing.conclusion import run_until_stopped
    from optmatch.solvers.sharing.first_fit import serve_by_policy

    return partial(run_until_stopped, name, partial(serve_by_policy, name))


def _policy_takes(name: str, problem: PortSharing) -> bool:
    """Tell whether an online policy can decide a problem."""
    from optmatch.solvers.sharing.first_fit import takes

    return takes(problem, name)


def _load_optimum(name: str) -> Run:
    """Import the function of an exact method by its name."""
    from optmatch.solvers.sharing import completion, flows
    from optmatch.solvers.sharing.conclusion import run_until_stopped

    runs: dict[str, Run] = {
        "max-flow": flows.serve_most,
        "lexicographic": flows.serve_in_order,
        "max-min": flows.serve_fairly,
        "min-jct": completion.minimise_completion_times,
    }
    return partial(run_until_stopped, name, runs[name])


def _optimum_takes(name: str, problem: PortSharing) -> bool:
    """Tell whether an exact method takes a problem, by objective and, for `min-jct`, by size."""
    if name != "min-jct":
        return problem.objective == name
    from optmatch.solvers.sharing.completion import takes

    return takes(problem)


def _optimum(name: str, summary: str) -> Method:
    """Return a method that is exact for the objective of its name; one takes all problems."""
    suits = None if name == "lexicographic" else partial(_optimum_takes, name)
    load = partial(_load_optimum, name)
    return Method(name, PortSharing, load, summary, exact=True, suits=suits)


def _policy(name: str, summary: str) -> Method:
    """Return a method that decides online."""
    load = partial(_load_policy, name)
    return Method(name, PortSharing, load, summary, suits=partial(_policy_takes, name))


METHODS = (
    _optimum("max-flow", "the most that all jobs get together: a largest flow, and its cut"),
    _optimum("max-min", "the job that lacks most of its fair share lacks as little as possible"),
    _optimum("min-jct", "all demands met as early as possible on average, of small problems"),
    _optimum("lexicographic", "jobs in their order, each as much as those before it allow"),
    _policy("fifo", "each resource to the job that asked first"),
    _policy("srsf", "each resource to the job that wants the least"),
    _policy("irs", "each resource to the group of jobs that owns its class, scarce classes first"),
    _policy("random", "each resource to the first job of a random order"),
)
"""Methods for shared resources; the first that takes a problem is the default."""
