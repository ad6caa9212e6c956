"""Schedules, solutions and limits: checked when built, frozen ever after, equal by content."""

import copy
import logging
import math
import os
import pickle
import re
from dataclasses import FrozenInstanceError, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics import Netlist
from optmatch.kinds import all_kinds, view_of_solution
from optmatch.model import SIZES, FrozenMap, frozen, integer, number
from optmatch.model.accounts import Level, accounting
from optmatch.model.files import replace_file
from optmatch.model.solution import describe_claims
from tests.helpers.answers import PROBLEMS, answer_named

PROBLEM = om.AllToAll(om.IdealSwitch(3))


def schedule(**changes: Any) -> om.Schedule:
    """Make a schedule of two slots, two ports and three cells."""
    fields: dict[str, Any] = {
        "matchings": [[1, 0], [-1, 0]],
        "durations_s": [2.0, 1.5],
        "delay_s": 0.25,
        "cell_states": [[0, 1, -1], [-1, -1, 1]],
    }
    return om.Schedule(**fields | changes)


def solution(**changes: Any) -> om.Solution:
    """Make a feasible solution."""
    fields: dict[str, Any] = {
        "problem": PROBLEM,
        "schedule": schedule(),
        "status": om.Status.FEASIBLE,
        "limit": om.Limit.TIME,
        "objective": 10.0,
        "lower_bound": 8.0,
        "method": "by hand",
        "stats": {"slots": 2},
    }
    return om.Solution(**fields | changes)


