"""Change any one entry of a good schedule, solution or file: the verifier must refuse it."""

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

import optmatch as om
from tests.helpers import oracles
from tests.helpers.modes import examples
from tests.verify.rules import forge

MESHES = {
    "bidirectional": om.HexMesh(3, 3, ports=4),
    "odd": om.HexMesh(3, 3, ports=5),
    "tx-rx": om.HexMesh(3, 3, tx=3, rx=3),
}
everywhere = pytest.mark.parametrize("name", MESHES)


@lru_cache
def good(name: str) -> om.Solution:
    """Return an optimal solution with all its statistics."""
    problem = om.AllToAll(MESHES[name])
    schedule = oracles.all_to_all(problem.fabric)
    figures = om.verify(problem, schedule).figures
    stats = ("slots", "slots_lower_bound", "worst_route_cells", "toggles", "makespan_s")
    return om.Solution(
        problem=problem,
        schedule=schedule,
        status=om.Status.OPTIMAL,
        objective=figures["objective"],
        lower_bound=figures["objective"],
        method="by hand",
        stats={key: figures[key] for key in stats},
    )


def entry(array: Any, place: Any, value: Any) -> Any:
    """Copy an array with one other entry."""
    changed = np.array(array)
    changed[place] = value
    return changed


def refused(name: str, **changes: Any) -> bool:
    """Tell whether a changed schedule is refused, on its own and as a solution's.

    Shapes and ranges are checked when it is made, everything else by the verifier.
    """
    solution = good(name)
    assert solution.schedule is not None
    try:
        schedule = replace(solution.schedule, **changes)
    except om.InputError:
        return True
    alone = om.verify(solution.problem, schedule)
    within = om.verify(solution.problem, forge(solution, schedule=schedule))
    assert bool(alone.violations) == bool(within.violations)
    return not alone.ok and bool(alone.violations)


@everywhere
def test_the_unchanged_solution_passes(name: str) -> None:
    report = om.verify(good(name).problem, good(name))
    assert report.ok, report
    assert om.verify(good(name).problem, forge(good(name))).ok


@everywhere
@settings(max_examples=examples(50, plain=50))
@given(data=st.data())
def test_any_state_of_any_cell(name: str, data: st.DataObject) -> None:
    states = good(name).schedule.cell_states
    assert states is not None
    slot, cell = (data.draw(st.integers(0, size - 1)) for size in states.shape)
    value = data.draw(
        st.sampled_from([-1, 0, 1, 2, -128]).filter(lambda v: v != states[slot, cell])
    )
    changed = entry(states, (slot, cell), value)
    if states[slot, cell] < 0 and value in (0, 1):
        schedule = forge(good(name).schedule, cell_states=changed)
        assert om.verify(good(name).problem, schedule).ok
    else:
        assert refused(name, cell_states=changed)


@everywhere
def test_every_state_of_every_lit_cell(name: str) -> None:
    states = good(name).schedule.cell_states
    assert states is not None
    for slot, cell in np.argwhere(states >= 0):
        for value in (-1, 1 - states[slot, cell]):
            assert refused(name, cell_states=entry(states, (slot, cell), value))


@everywhere
@settings(max_examples=examples(50, plain=50))
@given(data=st.data())
def test_any_entry_of_a_matching(name: str, data: st.DataObject) -> None:
    matchings = good(name).schedule.matchings
    slot, port = (data.draw(st.integers(0, size - 1)) for size in matchings.shape)
    held = matchings[slot, port]
    value = data.draw(st.integers(-2, matchings.shape[1]).filter(lambda v: v != held))
    assert refused(name, matchings=entry(matchings, (slot, port), value))


@everywhere
@settings(max_examples=examples(50, plain=50))
@given(data=st.data())
def test_swapped_partners(name: str, data: st.DataObject) -> None:
    matchings = np.array(good(name).schedule.matchings)
    slot = data.draw(st.integers(0, len(matchings) - 1))
    first, second = data.draw(
        st.lists(st.integers(0, matchings.shape[1] - 1), min_size=2, max_size=2, unique=True)
    )
    matchings[slot, [first, second]] = matchings[slot, [second, first]]
    assert refused(name, matchings=matchings)


