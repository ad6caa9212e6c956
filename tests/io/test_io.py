"""Files: round trips, and a broken file for every rule."""

import json
import math
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings, strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from referencing import Registry, Resource

import optmatch as om
from optmatch.fabrics import FABRICS, SmartLightMesh
from optmatch.io import dumps, files as files_module, loads, problem_digest
from optmatch.io.schemas import make_schema
from optmatch.problems import PROBLEMS, RoutingProof
from tests.helpers.command import ideal_solution

DATA = Path(__file__).resolve().parents[1] / "data"
GOOD = sorted((DATA / "good").glob("*.json"))
INSTANCES = sorted((DATA.parent.parent / "instances").glob("*/*.json"))
SCHEMAS = {
    name: json.loads(
        (Path(files_module.__file__).parent / "schema" / f"{name}.schema.json").read_text()
    )
    for name in ("problem", "schedule", "device", "triggers")
}

BROKEN = [  # file, the place it must name, what it must say, whether the schema sees it too
    ("arrays-absent", "/arrays/file", "arrays-absent.00000000.npz cannot be read: No such", False),
    ("arrays-elsewhere", "/arrays/file", "'../a.npz': the name of an .npz file in the same", True),
    ("cell-state", "/schedule/cell_states/0/3", "= 2: from -1 to 1", True),
    ("demand-diagonal", "/demand_bytes/1/1", "= 1: a bidirectional port cannot meet", False),
    ("demand-negative", "/demand_bytes/1/0", "= -2: must be >= 0", True),
    ("demand-rate", "/rate_bytes_per_s", "rate_bytes_per_s = 0: must be > 0", True),
    ("demand-shape", "/demand_bytes", "has shape 2 x 2, the fabric has 3 ports", False),
    ("demand-unequal", "/demand_bytes", "row 1 sums to 2 s of circuit time, row 0 to 3", False),
    ("destination-shared", "/schedule/matchings/1", "sources 0 and 1 share destination 2", False),
    ("digest", "/problem_sha256", "4dd4dae0.* but the problem in this file has f9a4f22f", False),
    ("digest-absent", "/", "key 'problem_sha256' is missing", True),
    ("duplicate-key", "/fabric/rows", "key 'rows' occurs twice", False),
    ("duplicate-port", "/fabric/ports/3", r"= 5: is ports\[1\] already", False),
    ("duration", "/schedule/durations_s/1", "= 0: must be > 0", True),
    ("embedded-problem", "/problem/fabric/cols", "cols = 0: must be >= 1", True),
    ("empty", "", "empty.json:1:1: Expecting value: not JSON", False),
    ("fabric-is-a-list", "/fabric", r"\['hex-mesh', 4, 4\]: an object is expected", True),
    ("fabric-without-type", "/fabric", "key 'type' is missing", True),
    ("fabric-type", "/fabric/type", "type = 'octagon-mesh': unknown; known are hex-mesh", True),
    ("infinity", "/slot_s", "1e999: a number is finite", False),
    ("kind", "/kind", "kind = 'some-to-some': unknown; known are all-to-all", True),
    ("list", "/", r"\[1, 2\]: an object is expected", True),
    ("matching-not-mutual", "/matching/0", r"= 1, but matching\[1\] = 2: .* mutual", False),
    ("matching-shares", "/matching", "sources 0 and 1 share destination 1", False),
    ("matching-too-short", "/matching", "has 2 entries, there are 3 ports", False),
    ("matching-with-null", "/matching/1", "None: a number is expected", True),
    ("method", "/method", "5: a text is expected", True),
    ("nan", "/slot_s", "NaN: a number is finite", False),
    ("negative-delay", "/delay_s", "delay_s = -1: must be >= 0", True),
    ("negative-price", "/certificate/prices/price/0", r"price\[0\] = -.*: must be >= 0", True),
    ("negative-size", "/fabric/rows", "rows = -4: must be >= 1", True),
    ("no-format", "/", "key 'format' is missing", True),
    ("no-rows", "/fabric", "key 'rows' is missing", True),
    ("objective", "/objective", "'fewest-cells': one of total-cells", True),
    ("objective-below-bound", "/lower_bound", "lower_bound 28.0 > objective 1.0", False),
    ("port-out-of-range", "/fabric/ports/2", "= 36: perimeter terminals are 0 .. 35", False),
    (
        "price-fraction",
        "/certificate/prices/price/2",
        r"price\[2\] = 0.5: not a whole number",
        True,
    ),
    ("price-missing", "/certificate/prices/price", "1 prices for 6 links", False),
    ("price-starts", "/certificate/prices/starts", "starts ascend from 0 to .* 6", False),
    ("price-of-no-link", "/certificate/prices/link/1", "= 10000: .* within 0 .. 47", False),
    (
        "prices-of-another-mesh",
        "/certificate/prices/links",
        "links = 12: the fabric has 48",
        False,
    ),
    ("schedule-absent", "/status", "status optimal without an answer", False),
    ("seed", "/seed", "seed = -1: must be >= 0", True),
    ("size-is-true", "/fabric/rows", "rows = True: not a whole number", True),
    ("status", "/status", "'probable': one of optimal, feasible", True),
    ("status-without-proof", "/status", "status feasible with limit None", False),
    ("too-few-cells", "/schedule/cell_states", "rows of 18 entries, the fabric needs 19", False),
    ("too-few-ports", "/schedule/matchings", "rows of 2 entries, the fabric needs 3", False),
    ("too-many-ports", "/fabric/ports", "ports = 37: at most 36", False),
    ("truncated", "", r"truncated.json:4:54: Expecting ',' delimiter: not JSON", False),
    ("unknown-fabric-key", "/fabric/row", "unknown key 'row': known are type, rows", True),
    ("unknown-key", "/slots_s", "unknown key 'slots_s': known are format, kind, fabric", True),
    ("version", "/format", "= 'optmatch/problem/2': unknown; known are optmatch/problem/1", True),
]


