"""What claims rest on, in every kind of problem: the word of a search is no proof."""

import inspect
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.problems.sharing.resources import Jobs, Resources
from optmatch.solvers.reroutes.states import fill_rack
from optmatch.verify.bounds import check_support, compare
from optmatch.verify.report import Findings
from tests.helpers.rails import small_job

SEARCH = {"bound_by": "search"}
PROBLEMS: dict[str, Any] = {
    "all-to-all": om.AllToAll(om.HexMesh(3, 3, ports=4)),
    "demand": om.Demand.from_matrix([[0, 3, 1], [2, 0, 1], [1, 1, 0]], delay_s=1.0),
    "rail-job": small_job(2, 2, 3, delay_s=1e-3),
    "reroute": replace(fill_rack(om.RackFabric()), failed_chips=(3,)),
    "routing": om.Routing(om.HexMesh(3, 3, ports=4), np.array([1, 0, 3, 2], dtype=np.int32)),
    "slice-allocation": om.SliceAllocation(om.RackFabric(), (2, 2, 2)),
}
every_kind = pytest.mark.parametrize("kind", PROBLEMS)


@every_kind
def test_infeasible_from_a_search_is_unproved(kind: str) -> None:
    problem = PROBLEMS[kind]
    claim = om.Solution(
        problem=problem,
        status=om.Status.INFEASIBLE,
        lower_bound=math.inf,
        method="by hand",
        stats=SEARCH,
    )
    report = om.verify(problem, claim)
    assert report.valid and not report.ok
    assert report.proof == "search"
    (unproved,) = report.unproved
    assert unproved.startswith("status infeasible: from a search without a certificate")
    assert f"  unproved: {unproved}" in str(report).splitlines()
    assert not om.verify(problem, replace(claim, stats={})).valid


@every_kind
def test_a_solve_says_what_its_claims_rest_on(kind: str) -> None:
    """All bounds but a tiny demand's are counted; a better proof than there is, is refused.

    Prices show that no plan of this demand takes less than 7 s, which counting does not.
    """
    solution = om.solve(PROBLEMS[kind], "ilp" if kind == "demand" else None, seed=0)
    report = om.verify(solution.problem, solution)
    assert report.ok
    assert solution.proof == report.proof == ("certificate" if kind == "demand" else "counting")
    if kind == "demand":
        assert solution.status is om.Status.OPTIMAL
        assert report.figures["lower_bound_recomputed"] == 6.0 < solution.lower_bound == 7.0
    claim = replace(
        solution,
        status=om.Status.UNKNOWN,
        limit=om.Limit.TIME,
        schedule=None,
        answer=None,
        objective=None,
        lower_bound=(9,) * 5 if kind == "reroute" else 1e15,
        stats=SEARCH,
        proof="search",
    )
    assert om.verify(claim.problem, claim).valid
    for better in ("counting", "certificate"):
        (violation,) = om.verify(claim.problem, replace(claim, proof=better)).violations
        assert violation.rule == "the proof is of the kind that is stated"
        assert (violation.got, violation.expected) == (better, "search")


def test_certificates_are_marked() -> None:
    """What a search proves is so in `tests/solvers/all_to_all/test_joint.py`."""
    pairs = np.array([1, 0, 3, 2], dtype=np.int32)
    clash = om.Routing(om.HexMesh(1, 2, ports=[0, 1, 3, 10]), pairs)
    by_certificate = om.solve(clash, "ilp", seed=0)
    assert by_certificate.status is om.Status.INFEASIBLE
    assert by_certificate.proof == "certificate"
    with pytest.raises(om.InputError, match="proof = 'hope': one of counting"):
        replace(by_certificate, proof="hope")  # type: ignore[arg-type]


def test_a_certificate_does_not_prove_what_a_search_said_too() -> None:
    problem = PROBLEMS["routing"]
    claim = om.Solution(
        problem=problem, status=om.Status.UNKNOWN, limit=om.Limit.TIME, lower_bound=9.0, method="x"
    )
    for said, counted, shown, proof in (
        (None, 9.0, 9.0, "counting"), (None, 8.0, 9.0, "certificate"),
        ("search", 9.0, 9.0, "search"), ("search", 8.0, 9.0, "search"),
    ):  # fmt: skip
        findings = Findings()
        findings.proof, findings.figures["lower_bound_recomputed"] = said, counted  # type: ignore[assignment]
        check_support(claim, shown, findings, floor="")
        assert findings.proof == proof and not findings.violations


