"""Demands: exact ticks, refusals, and a lower bound that the best schedule never beats."""

import pickle
import time
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.io import dumps, from_graph, loads
from optmatch.problems import completion_s, held_ticks
from optmatch.problems.demands.problem import bound_lines
from optmatch.problems.demands.ticks import even_out, scale
from optmatch.problems.demands.traffic import MODELS, permutations, solstice
from optmatch.testing import brute_force

TWO = om.IdealSwitch(2)


def demand(matrix: Any, **options: Any) -> om.Demand:
    """Make a demand on the ideal switch that fits, with idle ports if it is not square."""
    sizes = np.shape(matrix)
    fabric = om.IdealSwitch(max(sizes)) if len(sizes) == 2 else None
    return om.Demand.from_matrix(matrix, fabric, **{"delay_s": 0.0, **options})


@pytest.mark.parametrize(
    ("matrix", "options", "tick_s", "ticks", "delay"),
    [
        ([[4, 6]], {}, 2.0, [[2, 3]], 0),
        ([[4, 6]], {"delay_s": 0.5}, 0.5, [[8, 12]], 1),
        ([[0.1, 0.3]], {}, 0.1, [[1, 3]], 0),
        ([[0.1, 0.25]], {}, 0.05, [[2, 5]], 0),
        ([[2.0**-40, 3.0]], {}, 2.0**-40, [[1, 3 * 2**40]], 0),
        ([[1e9, 2.5e9]], {"rate_bytes_per_s": 12.5e9, "delay_s": 2e-5}, 2e-5, [[4000, 10000]], 1),
        ([[6, 9]], {"min_slot_s": 2.0}, 1.0, [[6, 9]], 0),
        ([[0, 0]], {"delay_s": 3.0}, 3.0, [[0, 0]], 1),
        ([[1e18, 2e18]], {}, 1e18, [[1, 2]], 0),
    ],
)
def test_ticks_are_the_largest_that_divide_everything(
    matrix: Any, options: Any, tick_s: float, ticks: Any, delay: int
) -> None:
    """Decimals at their word, powers of two, and seconds of a circuit with a rate."""
    problem = demand(matrix, **options)
    assert problem.exact
    assert problem.tick_s == tick_s
    assert problem.ticks[:1, :2].tolist() == ticks
    assert problem.delay_ticks == delay


@given(
    ticks=st.lists(st.integers(1, 2**40), min_size=1, max_size=4),
    quantum_s=st.sampled_from([0.1, 0.3, 1e-6, 7.0, 1 / 3]),
    noise=st.floats(-0.9e-9, 0.9e-9),
)
def test_noise_of_floats_is_no_tick(ticks: list[int], quantum_s: float, noise: float) -> None:
    """Sums of floats miss whole ticks by a little: demands and the shortest slot keep these."""
    line = [[quantum_s * count * (1 + noise) for count in ticks]]
    problem = demand(line, quantum_s=quantum_s, min_slot_s=line[0][0])
    least = [*problem.ticks[0].tolist()[: len(ticks)], problem.min_slot_ticks]
    for count, got in zip([*ticks, ticks[0]], least, strict=True):
        assert abs(got - count) <= max(0, round(count * abs(noise)))
    small = [count for count in ticks if count < 10**6]  # 0.01 of more is noise as well
    more = demand([[quantum_s * (count + 0.01) for count in small] or [0]], quantum_s=quantum_s)
    assert more.ticks[0, : len(small)].tolist() == [count + 1 for count in small]


GROUPED = {"objective": "weighted-completion-s", "groups": [[0]]}