def validator(name: str) -> Any:
    """Return the validator of a schema, with the others in reach."""
    resources = [(s["$id"], Resource.from_contents(s)) for s in SCHEMAS.values()]
    registry: Any = Registry().with_resources(resources)
    return Draft202012Validator(SCHEMAS[name], registry=registry)


def schema_of(tree: Any) -> str:
    """Say which schema a tree claims to follow; a problem if it is not clear."""
    tag = tree.get("format", "") if isinstance(tree, dict) else ""
    return "schedule" if str(tag).startswith("optmatch/schedule/") else "problem"


ports = st.one_of(
    st.none(), st.integers(1, 4), st.lists(st.integers(0, 15), min_size=1, unique=True)
)
grids: st.SearchStrategy[Any] = st.sampled_from([om.HexMesh, om.SquareMesh, om.TriangularMesh])


@st.composite
def fabrics(draw: st.DrawFn) -> om.Fabric:
    """Draw any fabric, small, in both port models."""
    if draw(st.booleans()):
        return om.IdealSwitch(draw(st.integers(1, 9)))
    chosen = {"ports": draw(ports)}
    if draw(st.booleans()):
        ends = draw(st.lists(st.integers(0, 15), min_size=2, max_size=8, unique=True))
        half = len(ends) // 2
        chosen = {"tx": ends[:half], "rx": ends[half : 2 * half]}
    if draw(st.booleans()):
        return SmartLightMesh(**chosen)
    size = st.integers(3, 4)
    grid, rows, cols = draw(grids), draw(size), draw(size)
    try:
        fabric: om.Fabric = grid(rows, cols, **chosen)
    except om.InputError:  # so many cannot be chosen here
        reject()
    return fabric


