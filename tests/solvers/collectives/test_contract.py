"""Every method for collectives keeps the contract."""

from __future__ import annotations

from optmatch.kinds import all_methods
from optmatch.testing import SolverContract, collective_problems

METHODS = {method.name: method for method in all_methods() if method.solves.kind == "collective"}


class CollectiveContract(SolverContract):
    """What methods for collectives have in common."""

    examples = 4
    tiny_problems = ()
    iterates = False


class TestBest(CollectiveContract):
    """The fastest of all."""

    method = "best"
    problems = collective_problems()


class TestIlp(CollectiveContract):
    """Circuits, routes and rounds together."""

    method = "ilp"
    problems = collective_problems(takes=METHODS["ilp"].takes, most_ranks=3)


class TestRewire(CollectiveContract):
    """New circuits where they pay."""

    method = "rewire"
    problems = collective_problems(takes=METHODS["rewire"].takes)


class TestOverlap(CollectiveContract):
    """Planes by themselves."""

    method = "overlap"
    problems = collective_problems(takes=METHODS["overlap"].takes, most_ranks=4)


class TestStragglar(CollectiveContract):
    """Around a late rank."""

    method = "stragglar"
    problems = collective_problems(takes=METHODS["stragglar"].takes)


class TestMixedRadix(CollectiveContract):
    """Rings whose steps grow."""

    method = "mixed-radix"
    problems = collective_problems(takes=METHODS["mixed-radix"].takes)


class TestCirculant(CollectiveContract):
    """Shifts and routes together."""

    method = "circulant"
    problems = collective_problems(takes=METHODS["circulant"].takes)


class TestRing(CollectiveContract):
    """Around a ring."""

    method = "ring"
    problems = collective_problems(takes=METHODS["ring"].takes)


class TestHalvingDoubling(CollectiveContract):
    """Pairs."""

    method = "halving-doubling"
    problems = collective_problems(takes=METHODS["halving-doubling"].takes)


class TestBruck(CollectiveContract):
    """Powers of two onward."""

    method = "bruck"
    problems = collective_problems(takes=METHODS["bruck"].takes)


class TestPairwise(CollectiveContract):
    """A matching after another."""

    method = "pairwise"
    problems = collective_problems(takes=METHODS["pairwise"].takes)


class TestSwing(CollectiveContract):
    """Pairs that are near."""

    method = "swing"
    problems = collective_problems(takes=METHODS["swing"].takes)


class TestDirect(CollectiveContract):
    """Everything straight to its place."""

    method = "direct"
    problems = collective_problems(takes=METHODS["direct"].takes)


def test_every_method_for_collectives_is_under_contract() -> None:
    """A new one brings a class above."""
    assert {cls.method for cls in CollectiveContract.__subclasses__()} == set(METHODS)