def test_ticks_are_compared_as_whole_numbers() -> None:
    """A delay is less than 1e-9 of the makespan, and still decides what is optimal."""
    demand = 1e9 * np.array([[0, 7, 2, 1], [3, 0, 5, 2], [4, 2, 0, 4], [3, 1, 3, 0]])
    problem = om.Demand.from_matrix(demand, delay_s=1.0)
    exact, quick = (om.solve(problem, method, seed=0) for method in ("ilp", "solstice"))
    assert (exact.status, exact.objective) == (om.Status.OPTIMAL, 1e10 + 5)
    assert (quick.status, quick.lower_bound) == (om.Status.FEASIBLE, 1e10 + 3)
    claim = replace(quick, status=om.Status.OPTIMAL, limit=None, objective=1e10 + 5)
    rules = [violation.rule for violation in om.verify(problem, claim).violations]
    assert rules == ["optimal means that the bound is reached"]
    for field, wrong in (("objective", 1e10 + 6), ("lower_bound", 1e10 + 4)):
        change: Any = {field: wrong}
        (violation,) = om.verify(problem, replace(quick, **change)).violations
        assert violation.where == field


@pytest.mark.parametrize(
    ("claimed", "found", "step", "sign"),
    [
        ((0, 4, 1), (0, 3, 9), None, 1),
        ((0, 3, 9), (0, 4, 1), None, -1),
        ((1, 2), (1, 2), None, 0),
        ((1, 2), (1, 2, 3), None, None),
        ((1, 2), math.inf, None, -1),
        ((1, 2), -math.inf, None, 1),
        ((1, 2), 5.0, None, None),
        (math.inf, (0, 3), None, 1),
        (-math.inf, (0, 3), None, -1),
        (5.0, (0, 3), None, None),
        ("5", 5.0, None, None),
        (True, 1.0, None, None),
        (math.nan, 1.0, None, None),
        (5.0, 5.0, 1.0, 0),
        (5.0 + 1e-9, 5.0, 1.0, 1),
        (5.0 - 1e-9, 5.0, 1.0, -1),
        (5.0 + 2.0**-50, 5.0, 1.0, 1),
        (0.1 * 3, 0.3, 0.1, 0),
        (0.1 * 4, 0.3, 0.1, 1),
        (0.1 * 3, 0.3, None, 0),
        (0.3 * (1 + 1e-8), 0.3, None, 1),
        (0.3 * (1 - 1e-8), 0.3, None, -1),
        (math.inf, 5.0, 0.1, 1),
        (-math.inf, 5.0, 1.0, -1),
        (math.inf, math.inf, None, 0),
        (math.inf, math.inf, 1.0, 0),
        (2.5, 2.0, 2.0, 1),
        (2.0 + 2.0**-49, 2.0, 2.0, 0),
    ],
)
def test_amounts_of_any_form_are_compared(
    claimed: Any, found: Any, step: float | None, sign: int | None
) -> None:
    assert compare(claimed, found, step) == sign


@pytest.mark.parametrize("objective", ["total-cells", "worst-cells"])
def test_without_circuits_no_cell_is_needed(objective: Any) -> None:
    problem = om.Routing(om.HexMesh(2, 2, ports=4), [-1, -1, -1, -1], objective=objective)
    report = om.verify(problem, om.solve(problem, seed=0))
    assert report.ok
    assert report.figures["lower_bound_recomputed"] == 0.0


def test_a_proof_of_one_routing_bounds_no_number_of_slots() -> None:
    answers = Path(__file__).parents[1] / "data" / "answers"
    solution: Any = om.load(answers / "infeasible-routing.schedule.json")
    report = om.verify(solution.problem, solution)
    assert report.ok
    assert "slots_lower_bound" not in report.figures


