"""Problems refuse questions without sense, and bound their answers from below."""

import json
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import optmatch as om
from optmatch.commands.cost import PRICE_LISTS
from optmatch.io import loads
from optmatch.io.exports import exported
from optmatch.problems import RoutingProof
from optmatch.problems.costs import PRICES
from optmatch.problems.rails.presets import Preset
from optmatch.problems.records import build_records, from_object, read_tables
from tests.helpers import oracles

ROW: Any = [1, 0, 3, 2]


@pytest.mark.parametrize("n", range(1, 10))
def test_the_pairs_of_an_all_to_all(n: int) -> None:
    both = om.AllToAll(om.HexMesh(4, 4, ports=n))
    ordered = om.AllToAll(om.IdealSwitch(n))
    assert both.pairs.tolist() == [[i, j] for i in range(n) for j in range(i + 1, n)]
    assert ordered.pairs.tolist() == [[i, j] for i in range(n) for j in range(n) if i != j]
    assert both.min_slots == (0 if n == 1 else n - 1 + n % 2)
    assert ordered.min_slots == n - 1


def test_the_bound_of_an_all_to_all_is_the_sum_of_shortest_routes() -> None:
    problem = om.AllToAll(om.HexMesh(2, 2, ports=[0, 6, 12]))
    terminals = problem.fabric.graph.perimeter[[0, 6, 12]].tolist()  # type: ignore[union-attr]
    total = 0
    for k, start in enumerate(terminals):
        for end in terminals[k + 1 :]:
            found = oracles.routes(problem.fabric.graph, start, end, 12)  # type: ignore[arg-type]
            total += min(map(len, found))
    assert problem.lower_bound() == total
    assert om.AllToAll(om.HexMesh(2, 2)).lower_bound() == math.inf
    assert om.AllToAll(om.IdealSwitch(5)).lower_bound() == 0


def test_the_circuits_of_a_routing() -> None:
    row: Any = [3, -1, 4, 0, 2]
    assert om.Routing(om.HexMesh(3, 3, ports=5), row).circuits.tolist() == [[0, 3], [2, 4]]
    turned: Any = [2, -1, 1]
    assert om.Routing(om.IdealSwitch(3), turned).circuits.tolist() == [[0, 2], [2, 1]]
    idle: Any = [-1, -1]
    assert om.Routing(om.IdealSwitch(2), idle).circuits.shape == (0, 2)


@given(seed=st.integers(0, 2**32))
def test_no_states_beat_the_bound_of_a_routing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mesh = om.HexMesh(1, 1)
    states = oracles.random_states(rng, 1, mesh.graph)[0].tolist()
    ends = [oracles.follow(mesh.graph, states, t)[1] for t in mesh.source_terminals.tolist()]
    row: Any = np.array([mesh.source_terminals.tolist().index(end) for end in ends])
    gone = rng.random(12) < 0.4
    row[gone | gone[row]] = -1
    total = om.Routing(mesh, row)
    terminals = mesh.source_terminals[total.circuits].tolist()
    best_total, best_worst = oracles.best_states(mesh.graph, terminals)
    losses = float(rng.random()), float(rng.random())
    best_loss, _ = oracles.best_states(mesh.graph, terminals, losses)
    worst = om.Routing(mesh, row, objective="worst-cells")
    loss = om.Routing(
        mesh, row, objective="loss-db", bar_loss_db=losses[0], cross_loss_db=losses[1]
    )
    assert total.lower_bound() <= best_total < math.inf
    assert worst.lower_bound() <= best_worst
    assert loss.lower_bound() <= best_loss + 1e-9
    if len(terminals) == 1:
        assert total.lower_bound() == best_total == best_worst == worst.lower_bound()


def test_a_dead_circuit_is_named() -> None:
    mesh = om.HexMesh(3, 3)
    i, j = mesh.dead_pairs()[1]
    row: Any = np.full(28, -1)
    row[[i, j]] = j, i
    for objective in ("total-cells", "worst-cells", "loss-db"):
        problem = om.Routing(mesh, row, objective=objective)
        assert problem.dead_circuits() == [(i, j)]
        assert problem.lower_bound() == math.inf