def test_a_schedule_has_exact_types_and_counts_its_time() -> None:
    made = schedule()
    assert (made.n_slots, made.n_ports) == (2, 2)
    assert made.makespan_s == 2.0 + 1.5 + 2 * 0.25
    assert made.matchings.dtype == np.int32
    assert made.durations_s.dtype == np.float64
    assert made.cell_states is not None
    assert made.cell_states.dtype == np.int8
    assert made.switching == "all-stop"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"matchings": [[2, 0], [-1, 0]]},
            r"matchings\[0, 0\] = 2: ports are 0 \.\. 1, -1 is idle",
        ),
        ({"matchings": [[1, 0], [-1, -2]]}, r"matchings\[1, 1\] = -2"),
        ({"matchings": [[1, 0], [1, 1]]}, r"matchings\[1\]: sources 0 and 1 share destination 1"),
        (
            {"matchings": [[1, 0.5], [1, 0]]},
            r"matchings\[0, 1\] = 0.5: not a whole number of 32 bits",
        ),
        ({"matchings": [1, 0]}, "matchings has 1 dimensions, not 2"),
        ({"matchings": [[1, 0], [1]]}, r"matchings\[1\] has 1 numbers, the first row 2"),
        ({"matchings": [["x", "y"]] * 2}, "matchings is not an array of numbers"),
        ({"durations_s": [1.0]}, "durations_s has 1 entries, there are 2 slots"),
        ({"durations_s": [1.0, 0.0]}, r"durations_s\[1\] = 0: must be > 0"),
        ({"durations_s": [math.nan, 1.0]}, r"durations_s\[0\] = nan: not a finite number"),
        ({"delay_s": -1.0}, "delay_s = -1: must be >= 0"),
        ({"delay_s": math.inf}, "delay_s = inf: not finite"),
        ({"cell_states": [[0, 1]]}, "cell_states has 1 entries, there are 2 slots"),
        (
            {"cell_states": [[0], [2]]},
            r"cell_states\[1, 0\] = 2: from -1 to 1",
        ),
        (
            {"cell_states": [[300], [0]]},
            r"cell_states\[0, 0\] = 300: not a whole number of 8 bits",
        ),
        ({"switching": "never"}, "switching = 'never': one of all-stop, per-circuit"),
    ],
)
def test_a_wrong_schedule_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        schedule(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schedule": None}, "status feasible without an answer"),
        ({"status": om.Status.UNKNOWN}, "status unknown with an answer"),
        ({"status": om.Status.INFEASIBLE, "limit": None}, "status infeasible with an answer"),
        ({"objective": None}, "an objective is there if and only if an answer is"),
        (
            {"schedule": None, "status": om.Status.UNKNOWN},
            "an objective is there if and only if an answer is",
        ),
        ({"limit": None}, "status feasible with limit None"),
        ({"status": om.Status.OPTIMAL, "lower_bound": 10.0}, "status optimal with limit"),
        ({"lower_bound": 10.1}, r"lower_bound 10.1 > objective 10.0"),
        (
            {"status": om.Status.OPTIMAL, "limit": None},
            r"optimal, but lower_bound 8.0 < objective",
        ),
    ],
)
def test_a_solution_that_contradicts_itself(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        solution(**changes)


def test_no_status_by_default() -> None:
    with pytest.raises(TypeError, match="status"):
        om.Solution(problem=PROBLEM, method="by hand")  # type: ignore[call-arg]


def test_the_gap() -> None:
    assert solution().gap == pytest.approx(0.2)
    assert solution(lower_bound=10.0).gap == 0.0
    assert solution(objective=0.0, lower_bound=0.0).gap == 0.0
    assert solution(objective=-8.0, lower_bound=-10.0).gap == pytest.approx(0.25)
    assert solution(schedule=None, objective=None, status=om.Status.UNKNOWN).gap == math.inf
    rounded = 10.0 + 1e-9
    assert solution(status=om.Status.OPTIMAL, limit=None, lower_bound=rounded).gap == 0.0


def test_slots_that_come_before_the_objective_have_the_gap() -> None:
    """An answer of more slots than may do is not the best one, however good its objective is."""
    problem = om.AllToAll(om.IdealSwitch(4))
    matchings = [[1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, -1], [-1, -1, -1, 0]]
    four_slots = om.Schedule(matchings=matchings, durations_s=[1.0] * 4)
    claims: dict[str, Any] = {
        "problem": problem,
        "schedule": four_slots,
        "status": om.Status.FEASIBLE,
        "limit": om.Limit.TIME,
        "objective": 0.0,
        "lower_bound": 0.0,
        "method": "by hand",
    }
    open_slots = om.Solution(**claims)
    assert open_slots.gap == 0.25
    assert "slots: 4, lower bound 3; fewer slots come" in open_slots.summary()
    assert describe_claims(open_slots)["gap"].startswith("25 % of the slots")

    # A bound that the method has found counts, too; then the objective is what is open.
    refuted = om.Solution(**claims, stats={"slots_lower_bound": 4})
    assert refuted.gap == 0.0 and describe_claims(refuted)["gap"] == "0 %"
    assert refuted.summary().endswith("slots: 4")
    assert om.Solution(**claims, stats={"slots_lower_bound": "many"}).gap == 0.25


def test_limits_count() -> None:
    """Iterations are exact, time is read from the clock, interruption comes first."""
    now = [100.0]
    clock = om.Limits(time_s=5, iterations=3).start(lambda: now[0])
    assert clock.exceeded(2) is None
    assert clock.exceeded(3) is om.Limit.ITERATIONS
    assert clock.remaining_s == 5.0
    now[0] = 104.0
    assert (clock.elapsed_s, clock.remaining_s) == (4.0, 1.0)
    now[0] = 105.0
    assert clock.exceeded(0) is om.Limit.TIME
    clock.interrupted = True
    assert clock.exceeded(3) is om.Limit.INTERRUPTED
    assert om.Limits().start().remaining_s == math.inf


@pytest.mark.parametrize(
    "fields",
    [{"time_s": -1}, {"iterations": 1.5}, {"iterations": -1}, {"gap": -0.1}, {"memory_bytes": 0}],
)
def test_wrong_limits_are_named(fields: dict[str, Any]) -> None:
    (name,) = fields
    with pytest.raises(om.InputError, match=f"^{name} = "):
        om.Limits(**fields)


@pytest.mark.parametrize("value", [schedule(), solution(), om.Limits(time_s=1.0)])
def test_values_are_frozen_and_copied_whole(value: Any) -> None:
    for copied in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value), replace(value)):
        assert copied == value
        assert hash(copied) == hash(value)
    with pytest.raises(FrozenInstanceError):
        setattr(value, fields(value)[0].name, None)


def test_arrays_are_copies_that_cannot_change() -> None:
    given = np.array([2.0, 1.5])
    made = schedule(durations_s=given)
    given[0] = 7.0
    assert made.durations_s[0] == 2.0
    for value in (made, pickle.loads(pickle.dumps(made))):
        arrays: Any = value.matchings, value.durations_s, value.cell_states
        for array in arrays:
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1


