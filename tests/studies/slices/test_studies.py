"""Studies of racks: figures against simple counts, traces, commands, interrupts."""

import csv
import io
import json
import math
import signal
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.cli import main
from optmatch.model import Event
from optmatch.plotting import study_data
from optmatch.problems import Allocation
from optmatch.solvers.slices.pod import Pod
from optmatch.studies.outcome import estimate
from optmatch.studies.reroutes import (
    cover_failures,
    distribution_of_server,
    measure_blast,
    state_of_rack,
    study_blast,
    study_spares,
)
from optmatch.studies.slices.arrivals import Arrival, draw_arrivals, read_arrivals
from optmatch.studies.slices.replay import RULES, count_usable, replay
from optmatch.studies.slices.tables import fill_fragmented, study_slices
from optmatch.testing import slice_problems
from tests.helpers.command import start
from tests.helpers.exhaustive.slices import best_slice

few = settings(max_examples=20, deadline=None, database=None)
SMALL = om.RackFabric(racks=2)


def test_requests_are_counted_and_slices_leave_in_time() -> None:
    arrivals = [
        Arrival(0.0, (2, 4, 4), 10.0),
        Arrival(1.0, (2, 4, 4), 2.0),
        Arrival(2.0, (2, 2, 1), 1.0),
        Arrival(4.0, (2, 4, 4), 1.0),
        Arrival(8.0, (4, 4, 4), 1.0),
    ]
    found = replay(om.RackFabric(), arrivals, "optical")
    assert found.requests == {(2, 4, 4): 3, (2, 2, 1): 1, (4, 4, 4): 1}
    assert found.rejected == {(2, 2, 1): 1, (4, 4, 4): 1}
    assert found.utilisation == pytest.approx((8 * 8 + 2 * 8 + 1 * 8) / (8 * 16))
    assert found.fragmentation == 0.0
    assert found.unusable == pytest.approx((0 + 0 + 0 + 1) / 4)  # nothing is free at the third


def test_fragmentation_is_what_blocks_cannot_use() -> None:
    rack = om.RackFabric()
    odd = rack.server_coordinates[:, 1:].sum(axis=1) % 2
    arrivals = [Arrival(0.0, (2, 2, 1), 9.0 if stays else 1.0) for stays in odd]
    arrivals.append(Arrival(2.0, (2, 2, 4), 1.0))
    found = replay(rack, arrivals, "first-fit", probe=True)
    assert found.rejected == found.only_scattered == {(2, 2, 4): 1}
    assert found.fragmentation == found.unusable == 1 / 17  # of the last request, all


def test_joined_racks_use_what_is_left_over() -> None:
    halves = [Arrival(0.0, (2, 4, 4), stays) for stays in (9.0, 1.0, 9.0, 1.0)]
    arrivals = [*halves, Arrival(2.0, (4, 4, 4), 1.0), Arrival(2.5, (2, 2, 1), 1.0)]
    within, joined = (replay(SMALL, arrivals, rule) for rule in ("optical", "optical-joined"))
    assert within.rejected == {(4, 4, 4): 1}
    assert (within.fragmentation, within.unusable) == (0.0, 1 / 6)  # of the fifth, all servers
    assert (within.spanning, within.racks) == (0.0, 0.0)
    assert joined.rejected == {(2, 2, 1): 1}  # nothing is free then
    assert (joined.fragmentation, joined.unusable) == (0.0, 0.0)
    assert (joined.spanning, joined.racks) == (1 / 5, 2.0)


@given(slice_problems(tiny=True))
@settings(few, max_examples=10)
def test_a_server_of_joined_racks_is_usable_if_a_slice_can_take_it(
    problem: om.SliceAllocation,
) -> None:
    if not problem.fabric.joined or not problem.slice_shapes:
        return
    pod, plans = Pod.of(problem), list(problem.slice_shapes)
    free = problem.free_servers.tolist()
    held = []
    for server in free if len(free) >= plans[0].n_slots else ():
        for others in combinations(sorted(set(free) - {server}), plans[0].n_slots - 1):
            away = tuple(set(free) - {server, *others}) + problem.reserved
            if best_slice(replace(problem, reserved=away)) is not None:
                held.append(server)
                break
    assert [server for server in free if pod.holds(server, plans)] == held
    rng = np.random.default_rng(0)
    usable, tried = count_usable(pod, plans, lambda *_: True, rng=rng, samples=len(free))
    assert usable == pytest.approx(len(held))
    assert tried == (len(free) if len(free) >= plans[0].n_slots else 0)
    blocks = count_usable(pod, plans)[0] if tried else 0
    once = count_usable(pod, plans, lambda *_: True, rng=rng)[0]
    assert once in (blocks, tried)