@pytest.mark.parametrize(
    ("matrix", "options", "message"),
    [
        ([[1e308, 1e308]], {}, "demand_bytes adds up to inf s"),
        ([[1e308]], {"rate_bytes_per_s": 1e-9}, "demand_bytes adds up to inf s"),
        ([[1e-300]], {"rate_bytes_per_s": 1e300}, "demand_bytes adds up to 0 s"),
        ([[1.0]], {"quantum_s": 1e-3, "min_slot_s": 2.0**63}, "overflows: a larger quantum_s"),
        ([[1.0]], {"quantum_s": 1e-3, "delay_s": 2.0**63}, "overflows: a larger quantum_s"),
        ([[1.0]], {"delay_s": 1e308}, "^delay_s = 1e.308: .* slots take more than 1e.305 s"),
        ([[1.0]], {"min_slot_s": 1e308}, "^min_slot_s = 1e.308: .* slots take more than"),
        ([[1.0]], {"delay_s": np.ones(2)}, "^delay_s = "),
        ([[1.0]], {"packet_bytes_per_s": 1e-101}, "^packet_bytes_per_s = 1e-101: .* 1e-100 to"),
        ([[1.0]], {"packet_bytes_per_s": 1e101}, "^packet_bytes_per_s = 1e.101: .* 1e-100 to"),
        (
            [[4.0]],
            {**GROUPED, "weights": (1e308,)},
            r"^weights\[0\] = 1e.308: .* a number can hold",
        ),
    ],
)
@pytest.mark.filterwarnings("error")
def test_times_that_cannot_be_counted_are_refused(matrix: Any, options: Any, message: str) -> None:
    """Named, and not an OverflowError or a warning on the way."""
    with pytest.raises(om.InputError, match=message):
        demand(matrix, **options)