@pytest.mark.parametrize(
    "changes",
    [
        {"matchings": [[1, 0], [0, -1]]},
        {"durations_s": [2.0, 1.0]},
        {"delay_s": 0.0},
        {"cell_states": None},
        {"cell_states": [[0, 1, -1], [-1, -1, 0]]},
        {"switching": "per-circuit"},
    ],
)
def test_schedules_differ_by_any_field(changes: dict[str, Any]) -> None:
    assert schedule(**changes) != schedule()
    assert schedule() != "a schedule"
    assert solution(schedule=schedule(**changes)) != solution()


def test_minus_zero_is_zero() -> None:
    assert str(number("delay_s", -0.0)) == "0.0"
    assert str(frozen("x", [-0.0], 1, np.float64)[0]) == "0.0"


def test_maps_are_frozen() -> None:
    stats = FrozenMap({"b": 1, "a": [2]})
    assert stats == {"a": [2], "b": 1}
    assert hash(stats) == hash(FrozenMap({"a": [2], "b": 1}))
    assert pickle.loads(pickle.dumps(stats)) == stats
    assert (len(stats), list(stats), repr(stats)) == (2, ["b", "a"], "{'b': 1, 'a': [2]}")
    with pytest.raises(TypeError):
        stats["b"] = 2  # type: ignore[index]


def test_empty_arrays_have_their_dimensions() -> None:
    assert frozen("x", [], 2, np.int32).shape == (0, 0)
    assert (
        om.Schedule(matchings=np.zeros((0, 4), np.int32), durations_s=np.zeros(0)).makespan_s
        == 0.0
    )


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_whole_numbers_are_whole(value: Any) -> None:
    with pytest.raises(om.InputError, match=r"rows = .*: not a whole number"):
        integer("rows", value, at_least=1)
    assert integer("rows", np.int64(3), at_least=3) == 3


@pytest.mark.parametrize("value", [True, "1", None, [1.0]])
def test_numbers_are_numbers(value: Any) -> None:
    with pytest.raises(om.InputError, match=r"delay_s = .*: not a number"):
        number("delay_s", value)
    assert number("delay_s", np.float32(0.5)) == 0.5


def test_input_errors_say_where() -> None:
    error = om.InputError("rows = 0: must be >= 1", where="rows")
    assert str(error) == "rows = 0: must be >= 1"
    error.path = "mesh.json"
    assert str(error) == "mesh.json: rows = 0: must be >= 1"
    placed = om.FormatError("not a number", where="/fabric/rows", path="mesh.json")
    assert str(placed) == "mesh.json: /fabric/rows: not a number"
    again = pickle.loads(pickle.dumps(placed))
    assert (type(again), str(again)) == (om.FormatError, str(placed))
    assert isinstance(placed, ValueError)


# The table of largest sizes.


PAGE = Path(__file__).resolve().parents[2] / "docs" / "file-formats.md"


def test_the_page_has_every_row() -> None:
    rows = re.findall(r"\| ([\d,]+) \| `OPTMATCH_MAX_(\w+)` \|", PAGE.read_text())
    assert {name.lower(): int(size.replace(",", "")) for size, name in rows} == SIZES


# The text forms of frozen values.


def test_representations_are_short() -> None:
    mesh = om.HexMesh(4, 4, ports=8)
    assert repr(mesh) == "HexMesh(rows=4, cols=4, ports=8)"
    slots = np.tile(np.arange(8, dtype=np.int32)[::-1], (5, 1))
    schedule = om.Schedule(matchings=slots, durations_s=np.ones(5))
    assert (
        repr(schedule)
        == "Schedule(matchings=<int32 5 x 8>, durations_s=[1.0, 1.0, 1.0, 1.0, 1.0])"
    )


@pytest.mark.parametrize("name", PROBLEMS)
def test_solutions_of_all_kinds_are_short(name: str) -> None:
    solution = answer_named(name)
    assert len(repr(solution)) < 400 and len(repr(solution.problem)) < 600