@st.composite
def matchings(draw: st.DrawFn, fabric: om.Fabric) -> list[int]:
    """Draw a matching of some of the ports."""
    order = draw(st.permutations(range(fabric.n_ports)))
    kept = draw(st.integers(0, fabric.n_ports))
    matching = [-1] * fabric.n_ports
    if not fabric.bidirectional:
        for source in range(kept):
            matching[source] = order[source]
        return matching
    for i, j in zip(order[0 : kept - 1 : 2], order[1:kept:2], strict=False):
        matching[i], matching[j] = j, i
    return matching


seconds = st.floats(0, 1e9, allow_nan=False)


@st.composite
def problems(draw: st.DrawFn) -> om.AllToAll | om.Routing:
    """Draw any problem."""
    fabric = draw(fabrics())
    if draw(st.booleans()):
        slot_s = draw(st.floats(1e-9, 1e9))
        return om.AllToAll(fabric, slot_s=slot_s, delay_s=draw(seconds))
    objective: Any = draw(st.sampled_from(["total-cells", "worst-cells", "loss-db"]))
    matching: Any = draw(matchings(fabric))
    return om.Routing(fabric, matching, objective=objective, bar_loss_db=draw(st.floats(0, 1000)))


@st.composite
def proofs(draw: st.DrawFn, fabric: om.Fabric) -> RoutingProof:
    """Draw a proof with one leaf, or a root and two leaves; it need not be true."""
    links = 0 if fabric.graph is None else fabric.graph.links.count
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    prices = rng.integers(0, 10_000, (3, links)) * (rng.random((3, links)) < 0.1)
    if draw(st.booleans()):
        return RoutingProof.of_prices(prices[0], infeasible=draw(st.booleans()))
    arrays: Any = {
        "circuit": [0, -1, -1],
        "terminal": [5, -1, -1],
        "one_way": [1, 0, 0],
        "children": [[1, 2], [-1, -1], [-1, -1]],
        "prices": prices * [[0], [1], [1]],
        "infeasible": [0, 1, 0],
    }
    return RoutingProof(**arrays)


@st.composite
def solutions(draw: st.DrawFn) -> om.Solution:
    """Draw any outcome, true or not: files keep what they are given, `verify` judges it."""
    problem = draw(problems())
    fabric: om.Fabric = problem.fabric
    status = draw(st.sampled_from(om.Status))
    proved = status in (om.Status.OPTIMAL, om.Status.INFEASIBLE)
    schedule = objective = None
    bound = draw(st.sampled_from([-math.inf, math.inf, 0.0, 12.5]))
    if status in (om.Status.OPTIMAL, om.Status.FEASIBLE):
        rows: Any = [draw(matchings(fabric)) for _ in range(draw(st.integers(1, 3)))]
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        states = rng.integers(-1, 2, (len(rows), fabric.n_cells), dtype=np.int8)
        schedule = om.Schedule(
            matchings=rows,
            durations_s=rng.random(len(rows)) + 0.1,
            delay_s=draw(seconds),
            cell_states=states if fabric.n_cells else None,
            switching=draw(st.sampled_from(["all-stop", "per-circuit"])),
        )
        objective = draw(st.floats(0, 1e6))
        bound = objective if proved else min(bound, objective)
    one = proofs(fabric)
    return om.Solution(
        problem=problem,
        schedule=schedule,
        status=status,
        limit=None if proved else draw(st.sampled_from(om.Limit)),
        objective=objective,
        lower_bound=bound,
        method=draw(st.text()),
        seed=draw(st.one_of(st.none(), st.integers(0, 2**64))),
        time_s=draw(seconds),
        certificate=draw(
            st.one_of(st.none(), one, st.lists(st.one_of(st.none(), one), max_size=3).map(tuple))
        ),
        stats=draw(st.dictionaries(st.text(), st.one_of(st.integers(), st.text(), st.none()))),
    )


relaxed = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@relaxed
@given(problems())
def test_a_problem_comes_back(problem: om.AllToAll | om.Routing) -> None:
    text = dumps(problem)
    again = loads(text)
    assert again == problem
    assert isinstance(again, om.AllToAll | om.Routing)
    assert problem_digest(again) == problem_digest(problem)
    validator("problem").validate(json.loads(text))