@given(st.integers(0, 2**32), st.sampled_from(["first-fit", "optical", "optical-joined"]))
@few
def test_figures_are_parts_of_a_whole(seed: int, rule: str) -> None:
    arrivals = draw_arrivals(SMALL, 40, np.random.default_rng(seed), load=1.2)
    found = replay(SMALL, arrivals, rule, warm_up=0.25)
    assert sum(found.requests.values()) == 30
    assert 0 <= found.fragmentation <= found.unusable <= 1
    assert 0 <= found.utilisation <= 1
    assert all(found.rejected.get(shape, 0) <= count for shape, count in found.requests.items())


def test_the_load_of_arrivals_is_what_was_asked_for() -> None:
    """Servers times stays over time, on average, within a few per cent."""
    arrivals = draw_arrivals(SMALL, 20_000, np.random.default_rng(0), load=0.7)
    slots = {(2, 2, 1): 1, (2, 2, 2): 2, (2, 2, 4): 4, (2, 4, 4): 8, (4, 4, 4): 16}
    work = sum(slots[arrival.shape] * arrival.duration for arrival in arrivals)
    assert work / arrivals[-1].time / SMALL.n_servers == pytest.approx(0.7, rel=0.05)


def test_a_fragmented_pod_holds_more_scattered_slices() -> None:
    fabric = om.RackFabric(racks=8)
    found = {
        rule: fill_fragmented(fabric, (2, 4, 4), rule, np.random.default_rng(0), free=0.6)
        for rule in RULES
    }
    whole = found["optical-joined"]
    assert found["optical"].slices < whole.slices == whole.possible == round(0.6 * 128) // 8
    assert whole.unusable < found["optical"].unusable
    assert found["first-fit"].possible == found["optical"].possible
    assert found["first-fit"].slices < found["optical"].slices <= found["optical"].possible
    assert found["optical"].unusable < found["first-fit"].unusable


@given(
    st.integers(1, 4),
    st.floats(0, 1, allow_subnormal=False),
    st.floats(0, 1, allow_subnormal=False),
)
@few
def test_the_chips_down_in_a_server(size: int, alone: float, whole: float) -> None:
    down = distribution_of_server(size, alone, whole)
    assert down.sum() == pytest.approx(1)
    for count in range(size):
        binomial = math.comb(size, count) * alone**count * (1 - alone) ** (size - count)
        assert down[count] == pytest.approx((1 - whole) * binomial, abs=1e-12)


def test_spares_against_drawn_racks() -> None:
    """The exact distribution and 40,000 racks drawn at random agree."""
    options = {"chip_failures_per_year": 2.0, "server_failures_per_year": 0.5, "repair_days": 7.0}
    rng = np.random.default_rng(0)
    alone, whole = (r * 7 / 365.25 / (1 + r * 7 / 365.25) for r in (2.0, 0.5))
    broken = rng.random((40_000, 16)) < whole
    chips = (rng.random((40_000, 16, 4)) < alone) | broken[:, :, None]
    for unit, down in (
        ("chip", chips.sum(axis=(1, 2))),
        ("server", chips.any(axis=2).sum(axis=1)),
    ):
        for spares in (1, 3):
            found = cover_failures(om.RackFabric(), spares, unit=unit, **options)
            assert found.covered == pytest.approx((down <= spares).mean(), abs=0.01)
            some = down[down > 0]
            assert found.covered_failures == pytest.approx((some <= spares).mean(), abs=0.02)
            assert found.conservative == pytest.approx((down < spares).mean(), abs=0.01)


def test_four_chips_or_two_servers_cover_most_failures() -> None:
    """More than 95 % of the time that something is down, under the stated rates."""
    rack = om.RackFabric()
    assert cover_failures(rack, 4).covered_failures > 0.95
    assert cover_failures(rack, 2, unit="server").covered_failures > 0.95
    nothing = cover_failures(rack, 0, chip_failures_per_year=0, server_failures_per_year=0)
    assert (nothing.covered, nothing.covered_failures) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"spares": -1}, "spares = -1: must be >= 0"),
        ({"spares": 65}, "spares = 65: a rack has 64 chips"),
        ({"spares": 1, "unit": "rack"}, "unit = 'rack': chip or server"),
        ({"spares": 1, "repair_days": -1.0}, "repair_days = -1: must be >= 0"),
    ],
)
def test_bad_spares_are_named(change: dict[str, Any], text: str) -> None:
    with pytest.raises(om.InputError, match=text):
        cover_failures(om.RackFabric(), **change)


def test_blast_radii_are_of_racks_by_themselves() -> None:
    with pytest.raises(om.InputError, match="joined = True: blast radii"):
        measure_blast(om.RackFabric(joined=True), [])