@pytest.mark.parametrize(
    ("row", "fields", "message"),
    [
        ([1, 0], {}, "matching has 2 entries, there are 4 ports"),
        ([1, 0, 4, 2], {}, r"matching\[2\] = 4: ports are 0 \.\. 3, -1 is idle"),
        ([1, 0, -2, 2], {}, r"matching\[2\] = -2"),
        ([0, -1, -1, -1], {}, r"matching\[0\] = 0: a bidirectional port cannot meet itself"),
        ([1, 2, 0, -1], {}, r"matching\[0\] = 1, but matching\[1\] = 2"),
        ([1, -1, -1, -1], {}, r"matching\[0\] = 1, but matching\[1\] = -1"),
        ([1, 1, -1, -1], {}, "sources 0 and 1 share destination 1"),
        ([[1, 0, 3, 2]], {}, "matching has 2 dimensions, not 1"),
        ([0.5, 0, 3, 2], {}, r"matching\[0\] = 0.5"),
        (ROW, {"objective": "beauty"}, "objective = 'beauty': one of total-cells"),
        (ROW, {"bar_loss_db": -1.0}, "bar_loss_db = -1"),
        (ROW, {"bar_loss_db": 1e8}, "bar_loss_db = 1e.08"),
        (ROW, {"cross_loss_db": math.nan}, "cross_loss_db = nan"),
    ],
)
def test_a_wrong_routing_is_named(row: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        om.Routing(om.HexMesh(3, 3, ports=4), row, **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"slot_s": 0}, "slot_s = 0: must be > 0"),
        ({"slot_s": math.inf}, "slot_s = inf: not finite"),
        ({"slot_s": "1"}, "slot_s = '1': not a number"),
        ({"delay_s": -1}, "delay_s = -1"),
    ],
)
def test_a_wrong_all_to_all_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        om.AllToAll(om.IdealSwitch(2), **fields)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"circuit": [], "terminal": []}, "one node at least"),
        ({"infeasible": [0, 0]}, "infeasible has 2 entries, there are 3 nodes"),
        ({"prices": [[-1, 0]] * 3}, "must be >= 0"),
        ({"children": [[1, 1], [-1, -1], [-1, -1]]}, "do not form a tree"),
        ({"children": [[0, 2], [-1, -1], [-1, -1]]}, "do not form a tree"),
        ({"children": [[1, 2], [2, 1], [-1, -1]]}, "do not form a tree"),
        ({"children": [[1], [-1], [-1]]}, "children has 1 columns, not 2"),
        ({"circuit": [-1, -1, -1]}, "do not form a tree"),
    ],
)
def test_a_proof_is_a_tree(changes: dict[str, Any], message: str) -> None:
    """Each node but the root is the case of one node before it."""
    right: dict[str, Any] = {
        "circuit": [0, -1, -1],
        "terminal": [5, -1, -1],
        "one_way": [0, 0, 0],
        "children": [[1, 2], [-1, -1], [-1, -1]],
        "prices": np.zeros((3, 2)),
        "infeasible": [0, 0, 0],
    }
    assert pickle.loads(pickle.dumps(RoutingProof(**right))) == RoutingProof(**right)
    with pytest.raises(om.InputError, match=message):
        RoutingProof(**right | changes)


def test_problems_are_values() -> None:
    mesh = om.HexMesh(3, 3, ports=4)
    problem = om.Routing(mesh, ROW)
    assert pickle.loads(pickle.dumps(problem)) == problem == om.Routing(mesh, np.array(ROW))
    assert hash(problem) == hash(om.Routing(mesh, np.array(ROW)))
    assert problem != om.Routing(mesh, ROW, objective="worst-cells")
    assert om.AllToAll(mesh) == om.AllToAll(om.HexMesh(3, 3, ports=4), slot_s=1)
    assert om.AllToAll(mesh) != om.AllToAll(mesh, delay_s=0.1)
    with pytest.raises(ValueError, match="read-only"):
        problem.matching[0] = 2


# Answers that do not fit their problem are refused where they enter, before anybody uses them.


ANSWERS = Path(__file__).parents[1] / "data" / "answers"


def change(place: str, value: Any) -> Callable[[Any], Any]:
    """Return a function that puts a value into the tree of a file."""

    def put(tree: Any) -> None:
        *steps, last = [int(step) if step.isdecimal() else step for step in place.split("/")]
        for step in steps:
            tree = tree[step]
        tree[last] = value

    return put