@relaxed
@given(solutions())
def test_a_solution_comes_back(solution: om.Solution) -> None:
    text = dumps(solution)
    again = loads(text)
    assert isinstance(again, om.Solution)
    for field in fields(om.Solution):
        assert getattr(again, field.name) == getattr(solution, field.name), field.name
    validator("schedule").validate(json.loads(text))


@pytest.mark.parametrize("path", [*GOOD, *INSTANCES], ids=lambda path: path.name)
def test_good_files_are_read_and_follow_their_schema(path: Path) -> None:
    tree = json.loads(path.read_text())
    validator(schema_of(tree)).validate(tree)
    first = om.load(path)
    assert loads(dumps(first)) == first


def test_good_schedules_pass_the_verifier() -> None:
    schedules = [path for path in GOOD if ".schedule." in path.name]
    assert len(schedules) >= 3
    for path in schedules:
        solution = om.load(path)
        assert isinstance(solution, om.Solution)
        if solution.schedule is not None:
            assert om.verify(solution.problem, solution).ok, path


@pytest.mark.parametrize(("name", "where", "message", "_"), BROKEN, ids=[b[0] for b in BROKEN])
def test_a_broken_file_is_refused(name: str, where: str, message: str, _: bool) -> None:
    path = DATA / "broken" / f"{name}.json"
    with pytest.raises(om.InputError, match=message) as caught:
        om.load(path)
    assert caught.value.path.startswith(str(path))
    assert caught.value.where == where
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "file", [path for folder in ("good", "answers") for path in sorted((DATA / folder).iterdir())]
)
def test_arrays_of_every_kind_may_lie_beside_the_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optmatch.io.files.MOST_BYTES", 0)
    monkeypatch.setattr("optmatch.io.files._SMALL", 0)
    given = om.load(file)
    om.save(given, tmp_path / "x.json")
    assert om.load(tmp_path / "x.json") == given


def test_a_schedule_of_what_has_no_switch_is_refused() -> None:
    tree = json.loads((DATA / "answers" / "sharing-flow.schedule.json").read_text())
    with pytest.raises(om.InputError, match="port-sharing has no switch, and no schedule"):
        loads(json.dumps(tree | {"schedule": {}}))


@pytest.mark.parametrize("name", [broken[0] for broken in BROKEN if broken[3]])
def test_a_schema_sees_what_it_can(name: str) -> None:
    """Other tools can refuse these files by the schema alone."""
    tree = json.loads((DATA / "broken" / f"{name}.json").read_text())
    assert not validator(schema_of(tree)).is_valid(tree)


def test_every_broken_file_is_tried() -> None:
    names = {path.stem for path in (DATA / "broken").iterdir()}
    assert names == {broken[0] for broken in BROKEN}


@pytest.mark.parametrize("name", SCHEMAS)
def test_shipped_schemas_are_those_of_the_declarations(name: str) -> None:
    assert SCHEMAS[name] == json.loads(json.dumps(make_schema(name)))


NAMED = om.IdealSwitch(3, names=("rack-1", "rack-2", "spare"))
CALLED_BY_NAME = [  # a problem, where its file has a number, and the name that may stand there
    (om.Routing(NAMED, [1, -1, -1]), ("matching", 0), "rack-2"),
    (om.Reroute(NAMED, [[0, 1]], spares=(2,)), ("circuits", 0, 1), "rack-2"),
    (om.Reroute(NAMED, [[0, 1]], spares=(2,)), ("spares", 0), "spare"),
    (om.Reroute(NAMED, [[0, 1]], failed_ports=(1,)), ("failed_ports", 0), "rack-2"),
    (om.AllToAll(om.Faulty(NAMED, dead_ports=[1])), ("fabric", "dead_ports", 0), "rack-2"),
]