def test_the_blast_radius_of_a_torus() -> None:
    shapes: list[tuple[int, int, int]] = [(2, 4, 4), (2, 2, 1), (1, 1, 1)]
    for shape, neighbours in zip(shapes, (5, 2, 0), strict=True):
        found = measure_blast(om.RackFabric(), [Arrival(0.0, shape, 1.0)])
        assert (found.spliced, found.spliced_most) == (neighbours, neighbours)
        assert found.migrated == found.racks == np.prod(shape)
        assert found.circuits == 2 * neighbours


def test_blast_radii_are_of_verified_repairs() -> None:
    """Each chip of two racks fails in the running state, and `greedy` gets over it."""
    rng = np.random.default_rng(3)
    arrivals = draw_arrivals(SMALL, 20, rng)
    pod, chips, circuits, partners = Pod(SMALL, reserved=(15, 31)), 0, 0, 0
    placed: list[list[Allocation]] = [[], []]
    for arrival in arrivals:
        slice_ = pod.allocate(arrival.shape, "optical")
        if slice_ is not None:
            placed[int(slice_.servers[0]) // 16].append(slice_)
    for number, slices in enumerate(placed):
        state = state_of_rack(replace(SMALL, racks=1), number, slices)
        for chip in np.unique(state.circuits // 6).tolist():
            problem = replace(state, failed_chips=(chip,))
            answer = om.solve(problem, "greedy", seed=0).answer  # verified
            ends = {*(state.circuits[answer.changed] // 6).ravel().tolist()}
            chips, circuits = chips + 1, circuits + len(answer.changed)
            partners += len(ends - {chip})
    found = measure_blast(SMALL, arrivals)
    assert found.chips == chips > 60
    assert (found.circuits, found.spliced) == pytest.approx((circuits / chips, partners / chips))
    assert (found.disturbed, found.unspliced) == (0.0, 0)


def test_a_chip_without_a_spare_takes_its_slice_along() -> None:
    tiny = om.RackFabric((2, 2, 1), (2, 2, 1))
    found = measure_blast(tiny, [Arrival(0.0, (2, 2, 1), 1.0)])
    assert (found.chips, found.unspliced, found.spliced, found.migrated) == (4, 4, 4.0, 4.0)


def test_an_interval_holds_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        found = estimate(rng.normal(3.0, 1.0, 5).tolist())
        held += abs(found.mean - 3.0) <= found.half_width
    assert 0.92 <= held / 400 <= 0.98
    assert estimate([2.0]) == (2.0, 0.0, 1)
    assert math.isnan(estimate([math.nan]).mean)


# -- traces and commands -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,shape\n", "line 1: column 'arrival_time' is missing"),
        ("arrival_time,shape,duration\n0,2x2,1\n", "line 2: .*three sides in chips as 2x2x4"),
        ("arrival_time,shape,duration\nnow,2x2x1,1\n", "line 2: could not convert"),
        ("arrival_time,shape,duration\n0,2x2x1,0\n", "line 2: .*a stay is > 0"),
        ("arrival_time,shape,duration\n0,2x2x1\n", "line 2"),
    ],
)
def test_a_broken_trace_is_named(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text, "utf-8")
    with pytest.raises(om.FormatError, match=message):
        read_arrivals(file)
    assert CliRunner().invoke(main, ["study", "slices", "--trace", str(file)]).exit_code == 2


def test_a_trace_is_replayed_in_order_of_time(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("duration,shape,arrival_time\n1,2x2x1,5\n2,2X2X4,0.5\n", "utf-8")
    assert read_arrivals(file) == [Arrival(0.5, (2, 2, 4), 2.0), Arrival(5.0, (2, 2, 1), 1.0)]
    done = run("slices", "--racks", "1", "--trace", str(file), "--warm-up", "0", "--json")
    shapes = json.loads(done.stdout)["tables"]["shapes"]
    assert {(row["shape"], row["requests"]) for row in shapes} == {("2x2x1", 1), ("2x2x4", 1)}


def run(*words: str) -> Any:
    """Run `optmatch study`."""
    return CliRunner().invoke(main, ["study", *words])


COMMANDS = {
    "slices": (
        *("--racks", "2", "--requests", "20", "--runs", "2", "-q"),
        *("--rule", "first-fit", "--rule", "optical-joined"),
    ),
    "spares": ("--most", "2"),
    "blast-radius": ("--runs", "2", "--requests", "10", "-q"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_study_as_table_csv_json_and_picture(name: str, tmp_path: Path) -> None:
    """All show the same rows; a second run gives the same bytes."""
    done = run(name, *COMMANDS[name], "--json")
    assert done.exit_code == 0, done.output
    tree = json.loads(done.stdout)
    assert (tree["format"], tree["study"], tree["complete"]) == ("optmatch/study/1", name, True)
    assert run(name, *COMMANDS[name], "--json").stdout == done.stdout
    text = run(name, *COMMANDS[name], "--csv").stdout
    rows = [row for row in csv.reader(io.StringIO(text)) if row[0] != "table"]
    assert len(rows) == sum(map(len, tree["tables"].values()))
    picture = tmp_path / "study.svg"
    done = run(name, *COMMANDS[name], "-o", str(picture))
    assert picture.stat().st_size > 1000
    for table in tree["tables"]:
        assert table in done.stdout
    assert run(name, *COMMANDS[name], "-o", str(picture)).exit_code == 2  # it is there
    for panel in study_data(name, tree["tables"]):
        assert all(len(values) == len(panel.labels) for values in panel.series.values())


@pytest.mark.parametrize(
    "words",
    [
        ("slices", "--mix", "2x2=1"),
        ("slices", "--mix", "2x2x1=a"),
        ("slices", "--mix", "8x8x8=1", "--racks", "1"),
        ("slices", "--mix", "2x2x1=0", "--racks", "1"),
        ("slices", "--load", "0"),
        ("slices", "--chips", "4x4"),
        ("spares", "--repair-days", "-1"),
        ("spares", "--csv", "--json"),
        ("spares", "-o", "no/such/folder/x.png"),  # before any work
        ("spares", "-o", "x.gif"),
    ],
)
def test_bad_options_are_refused(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert done.stdout == ""


def test_reductions_compare_the_same_requests_run_by_run() -> None:
    options: dict[str, Any] = {"requests": 40, "load": 1.0, "runs": 2, "warm_up": 0.0}
    rows = {row["rule"]: row for row in study_slices(SMALL, **options).tables["rules"]}
    parts = []
    for child in np.random.SeedSequence(0).spawn(2):
        arrivals = draw_arrivals(SMALL, 40, np.random.default_rng(child.spawn(2)[0]), load=1.0)
        first, joined = (replay(SMALL, arrivals, r) for r in ("first-fit", "optical-joined"))
        parts.append(1 - joined.unusable / first.unusable)
    expected = estimate(parts)
    joined_row = rows["optical-joined"]
    assert joined_row["unusable_reduction"] == pytest.approx(expected.mean)
    assert joined_row["unusable_reduction_half_width"] == pytest.approx(expected.half_width)
    assert rows["first-fit"]["unusable_reduction"] == 0.0


def test_an_interrupt_keeps_what_was_done() -> None:
    """In the middle of the second run: the first one is in the tables."""
    heard: list[Event] = []

    def interrupt(event: Event) -> None:
        heard.append(event)
        if sum(getattr(event, "done", 1) == 0 for event in heard) > 5:
            raise KeyboardInterrupt

    found = study_slices(
        SMALL, requests=60, runs=5, rules=("first-fit",), mix={(2, 2, 1): 1}, on_event=interrupt
    )
    assert not found.complete
    assert 1 <= found.tables["rules"][0]["runs"] < 5
    stopped = study_blast(SMALL, requests=5, on_event=lambda event: _stop())
    assert (stopped.complete, stopped.tables["blast"]) == (False, [])
    assert study_spares(SMALL, most=1).complete


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for one process there")
def test_ctrl_c_keeps_the_runs_until_then(tmp_path: Path) -> None:
    """Exit code 130, a word about it, and the tables and the picture of what was done."""
    picture = tmp_path / "part.svg"
    sizes = ["--requests", "20", "--racks", "2", "--runs", "10000"]
    with start("study", "slices", *sizes, "--json", "-o", str(picture)) as running:
        assert running.stderr is not None
        while " 0 of " in running.stderr.readline():
            pass  # nothing is done yet
        running.send_signal(signal.SIGINT)
        output, rest = running.communicate(timeout=60)
    assert running.returncode == 130, rest
    assert "interrupted: the tables are of what was done" in rest
    assert "Traceback" not in rest
    tree = json.loads(output)
    assert not tree["complete"]
    assert tree["tables"]["rules"]
    assert picture.stat().st_size > 1000


def test_ctrl_c_before_anything_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optmatch.studies.reroutes.measure_blast", lambda *_: _stop())
    picture = tmp_path / "none.svg"
    words = ["study", "blast-radius", "--requests", "5", "-o", str(picture)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 130
    assert "interrupted: nothing was done" in result.stderr
    assert not picture.exists()


def _stop() -> None:
    raise KeyboardInterrupt