MORE_PROBLEMS: dict[str, Any] = {
    "collective": om.Collective("all-to-all", 6, 1e6, alpha_s=1e-6, delay_s=1e-4, ports=2),
    "islands": om.Collective("all-gather", 8, 1e6, alpha_s=1e-6, delay_s=1e-4, island=4),
    "port-sharing": om.PortSharing(
        Resources([[100.0, 400, 400, 800]]), Jobs([2, 3], [[400.0, 400]])
    ),
}


ANSWERS = sorted((Path(__file__).parents[1] / "data" / "answers").glob("*.schedule.json"))
BELIEVED = {
    "demand": {
        "ticks", "directed_ticks", "tick_s", "delay_ticks", "min_slot_ticks", "packet_share",
        "exact", "entry_places", "due_ticks",
    },
    "rail-job": {"fabric", "groups", "once", "step"},
    "reroute": {"units", "loss_units"},
    "slice-allocation": {"candidates", "free_servers", "lit_fibres", "loads"},
}  # fmt: skip
"""What the verifier asks a problem beside its fields: amounts in ticks, the step of a job, parts
by number, and the routes that are offered. None of them is a bound or an objective."""


def plant(patch: pytest.MonkeyPatch, problem: Any) -> None:
    """Let each property and method of a problem fail that the verifier may not believe."""
    kind = type(problem)
    kept = {*BELIEVED.get(kind.kind, ()), "kind", "answer_class", "objectives", "_state", "_key"}

    def fail(*told: Any, **named: Any) -> Any:
        raise AssertionError(f"a claim of {kind.__name__} was asked for")

    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        if name.startswith("__") or name in kept or inspect.ismemberdescriptor(member):
            continue
        patch.setattr(kind, name, property(fail) if isinstance(member, property) else fail)


def too_high(bound: Any, factor: float) -> Any:
    """Return a bound times a factor; each level of a bound of levels."""
    if isinstance(bound, tuple):
        return tuple(too_high(level, factor) for level in bound)
    return bound * factor if bound else factor - 1.0


@pytest.mark.parametrize("kind", PROBLEMS | MORE_PROBLEMS)
def test_no_claim_rests_on_what_the_problem_says_of_itself(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A problem whose own bound is too high gets the same reports, and refutes the same claims."""
    problem = (PROBLEMS | MORE_PROBLEMS)[kind]
    solution = om.solve(problem, seed=0)
    unproved: dict[str, Any] = {"certificate": None, "stats": {}}
    optimal = replace(
        solution,
        status=om.Status.OPTIMAL,
        limit=None,
        lower_bound=solution.objective,
        **unproved,
    )
    feasible = replace(
        optimal, status=om.Status.FEASIBLE, limit=om.Limit.EXHAUSTED, lower_bound=-math.inf
    )
    own_bound = problem.lower_bound()
    own_terms = problem.bounds() if isinstance(problem, om.Collective) else None
    for factor in (1.01, 2.0, math.inf):
        bound = too_high(own_bound, factor)
        claims = [solution, optimal]
        if not isinstance(solution.objective, tuple):
            claims.append(replace(feasible, lower_bound=min(bound, solution.objective)))
        reports = [om.verify(problem, claim) for claim in claims]
        assert reports[0].valid
        with monkeypatch.context() as planted:
            planted.setattr(type(problem), "lower_bound", lambda self, bound=bound: bound)
            if own_terms is not None:
                terms = own_terms._replace(seconds=bound)
                planted.setattr(type(problem), "bounds", lambda self, terms=terms: terms)
            assert [om.verify(problem, claim) for claim in claims] == reports
            plant(planted, problem)
            assert [om.verify(problem, claim) for claim in claims] == reports


@pytest.mark.parametrize("file", ANSWERS, ids=lambda file: file.name.split(".")[0])
def test_recorded_answers_are_verified_without_claims_of_their_problems(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solution: Any = om.load(file)
    report = om.verify(solution.problem, solution)
    assert report.valid
    with monkeypatch.context() as planted:
        plant(planted, solution.problem)
        with pytest.raises(AssertionError, match="was asked for"):
            solution.problem.lower_bound()
        assert om.verify(solution.problem, solution) == report