def test_ticks_are_rounded_up_where_none_divides() -> None:
    """A third and a delay of a seventh have no common tick: a fine one, that the delay obeys."""
    problem = demand([[1 / 3, 0.5]], delay_s=1 / 7)
    assert not problem.exact
    assert problem.delay_ticks * problem.tick_s == pytest.approx(1 / 7, rel=1e-15)
    over = problem.ticks[0] * problem.tick_s - np.array([1 / 3, 0.5])
    assert (over >= 0).all()
    assert over.max() <= 1.01 * problem.tick_s <= 1e-11


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_rounding_up_is_exact(data: Any) -> None:
    values = st.just(0.0) | st.floats(1e-9, 1e6)  # less than 1e-280 s in all is refused
    matrix = np.array([[data.draw(values) for _ in range(3)]])
    quantum = data.draw(st.sampled_from([0.1, 0.25, 1e-3, 7.0]))
    scaled = scale(matrix, 1.0, 0.0, 0.0, quantum)
    unit = Fraction(repr(quantum))
    for value, got in zip(matrix[0].tolist(), scaled.demand[0].tolist(), strict=True):
        count = Fraction(repr(value)) / unit
        noisy = abs(count - round(count)) <= Fraction(1, 10**9) * count
        assert got == (round(count) if noisy else -(-count // 1))


@pytest.mark.parametrize(
    ("matrix", "options", "where", "message"),
    [
        ([[0, -2]], {}, "demand_bytes[0, 1]", r"demand_bytes\[0, 1\] = -2: must be >= 0"),
        ([[0, np.nan]], {}, "", r"demand_bytes\[0, 1\] = nan: not a finite"),
        ([[np.inf, 1]], {}, "", r"demand_bytes\[0, 0\] = inf: not a finite"),
        ([1, 2], {}, "", "1 dimensions, not 2"),
        ([[2**53 + 1]], {}, "", "9007199254740993: above 2..53, and no float"),
        ([["x"]], {}, "", "not an array of numbers"),
        ([[1e300]], {"quantum_s": 1.0}, "demand_bytes", "overflows: a larger quantum_s"),
        ([[1]], {"quantum_s": 0.0}, "quantum_s", "must be > 0"),
        ([[1]], {"quantum_s": 1e-6, "min_slot_s": 1e10}, "min_slot_s", "less than 9.01e\\+15 are"),
        (
            [[1]],
            {"quantum_s": 1.0, "delay_s": 2e18, "planes": 5},
            "delay_s",
            "2e\\+18 ticks of 1 s",
        ),
        ([[1]], {"quantum_s": 0.3, "delay_s": 0.5}, "quantum_s", "not divide the delay of 0.5"),
        ([[1]], {"rate_bytes_per_s": 0.0}, "rate_bytes_per_s", "must be > 0"),
        ([[1]], {"delay_s": -1.0}, "delay_s", "must be >= 0"),
        ([[1]], {"planes": 0}, "planes", "must be >= 1"),
        ([[1]], {"switching": "some-stop"}, "switching", "one of all-stop, per-circuit"),
        ([[1]], {"objective": "speed"}, "objective", "one of completion-s, matchings"),
        ([[1, 2], [2, 2]], {"objective": "matchings"}, "demand_bytes", "row 1 .* 4 s .* 3 s"),
        ([[1, 2], [0, 3]], {"objective": "matchings"}, "demand_bytes", "column 0 .* 1 s .* 3 s"),
        ([[1]], {"objective": "matchings", "planes": 2}, "objective", "one plane"),
        (
            [
                [0.1, 0.2, 0.2, 0],
                [0, 0.2, 0, 0.1 + 0.2],
                [0.2, 0, 0.1 + 0.2, 0],
                [0.2, 0.1, 0, 0.2],
            ],
            {"objective": "matchings", "planes": 1, "delay_s": 3.0, "rate_bytes_per_s": 1e9},
            "delay_s",
            "less than",
        ),
    ],
)
def test_bad_input_is_named(matrix: Any, options: Any, where: str, message: str) -> None:
    """The place, the value and the rule."""
    with pytest.raises(om.InputError, match=message) as caught:
        demand(matrix, **options)
    assert caught.value.where == where


def test_a_matrix_must_fit_the_fabric() -> None:
    """The constructor wants exactly one row for each port, `from_matrix` at most one."""
    matrix: Any = [[1, 2]]
    with pytest.raises(om.InputError, match="shape 1 x 2, the fabric has 2 ports"):
        om.Demand(TWO, matrix)
    with pytest.raises(om.InputError, match="shape 1 x 3, the fabric 2 ports"):
        om.Demand.from_matrix([[1, 2, 3]], TWO, delay_s=0.0)


def test_bidirectional_ports() -> None:
    """Nothing on the diagonal, and a circuit serves the larger of both directions."""
    mesh = om.HexMesh(2, 2, ports=4)
    with pytest.raises(om.InputError, match=r"demand_bytes\[2, 2\] = 1: .* cannot meet itself"):
        om.Demand.from_matrix(np.diag([0, 0, 1, 0]), mesh, delay_s=0.0)
    matrix = np.zeros((4, 4))
    matrix[0, 1], matrix[1, 0] = 3, 5
    problem = om.Demand.from_matrix(matrix, mesh, delay_s=0.0)
    assert problem.ticks[0, 1] == problem.ticks[1, 0] == 5
    assert problem.directed_ticks[0, 1] == 3
    assert problem.lower_bound() == 5


def test_ports_that_cannot_meet_must_not_want_to() -> None:
    """Unless a packet network is there to carry it."""
    mesh = om.HexMesh(2, 2, ports=om.HexMesh(2, 2).dead_pairs()[0])
    with pytest.raises(om.InputError, match=r"demand_bytes\[0, 1\] = 4: no states of the cells"):
        om.Demand.from_matrix([[0, 4]], mesh, delay_s=0.0)
    relieved = om.Demand.from_matrix([[0, 4]], mesh, delay_s=0.0, packet_bytes_per_s=1.0)
    assert relieved.lower_bound() > 0


def test_demands_are_values() -> None:
    """Equal by content, also after a pickle; arrays cannot be written to."""
    problem = demand([[1, 2], [3, 0]], delay_s=0.5)
    copy = pickle.loads(pickle.dumps(problem))
    assert copy == problem
    assert hash(copy) == hash(problem)
    assert copy.ticks.tolist() == problem.ticks.tolist()
    assert replace(problem, delay_s=1.0) != problem
    with pytest.raises(ValueError, match="read-only"):
        problem.demand_bytes[0, 0] = 7


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({}, 6.0),
        ({"delay_s": 1.0}, 9.0),
        ({"delay_s": 1.0, "planes": 2}, 5.0),
        ({"delay_s": 1.0, "planes": 4}, 3.0),
        ({"min_slot_s": 3.0}, 9.0),
        ({"objective": "matchings"}, 3.0),
        ({"packet_bytes_per_s": 1.0}, 3.0),
        ({"packet_bytes_per_s": 2.0, "delay_s": 3.0}, 3.0),
        ({"packet_bytes_per_s": 1.0, "delay_s": 1.0}, 3.5),
    ],
)
def test_the_line_bound(options: Any, bound: float) -> None:
    """A line of 1 + 2 + 3, by hand: sums, delays, planes, short slots, packets."""
    circulant = [[1, 2, 3], [3, 1, 2], [2, 3, 1]]
    problem = demand(circulant, **options)
    assert problem.lower_bound() == pytest.approx(bound)
    assert bound_lines(problem).tolist() == pytest.approx([bound] * 6)