WRONG: list[tuple[str, Callable[[Any], Any], str]] = [
    ("sharing-flow", change("answer/job_of/0", 2147483647), "job_of.0.: job 2147483647 given"),
    ("sharing-flow", lambda tree: tree["answer"]["job_of"].pop(), "job_of has . entries"),
    ("reroute-in-a-rack", change("answer/changed/0", 100000), "changed.0.: circuit 100000 given"),
    ("reroute-in-a-rack", change("answer/steps/0/1", 100000), "steps: c"),
    ("reroute-in-a-switch", change("answer/routes/0/0", 10**6), "terminal 1000000 given"),
    ("reroute-in-a-switch", change("answer/circuits/0/0", 99), ": port 99 given"),
    ("slice", change("answer/servers/0", 10**6), "servers.0.: server 1000000 given"),
    ("slice", change("answer/servers", []), "servers: none is given"),
    ("slice", change("answer/fibres/0/1", 10**6), ": fibre 1000000 given"),
    ("collective", change("answer/sends/0/3", 99), ": chunk 99 given"),
    ("collective", change("answer/circuits/0/0/0", 99), ": rank 99 given"),
    ("collective", lambda tree: tree["answer"]["circuits"][0][0].pop(), "circuits has shape"),
    ("demand-on-planes", lambda tree: tree["answer"]["schedules"].pop(), "schedules has . entr"),
    ("rail-job", change("answer/rails/0/rails", [77]), "timelines of rails 77"),
    ("rail-job", change("answer/start_s/0", -1e300), "at most 1e.100 s are expected"),
    ("rail-job", change("answer/ports/3", 2**30), "set of ports 1073741824 given"),
    ("demand", change("schedule/durations_s/0", 1.7e308), "at most 1e.100 s are expected"),
    ("demand", lambda tree: tree["schedule"]["matchings"][0].append(-1), "matchings"),
]


@pytest.mark.parametrize("name, put, message", WRONG)
def test_an_answer_that_does_not_fit_is_refused_where_it_is_read(
    name: str, put: Callable[[Any], Any], message: str
) -> None:
    tree = json.loads((ANSWERS / f"{name}.schedule.json").read_text())
    put(tree)
    with pytest.raises(om.InputError, match=message) as caught:
        loads(json.dumps(tree))
    assert caught.value.where.startswith("/")


def test_an_answer_by_hand_is_refused_before_it_is_drawn_or_exported() -> None:
    solution: Any = om.load(ANSWERS / "sharing-flow.schedule.json")
    job_of = np.full(len(solution.answer.job_of), 2147483647)
    wrong = replace(solution, answer=replace(solution.answer, job_of=job_of))
    for use in (wrong.plot, wrong.to_dataframe, lambda: exported(wrong, "timeline")):
        with pytest.raises(om.InputError, match="job 2147483647 given, less than"):
            use()


@pytest.mark.parametrize(
    "name, place, fibre, message",
    [
        ("slice", "answer/fibres/0/1", 100, "fibre 100 does not begin at server 0"),
        ("slice-across-racks", "answer/fibres/4/1", 272, "fibre 272 does not begin at server 0"),
        ("slice-across-racks", "answer/fibres/5/1", 336, "336 does not begin where fibre 8"),
    ],
)
def test_fibres_that_lead_elsewhere_are_refused_by_exports(
    name: str, place: str, fibre: int, message: str
) -> None:
    tree = json.loads((ANSWERS / f"{name}.schedule.json").read_text())
    change(place, fibre)(tree)
    solution: Any = loads(json.dumps(tree))
    with pytest.raises(om.InputError, match=message):
        exported(solution, "sonic-ocs")


def test_a_delay_that_no_float_divides_by_is_refused() -> None:
    with pytest.raises(om.InputError, match="far too many times delay_s"):
        om.Demand.from_matrix([[0, 3], [2, 0]], delay_s=1e-320)


# Figures in data files: read, and checked by the classes of their records.


def test_the_command_knows_all_price_lists() -> None:
    assert list(PRICE_LISTS) == list(PRICES)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"batch": 1}, "small: key 'model' is missing"),
        ({"colour": 1}, "small/colour: unknown key 'colour': known are model, parallelism"),
        ({"model": {"layers": 0}}, "small/model: key 'hidden' is missing"),
        ({"parallelism": {"dp": 0}, "model": 3}, "small/model: 3: an object is expected"),
        ({"parallelism": {"dp": 0}}, "small/parallelism/dp: dp = 0"),
        ({"batch": "many"}, "batch = 'many': not a whole number"),
    ],
)
def test_a_record_is_checked_by_its_class(table: dict[str, Any], message: str) -> None:
    """What is wrong is named with its place in the file; one table has a batch alone."""
    whole = read_tables("presets.toml")["presets"]["mixtral-8x22b"]
    changed = {**whole, **table}
    if table.get("batch") == 1:
        changed = table
    with pytest.raises(om.InputError) as caught:
        from_object(Preset, changed, "/small")
    assert message in str(caught.value)


def test_records_cannot_be_changed() -> None:
    records: Any = build_records(Preset, read_tables("presets.toml")["presets"])
    with pytest.raises(TypeError):
        records["new"] = None


def test_text_that_is_no_toml_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrong.toml").write_text("a = \n")
    monkeypatch.setattr("optmatch.problems.records.FOLDER", tmp_path)
    with pytest.raises(om.InputError, match=r"wrong\.toml: .*line 1"):
        read_tables("wrong.toml")
