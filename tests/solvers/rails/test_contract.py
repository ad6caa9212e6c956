"""Every method for rail jobs keeps the contract."""

from optmatch.kinds import all_methods
from optmatch.testing import SolverContract, rail_problems
from tests.helpers.exhaustive.rails import best_rail


class RailContract(SolverContract):
    """Tests that all methods for rail jobs share."""

    examples = 15
    problems = rail_problems()
    tiny_problems = rail_problems(tiny=True)
    oracle = best_rail
    iterates = False


class TestStatic(RailContract):
    """Ports split once."""

    method = "static"


class TestOnDemand(RailContract):
    """Changed when asked for."""

    method = "on-demand"


class TestProvisioned(RailContract):
    """Changed when free."""

    method = "provisioned"


class TestPrefetch(RailContract):
    """Set up ahead."""

    method = "prefetch"


class TestIlpRails(RailContract):
    """`prefetch` by its old name."""

    method = "ilp"


def test_every_method_for_rail_jobs_is_under_contract() -> None:
    covered = {cls.method for cls in RailContract.__subclasses__()}
    known = {m.name for m in all_methods() if m.solves.kind == "rail-job"}
    assert covered == known