def test_one_line_is_busiest_and_another_one_meets_most() -> None:
    """Where all stop, the first waits for the delays of the other: 9 + 1 and 3 * 2, not 2 * 2."""
    matrix = [[9, 0, 0], [1, 1, 1], [0, 0, 0]]
    assert demand(matrix, delay_s=2.0).lower_bound() == 16
    assert demand(matrix, delay_s=2.0, planes=2).lower_bound() == 8
    assert demand(matrix, delay_s=2.0, switching="per-circuit").lower_bound() == 14


@pytest.mark.parametrize(
    "options",
    [{}, {"delay_s": 2.0, "min_slot_s": 4.0}, {"planes": 3}, {"switching": "per-circuit"}],
)
def test_few_entries_are_bounded_and_verified_as_the_full_matrix_is(
    options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(4)
    matrix = rng.integers(1, 9, (20, 20)) * (rng.random((20, 20)) < 0.1)
    problem = demand(matrix, **options)
    assert problem.entry_places is not None
    assert problem.entry_places.tolist() == np.flatnonzero(problem.ticks).tolist()
    lines = bound_lines(problem).tolist()
    bound = problem.lower_bound()
    solution = om.solve(problem, "greedy-cover", seed=0)
    report = om.verify(problem, solution)
    monkeypatch.setattr(om.Demand, "entry_places", None)
    assert bound_lines(problem).tolist() == lines
    assert problem.lower_bound() == bound
    again = om.verify(problem, solution)
    assert (again.valid, again.figures) == (True, report.figures)


def test_the_bound_is_reached_somewhere() -> None:
    """A bound of zero would hold as well."""
    found = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        problem = demand(rng.integers(0, 3, (3, 3)), delay_s=1.0)
        found.append(problem.lower_bound() == brute_force(problem))
    assert sum(found) >= 4


def test_what_a_schedule_holds() -> None:
    """Per circuit, one that stays carries through the delay."""
    problem = demand([[9, 0], [0, 9]], delay_s=2.0, switching="per-circuit")
    schedule = problem.schedule([[0, 1], [0, -1]], [4, 3])
    assert held_ticks(problem, schedule).tolist() == [[9, 0], [0, 4]]
    all_stop = replace(problem, switching="all-stop")
    assert held_ticks(all_stop, schedule).tolist() == [[7, 0], [0, 4]]


def test_completion() -> None:
    """The last slot of the slowest plane, the packet network, or never."""
    problem = demand([[5]], delay_s=1.0)
    assert completion_s(problem, [problem.schedule([[0]], [5])]) == 6.0
    assert completion_s(problem, [problem.schedule([[0]], [4])]) == np.inf
    assert completion_s(problem, []) == np.inf
    with_packets = replace(problem, packet_bytes_per_s=0.1)
    assert completion_s(with_packets, [problem.schedule([[0]], [4])]) == 10.0
    on_two = replace(problem, planes=2)
    schedules = [problem.schedule([[0]], [3]), problem.schedule([[0]], [2])]
    assert completion_s(on_two, schedules) == 4.0


def test_schedules_of_planes_fit_together() -> None:
    """At least one, all of the same ports."""
    with pytest.raises(om.InputError, match="no plane"):
        om.PlaneSchedules(schedules=())
    parts = (demand([[1]]).schedule([[0]], [1]), demand(np.ones((2, 2))).schedule([[0, 1]], [2]))
    with pytest.raises(om.InputError, match="different numbers of ports"):
        om.PlaneSchedules(schedules=parts)
    assert om.PlaneSchedules(schedules=parts[1:]).makespan_s == 2.0


def test_a_matrix_without_a_fabric_is_square() -> None:
    """Nothing is padded in silence, on a fabric that is given nothing has to be."""
    with pytest.raises(om.InputError, match="shape 1 x 3: a row and a column for each port"):
        om.Demand.from_matrix([[0, 1, 2]], delay_s=0.0)
    wide = om.Demand.from_matrix([[0, 1, 2]], om.IdealSwitch(3), delay_s=0.0)
    assert wide.ticks.tolist() == [[0, 1, 2], [0, 0, 0], [0, 0, 0]]


def test_a_forgotten_delay_is_asked_for() -> None:
    """Only the number of matchings has none."""
    with pytest.raises(om.InputError, match=r"delay_s: .* is not stated; 0 if there is none"):
        om.Demand.from_matrix([[0, 1], [2, 0]])
    assert om.Demand.from_matrix([[0, 1], [1, 0]], objective="matchings").delay_s == 0.0


def test_labels_are_names_of_ports() -> None:
    pandas, networkx = pytest.importorskip("pandas"), pytest.importorskip("networkx")
    frame = pandas.DataFrame([[0, 1], [2, 0]], index=["a", "b"], columns=["a", "b"])
    problem = om.Demand.from_matrix(frame, delay_s=0.0)
    matrix, nodes = from_graph(networkx.DiGraph([("a", "b", {"weight": 1}), ("b", "a")]))
    matrix[1, 0] = 2.0
    assert om.Demand.from_matrix(matrix, delay_s=0.0, names=nodes) == problem
    assert problem.fabric.port_names == ("a", "b")
    assert loads(dumps(problem)) == problem
    assert "names" not in dumps(om.AllToAll(TWO))
    assert problem.fabric.describe_port(1) == "port 1 (b)"
    plain = om.Demand.from_matrix(pandas.DataFrame([[0, 1], [2, 0]]), delay_s=0.0)
    assert plain.fabric == TWO


def test_labels_are_not_lost_in_silence() -> None:
    """They name the ports of a switch without names, and have to be names of any other."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([[0, 1], [2, 0]], index=["a", "b"], columns=["a", "b"])
    assert om.Demand.from_matrix(frame, TWO, delay_s=0.0).fabric.port_names == ("a", "b")
    with pytest.raises(om.InputError, match=r"no port .* is called 'a'.*matrix\.to_numpy"):
        om.Demand.from_matrix(frame, om.IdealSwitch(2, ("c", "d")), delay_s=0.0)
    turned = om.IdealSwitch(2, ("b", "a"))
    assert om.Demand.from_matrix(frame, turned, delay_s=0.0).demand_bytes[0, 1] == 2
    with pytest.raises(om.InputError, match=r"ports in another order: Demand\.from_matrix"):
        om.Demand(turned, frame, delay_s=0.0)
    with pytest.raises(om.InputError, match=r"ports in another order: Demand\.from_matrix"):
        om.Demand(fabric=turned, demand_bytes=frame, delay_s=0.0)
    numbered = pandas.DataFrame([[0, 1], [2, 0]], index=[1, 0], columns=[1, 0])
    by_number = om.Demand.from_matrix(numbered, TWO, delay_s=0.0)
    assert by_number.fabric == TWO and by_number.demand_bytes.tolist() == [[0, 2], [1, 0]]
    with pytest.raises(om.InputError, match="same labels in another order"):
        om.Demand.from_matrix(frame[["b", "a"]], delay_s=0.0)
    with pytest.raises(om.InputError, match="names: 2 different ones"):
        om.Demand.from_matrix(frame.to_numpy(), delay_s=0.0, names=["a", "a"])


def test_ticks_survive_the_way_to_seconds_and_back() -> None:
    """Sixteen digits are too many for floats to tell neighbours apart: they are rounded."""
    demand = np.array([[0.0, 0.6009611086345273], [0.1285723646794975, 0.0]])
    solution = om.solve(om.Demand(om.IdealSwitch(2), demand, delay_s=0.1), seed=0)
    assert solution.status is om.Status.OPTIMAL
    assert solution.objective == pytest.approx(0.7009611086345273, rel=1e-11)


@pytest.mark.parametrize("rows", [[[0, 1], [1e7, 0]], [[0, 1.5], [33333333.333, 0]]])
def test_a_line_of_too_many_delays_is_refused(rows: list[list[float]]) -> None:
    """A rate that was forgotten, or a delay in ns: the message names the ratio."""
    expected = r"takes .*e\+07 s at rate_bytes_per_s = 1, which is .*e\+16 times delay_s = 1e-09 s"
    with pytest.raises(om.InputError, match=expected):
        om.Demand.from_matrix(rows, delay_s=1e-9)
    with pytest.raises(om.InputError, match=expected):
        om.schedule(rows, 1e-9)
    with pytest.raises(om.InputError, match=r"times quantum_s = 1e-09 s"):
        om.Demand.from_matrix(rows, delay_s=1e-8, quantum_s=1e-9)


@pytest.mark.parametrize("exponent", [13, 14, 15, 15.9, 15.95])
def test_what_is_accepted_is_solved(exponent: float) -> None:
    """Up to the largest ratio that is allowed, answers pass the replay."""
    problem = om.Demand.from_matrix([[0, 1.25], [1e-9 * 10**exponent, 0]], delay_s=1e-9)
    solution = om.solve(problem, "solstice", seed=0)
    assert solution.objective is not None


def test_a_circuit_of_days_is_remarked_on() -> None:
    matrix = [[0, 4e7], [3e7, 0]]
    (remark,) = om.Demand.from_matrix(matrix, delay_s=1e-5).remarks()
    assert "463 days at rate_bytes_per_s = 1" in remark
    assert "--rate" in remark
    assert om.Demand.from_matrix(matrix, delay_s=1e-5, rate_bytes_per_s=1e9).remarks() == ()
    assert om.Demand.from_matrix(np.zeros((2, 2)), delay_s=1.0).remarks() == ()


# Models of traffic send nothing from a port to itself, unless they are asked to.


@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("name", list(MODELS))
def test_the_diagonal_is_empty(name: str, n: int) -> None:
    options = {"top": 1} if name == "zipf-moe" else {}
    for seed in range(20):
        demand = MODELS[name](n, np.random.default_rng(seed), **options)
        assert not demand.diagonal().any()


@pytest.mark.parametrize("n", [2, 3, 8])
def test_lines_keep_their_sum_and_all_pairs_occur(n: int) -> None:
    total = np.zeros((n, n))
    for seed in range(50):
        demand = permutations(n, np.random.default_rng(seed))
        sums = {*demand.sum(axis=0), *demand.sum(axis=1)}
        assert len(sums) == 1
        total += demand
    assert (total > 0).sum() == n * (n - 1)


def test_own_ports_are_served_when_asked_for() -> None:
    rng = np.random.default_rng(0)
    assert permutations(4, rng, own_ports=True).diagonal().any()
    assert solstice(4, rng, own_ports=True).diagonal().any()
    assert not solstice(4, rng, own_ports=True, mutual=True).diagonal().any()


# Matrices whose lines agree to rounding: ticks in which they agree exactly.


def mixture(seed: int, n: int = 6, terms: int = 4, *, both_ways: bool = False) -> Any:
    """Add up random permutations by random weights; involutions without fixed ports, if asked."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(terms))
    matrix = np.zeros((n, n))
    for weight in weights:
        order = rng.permutation(n)
        partner = order
        if both_ways:
            partner = np.empty(n, dtype=int)
            partner[order[0::2]], partner[order[1::2]] = order[1::2], order[0::2]
        matrix[np.arange(n), partner] += weight
    return matrix


@pytest.mark.parametrize(
    "matrix",
    [
        [[0.1] * 10] * 10,
        mixture(0),
        mixture(1) * 1e9,
        np.array([[7, 2, 1], [2, 1, 7], [1, 7, 2]]) / 3,
    ],
    ids=["tenths", "mixture", "large", "thirds"],
)
def test_a_doubly_stochastic_matrix_of_floats_is_accepted(matrix: Any) -> None:
    problem = om.Demand(om.IdealSwitch(len(matrix)), matrix, objective="matchings")
    sums = np.concatenate([problem.ticks.sum(axis=0), problem.ticks.sum(axis=1)])
    assert len(set(sums.tolist())) == 1
    assert (
        np.abs(problem.ticks * problem.tick_s / np.max(matrix) - matrix / np.max(matrix)).max()
        < 1e-11
    )
    solution = om.solve(problem, seed=0)
    report = om.verify(problem, solution)
    assert report.ok
    rounded = "demands were rounded to ticks of" in " ".join(report.notes)
    assert rounded == (not problem.exact)


def test_the_tick_divides_the_delay() -> None:
    problem = om.Demand(om.IdealSwitch(6), mixture(2), objective="matchings", delay_s=1 / 7)
    assert problem.delay_ticks * problem.tick_s == pytest.approx(1 / 7, rel=1e-12)
    assert om.solve(problem, seed=0).schedule is not None


def test_bidirectional_ports_keep_both_directions_alike() -> None:
    matrix = mixture(3, both_ways=True)
    problem = om.Demand(om.HexMesh(3, 3, ports=6), matrix, objective="matchings")
    assert (problem.ticks == problem.ticks.T).all()
    assert len(set(problem.ticks.sum(axis=0).tolist())) == 1
    assert (problem.ticks[matrix == 0] == 0).all()


@pytest.mark.parametrize(
    ("matrix", "quantum_s"),
    [
        ([[1, 2], [2, 1.01]], None),
        ([[1, 2], [2, 1 + 1e-7]], None),
        ([[10**12, 0], [0, 10**12 + 1]], None),
        ([[3, 1], [1, 2]], 1.0),
        ([[0.35, 0.65], [0.65, 0.45]], 0.01),
    ],
)
def test_lines_that_really_differ_are_refused(matrix: Any, quantum_s: float | None) -> None:
    with pytest.raises(om.InputError, match="equal sums"):
        om.Demand(om.IdealSwitch(2), matrix, objective="matchings", quantum_s=quantum_s)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 12), st.integers(0, 7))