@pytest.mark.parametrize(("problem", "place", "name"), CALLED_BY_NAME)
def test_files_name_ports_wherever_their_schema_says_so(
    problem: Any, place: tuple[str | int, ...], name: str
) -> None:
    tree = json.loads(dumps(problem))
    *way, last = place
    entries = tree
    for key in way:
        entries = entries[key]
    entries[last] = name
    validator("problem").validate(tree)
    assert loads(json.dumps(tree)) == problem
    entries[last] = "attic"
    with pytest.raises(om.InputError, match="there is no port attic"):
        loads(json.dumps(tree))


def test_files_number_parts_that_have_no_names() -> None:
    tree = json.loads(dumps(om.Reroute(om.RackFabric(), [], spares=(63,), failed_fibres=(3,))))
    for name in ("spares", "failed_fibres"):
        with pytest.raises(om.InputError, match=f"{name}.*'3': not a whole number"):
            loads(json.dumps({**tree, name: ["3"]}))


def test_schemas_know_every_problem_and_fabric() -> None:
    definitions = SCHEMAS["problem"]["$defs"]
    assert set(SCHEMAS["problem"]["properties"]["kind"]["enum"]) == set(PROBLEMS)
    assert set(definitions["fabric"]["properties"]["type"]["enum"]) == set(FABRICS)
    for kind, cls in [*PROBLEMS.items(), *FABRICS.items()]:
        rule = definitions[kind]
        names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        needed = {f.name for f in fields(cls) if f.default is MISSING}  # type: ignore[arg-type]
        assert set(rule["properties"]) - {"arrays", "format", "kind", "type"} == names, kind
        assert set(rule["required"]) - {"format", "kind", "type"} == needed, kind
        for name in names:
            assert "description" in rule["properties"][name], (kind, name)


def test_schemas_follow_the_standard() -> None:
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)


def test_a_text_of_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.json").write_bytes(b'{"note": "caf\xe9"}')
    with pytest.raises(om.FormatError, match=r"latin\.json: byte 13 is 0xe9: a file is UTF-8"):
        om.load(tmp_path / "latin.json")


def test_huge_numbers_are_refused() -> None:
    with pytest.raises(om.FormatError, match=r"x\.json: .*digits"):
        loads("[" + "9" * 5000 + "]", path="x.json")


def test_the_digest_ignores_layout_and_defaults() -> None:
    short = loads(
        '{"kind":"all-to-all","format":"optmatch/problem/1","fabric":{"n":3,"type":"ideal-switch"}}'
    )
    assert isinstance(short, om.AllToAll)
    assert problem_digest(short) == problem_digest(om.AllToAll(om.IdealSwitch(3)))
    assert problem_digest(short) != problem_digest(replace(short, delay_s=1e-12))
    assert problem_digest(short) == problem_digest(replace(short, delay_s=-0.0))


def test_what_has_no_format_is_refused(tmp_path: Path) -> None:

    class Mine(om.IdealSwitch):
        """A fabric that no file knows."""

    odd: Any = replace(ideal_solution(), certificate="trust me")
    unknown: Any = {"rows": 4}
    with pytest.raises(om.InputError, match="certificate of type str has no file format"):
        om.save(odd, tmp_path / "a.json")
    with pytest.raises(om.InputError, match="dict has no file format"):
        om.save(unknown, tmp_path / "a.json")
    with pytest.raises(om.InputError, match="Mine has no file format"):
        om.save(om.AllToAll(Mine(3)), tmp_path / "a.json")
    assert not list(tmp_path.iterdir())


def test_figures_that_json_lacks_are_written_as_text() -> None:
    """A solve of hours must not be lost to one infinite figure."""
    solution = replace(ideal_solution(), stats={"ratio": math.inf, "seen": np.int64(3)})
    again = loads(dumps(solution))
    assert isinstance(again, om.Solution)
    assert dict(again.stats) == {"ratio": "inf", "seen": 3}


def test_a_matching_takes_a_line() -> None:
    lines = [line.strip().rstrip(",") for line in dumps(ideal_solution()).splitlines()]
    assert "[1,2,0]" in lines and "[2,0,1]" in lines