def test_a_netlist_in_a_problem_is_short() -> None:
    names = [f"cell-{cell}" for cell in range(12)]
    joins = {f"{one},b1": f"{other},a1" for one, other in pairwise(names)}
    ports = [("west", "cell-0,a1"), ("east", "cell-11,b1")]
    netlist = Netlist(
        names, joins, ports, open_pins=[f"{n},{pin}2" for n in names for pin in "ab"]
    )
    routing = om.Routing(netlist, [1, 0])
    assert repr(netlist).startswith("Netlist(instances=<12 entries>, connections=<11 entries>, ")
    assert repr(routing) == "Routing(fabric=Netlist(...), matching=[1, 0])"


def test_arrays_that_are_left_out_can_be_shown() -> None:
    """An empty array by default is no truth value, and is left out as other defaults are."""
    timeline = om.RailPlan(rails=(), start_s=[0.0], end_s=[1.0], ports=[0], step_s=1.0)
    assert repr(timeline).startswith("RailPlan(rails=(), start_s=[0.0]")
    assert "relays" not in repr(timeline)


# Files that are replaced whole: the rests of a killed run go away with the next one.


def test_old_parts_of_the_same_file_are_removed(tmp_path: Path) -> None:
    names = {
        f".a.json.{'0' * 16}.part": False,
        f".a.json.{'1' * 16}.part": True,
        f".b.json.{'0' * 16}.part": True,
        ".a.json.of-somebody.part": True,
    }
    for name in names:
        (tmp_path / name).write_bytes(b"half")
        if "1111" not in name:
            os.utime(tmp_path / name, (0, 0))
    replace_file(tmp_path / "a.json", b"whole")
    assert (tmp_path / "a.json").read_bytes() == b"whole"
    assert {name: (tmp_path / name).exists() for name in names} == names


# Answers know what they index: shapes and ranges are declared at their classes.


@pytest.mark.parametrize("kind", [kind.problem.kind for kind in all_kinds()])
def test_every_class_of_answers_checks_itself(kind: str) -> None:
    (row,) = [row for row in all_kinds() if row.problem.kind == kind]
    answer: Any = row.problem.answer_class or om.Schedule
    assert callable(answer.check_fits)


def test_a_wrong_answer_is_drawn_if_it_fits_and_refused_by_name_if_not() -> None:
    problem = om.Demand.from_matrix([[0, 3, 1], [2, 0, 1], [1, 1, 0]], delay_s=1.0)
    solution = om.solve(problem, seed=0)
    schedule = solution.schedule
    late = replace(schedule, durations_s=schedule.durations_s / 2)
    wrong = replace(solution, schedule=late)
    assert not om.verify(wrong).valid
    assert wrong.plot().axes
    other = om.Schedule(matchings=[[1, 0]], durations_s=[1.0])
    with pytest.raises(om.InputError, match="matchings has rows of 2 entries, the fabric needs 3"):
        view_of_solution(replace(solution, schedule=other))


# Accounts of readers: a name is used, passed over with a reason, refused, or in the warning.


COLUMNS = Level("column", ("a", "b"), {"note*": "said to people"})
SETTINGS = Level("setting", ("length",), {}, assumed="the usual value is taken")


def test_each_name_has_a_fate() -> None:
    with accounting("t.csv") as account:
        account.take(COLUMNS, ["a", "notes"], "line 1")
        account.take(COLUMNS, ["a", "b"], "line 2")
    assert account.rows() == [
        ("column", "a", "used"),
        ("column", "notes", "passed over: said to people"),
        ("column", "b", "used"),
    ]


def test_what_is_unknown_is_refused_with_its_place() -> None:
    with (
        accounting("t.csv") as account,
        pytest.raises(om.FormatError, match=r"line 3: unknown column 'c': known are a, b"),
    ):
        account.take(COLUMNS, ["a", "c"], "line 3")


def test_or_named_in_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Once for a name, however often it stands; blocks within blocks add to the outer one."""
    with caplog.at_level(logging.WARNING, logger="optmatch"), accounting("t.yml"):
        for number in range(20):
            with accounting("within") as account:
                account.take(SETTINGS, ["length", f"odd{number % 10}"], f"part{number}")
                account.assume("arms differ")
    (record,) = caplog.records
    text = record.getMessage()
    assert text.startswith("t.yml: unknown setting: odd0 (part0), odd1 (part1)")
    assert "and 2 more; the usual value is taken; arms differ" in text
    assert text.count("arms differ") == 1


def test_what_is_all_known_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="optmatch"), accounting("t.yml") as account:
        account.take(SETTINGS, ["length"])
    assert not caplog.records