def test_lines_agree_exactly(seed: int, n: int, terms: int, digits: int) -> None:
    matrix = mixture(seed, n, terms)
    quantum = 10.0**-digits if digits else None
    scaled = scale(matrix, 1.0, 0.0, 0.0, quantum)
    evened = even_out(scaled, matrix, quantum_s=quantum)
    if evened is scaled and digits:
        return  # so coarse that no entry is left to correct
    sums = np.concatenate([evened.demand.sum(axis=0), evened.demand.sum(axis=1)])
    assert len(set(sums.tolist())) == 1
    assert (evened.demand >= 0).all()
    assert (evened.demand[matrix == 0] == 0).all()


def test_bidirectional_circuits_carry_the_larger_direction_beside_budgets_too() -> None:
    """The pair of ports 0 and 2, which is over its budget, has no demand, or stands as 0."""
    losses_db = [[0.0, 1.0, 9.0], [1.0, 0.0, 1.0], [9.0, 1.0, 0.0]]
    switch = om.IdealSwitch(3, bidirectional=True, loss_db=losses_db, budget_db=[4.0] * 3)
    for over_budget in (0.0, 5.0):
        demand = [[0.0, 1.0, over_budget], [9.0, 0.0, 1.0], [0.0, 9.0, 0.0]]
        problem = om.Demand(switch, demand, delay_s=1.0, packet_bytes_per_s=0.1)
        assert problem.ticks.tolist() == [[0, 9, 0], [9, 0, 9], [0, 9, 0]]


def test_lines_beside_packets_are_bounded_at_once() -> None:
    """Number by number of partners, 1,024 ports took 1.6 s, far beyond short limits."""
    problem = demand(np.ones((1024, 1024)), delay_s=1.0, packet_bytes_per_s=0.1)
    began_s = time.process_time()
    bound_lines(problem)
    assert time.process_time() - began_s < 0.5