@everywhere
@settings(max_examples=examples(50, plain=50))
@given(data=st.data())
def test_a_pair_set_idle(name: str, data: st.DataObject) -> None:
    matchings = np.array(good(name).schedule.matchings)
    slot, port = data.draw(st.sampled_from(np.argwhere(matchings >= 0).tolist()))
    if MESHES[name].bidirectional:
        matchings[slot, matchings[slot, port]] = -1
    matchings[slot, port] = -1
    assert refused(name, matchings=matchings)


@everywhere
@settings(max_examples=examples(50, plain=50))
@given(data=st.data())
def test_any_duration_and_the_delay(name: str, data: st.DataObject) -> None:
    durations = good(name).schedule.durations_s
    slot = data.draw(st.integers(0, len(durations) - 1))
    value = data.draw(st.floats())
    assume(value != durations[slot])
    assert refused(name, durations_s=entry(durations, slot, value))
    assume(value != 0.0)
    assert refused(name, delay_s=value)


@everywhere
def test_the_kind_of_switching(name: str) -> None:
    assert refused(name, switching="per-circuit")


@everywhere
@pytest.mark.parametrize("field", ["matchings", "durations_s", "cell_states"])
def test_a_missing_or_repeated_slot(name: str, field: str) -> None:
    schedule = good(name).schedule
    rows = getattr(schedule, field)
    assert refused(name, **{field: rows[1:]})
    assert refused(name, **{field: np.concatenate([rows, rows[:1]])})
    assert refused(name, **{field: rows[..., None]})
    every = {key: getattr(schedule, key) for key in ("matchings", "durations_s", "cell_states")}
    assert refused(name, **{key: value[1:] for key, value in every.items()})
    assert refused(name, **{key: np.concatenate([v, v[:1]]) for key, v in every.items()})


@everywhere
@settings(max_examples=examples(50, plain=50))
@given(data=st.data())
def test_any_number_that_a_solution_claims(name: str, data: st.DataObject) -> None:
    solution = good(name)
    wrong = data.draw(
        st.one_of(st.floats(), st.integers(-5, 200).map(float), st.sampled_from([None, "x", True]))
    )
    field = data.draw(st.sampled_from(["objective", "lower_bound", *solution.stats]))
    if field in solution.stats:
        assume(wrong is True or wrong != solution.stats[field])
        changed = forge(solution, stats={**solution.stats, field: wrong})
    else:
        assume(wrong != getattr(solution, field))
        changed = forge(solution, **{field: wrong})
    assert om.verify(solution.problem, changed).violations


@everywhere
@pytest.mark.parametrize("status", list(om.Status))
def test_any_other_status(name: str, status: om.Status) -> None:
    """Only the weaker claim "feasible" may stand in for "optimal"."""
    solution = good(name)
    report = om.verify(solution.problem, forge(solution, status=status))
    assert report.ok is (status in (om.Status.OPTIMAL, om.Status.FEASIBLE))


@everywhere
def test_a_bound_that_is_too_weak(name: str) -> None:
    """A feasible solution owes at least the bound of the shortest routes."""
    solution = forge(good(name), status=om.Status.FEASIBLE)
    weak = forge(solution, lower_bound=solution.lower_bound - 1)
    assert om.verify(solution.problem, solution).ok
    (violation,) = om.verify(solution.problem, weak).violations
    assert violation.rule == "the lower bound is not below the shortest routes"


@everywhere
def test_the_solution_of_another_problem(name: str) -> None:
    solution = good(name)
    other = om.AllToAll(solution.problem.fabric, slot_s=2.0)
    places = {violation.where for violation in om.verify(other, solution).violations}
    assert {"problem", "durations_s[0]"} <= places
    foreign = forge(solution, problem=other)
    (violation,) = om.verify(solution.problem, foreign).violations
    assert violation.where == "problem"


@everywhere
def test_the_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "good.schedule.json"
    om.save(good(name), path)
    loaded: Any = om.load(path)
    assert om.verify(good(name).problem, loaded).ok
    text = path.read_text()
    digest = next(value for key, value in json.loads(text).items() if "sha256" in key)
    for k in range(len(digest)):
        other = digest[:k] + ("0" if digest[k] != "0" else "1") + digest[k + 1 :]
        path.write_text(text.replace(digest, other))
        with pytest.raises(om.InputError, match=r"(?i)sha256|digest"):
            om.load(path)
    tree = json.loads(text)
    tree["problem"]["slot_s"] = 7.0
    path.write_text(json.dumps(tree))
    with pytest.raises(om.InputError, match=r"(?i)sha256|digest"):
        om.load(path)
