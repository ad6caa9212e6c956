"""Figures of traffic: demands, controllers, sharing, sweeps and jobs on one fabric."""

from __future__ import annotations

from typing import Any

import numpy as np

import optmatch as om
from drawing.tools import (
    AMBER,
    BLUE,
    FAINT,
    INK,
    PALE,
    PALE_AMBER,
    PALE_BLUE,
    Sketch,
    chart,
    new_chart,
    sketch,
)


def small_demand() -> om.Demand:
    """Return a demand of four ports in seconds of a circuit."""
    matrix = [[0, 6, 2, 1], [3, 0, 5, 0], [1, 2, 0, 6], [5, 1, 1, 0]]
    return om.Demand.from_matrix(matrix, delay_s=0.5)


@chart
def demand_slots() -> Any:
    """Draw circuits of a demand over time, with the bound."""
    from optmatch.plotting import plot_gantt

    figure, ax = new_chart(2.9)
    solution = om.solve(small_demand(), seed=0, time_limit_s=0.5)
    plot_gantt(solution, ax=ax)
    ax.set_title("in a bar: the destination; pale: nothing left to send")
    ax.legend().remove()
    ax.axvline(solution.lower_bound, color=INK, ls="--", lw=1)
    return figure


@sketch
def demand_line() -> Sketch:
    """Draw the time of the busiest port, which bounds every schedule."""
    drawing = Sketch(
        150, "The busiest row of a demand, its delays, and a schedule that takes longer"
    )
    left, unit = 74, 24
    drawing.words(66, 44, "port 0", side="end", bold=True, size=12)
    drawing.words(70, 104, "a schedule", side="end", size=12)
    place = float(left)
    for length, partner in ((6, "1"), (2, "2"), (1, "3")):
        drawing.box(place, 30, 0.5 * unit, 28, fill=PALE_AMBER, radius=0)
        place += 0.5 * unit
        drawing.box(place, 30, length * unit, 28, f"{partner}", fill=PALE_BLUE, radius=0)
        place += length * unit
    drawing.line((place, 12), (place, 128), dashed=True)
    drawing.words(place - 4, 12, "bound: 10.5 s", side="end", size=12)
    drawing.box(left, 90, 11 * unit, 28, "11 s", fill=PALE, radius=0)
    drawing.words(left, 140, "yellow: 0.5 s before each of three circuits", side="start", size=12)
    return drawing


@chart
def demand_left() -> Any:
    """Draw what is left of a demand at three times."""
    from optmatch.plotting import left_bytes

    solution = om.solve(small_demand(), seed=0, time_limit_s=0.5)
    end_s = solution.objective
    assert isinstance(end_s, float)
    times_s = (0.0, end_s / 2, end_s)
    figure, axes = new_chart(2.3, ncols=3)
    for ax, time_s, left in zip(axes, times_s, left_bytes(solution, times_s), strict=True):
        ax.imshow(np.ma.masked_equal(left, 0), cmap="cividis", vmin=0, vmax=6)
        for (source, destination), amount in np.ndenumerate(left):
            if amount:
                ink = "white" if amount < 4 else INK
                ax.text(destination, source, f"{amount:g}", ha="center", va="center", color=ink)
        ax.set_xticks(range(4))
        ax.set_yticks(range(4))
        ax.set_title(f"at {time_s:g} s:\n{left.sum():g} s left")
        ax.set_xlabel("destination")
    axes[0].set_ylabel("source")
    return figure


@sketch
def scheduling_loop() -> Sketch:
    """Draw a controller in the loop of a rolling schedule."""
    drawing = Sketch(190, "Demand arrives in a queue, and slots are committed one by one")
    drawing.box(10, 60, 84, 60, "traffic\narrives", fill=PALE)
    drawing.box(138, 60, 112, 60, "queue of\nRollingSchedule", fill=PALE_BLUE, size=12)
    drawing.box(310, 60, 72, 60, "switch", fill=PALE_AMBER)
    drawing.line((94, 90), (136, 90), arrow=True)
    drawing.words(115, 76, "add", size=12)
    drawing.line((250, 80), (308, 80), arrow=True)
    drawing.words(279, 66, "next_slot", size=11)
    drawing.line((340, 120), (340, 156), (198, 156), (198, 122), arrow=True)
    drawing.words(246, 172, "advance: what was carried leaves the queue", size=12)
    drawing.words(195, 24, "while demand goes on arriving", size=12, ink=FAINT)
    return drawing


@chart
def scheduling_queue() -> Any:
    """Draw what waits in a rolling schedule, while demand arrives and slots serve it."""
    rng = np.random.default_rng(0)
    rolling = om.RollingSchedule(om.IdealSwitch(8), delay_s=0.2)
    times_s = [0.0]
    queued_s = [0.0]
    for second in range(24):
        # For 16 seconds six flows arrive in each; then the queue is served until it is empty.
        matrix = np.zeros((8, 8))
        for _ in range(6 if second < 16 else 0):
            source, destination = rng.choice(8, 2, replace=False)
            matrix[source, destination] += float(rng.integers(1, 4)) / 2
        rolling.add(matrix)
        times_s.append(max(float(second), rolling.now_s))
        queued_s.append(float(rolling.figures()["queued_bytes"]))
        while rolling.now_s < second + 1:
            slot = rolling.next_slot()
            end_s = float(second + 1) if slot is None else slot.end_s
            rolling.advance(max(end_s, rolling.now_s))
            times_s.append(rolling.now_s)
            queued_s.append(float(rolling.figures()["queued_bytes"]))
    figure, ax = new_chart(2.6)
    ax.plot(times_s, queued_s, color=BLUE)
    ax.axvline(16, color=FAINT, ls=":", lw=1)
    ax.text(15.6, 0.5, "last arrival", ha="right")
    ax.set_ylim(bottom=0)
    ax.set_xlabel("time, s")
    ax.set_ylabel("in the queue,\nseconds of circuits")
    return figure


@sketch
def sharing_classes() -> Sketch:
    """Draw resources in classes, jobs in groups, and who may serve whom."""
    drawing = Sketch(208, "Resources of one class may serve the same jobs")
    drawing.words(74, 16, "classes of resources", bold=True, size=12)
    drawing.words(330, 16, "jobs", bold=True, size=12)
    classes = (("100 Gbit/s: 1", 36), ("400 Gbit/s: 2", 90), ("800 Gbit/s: 1", 144))
    for name, top in classes:
        drawing.box(10, top, 120, 38, name, fill=PALE_BLUE, size=12)
    jobs = (
        ("job 0 wants 2\nof 400 or more", 46, (90, 144)),
        ("job 1 wants 3\nof 100 or more", 124, (36, 90, 144)),
    )
    for name, top, tops in jobs:
        drawing.box(266, top, 116, 44, name, fill=PALE_AMBER, size=12)
        for class_top in tops:
            drawing.curve((130, class_top + 19), (266, top + 22), ink=FAINT)
    drawing.words(195, 194, "a cut between the two bounds what all jobs get", size=12)
    return drawing


@chart
def sharing_policies() -> Any:
    """Draw what policies serve of the same pool, beside the optimum."""
    from optmatch.sweeps import Library

    problem: Any = Library().problem("sharing/devices-200")
    names = ("max-flow", "irs", "srsf", "fifo", "random")
    served = []
    for name in names:
        answer: Any = om.solve(problem, name, seed=0).answer
        served.append(int((answer.job_of >= 0).sum()))
    figure, ax = new_chart(2.5)
    ax.barh(names, served, color=[BLUE, *[AMBER] * 4])
    for place, number in enumerate(served):
        ax.text(number + 1, place, str(number), va="center")
    wanted = int(problem.jobs.demand.sum())
    ax.set_xlim(0, 1.12 * max(served))
    ax.invert_yaxis()
    ax.set_xlabel(f"resources that serve a job; {wanted} are wanted, 200 are there")
    return figure


@sketch
def sweeps_flow() -> Sketch:
    """Draw the way from a spec to a report."""
    drawing = Sketch(
        170, "A sweep: a spec becomes tasks, workers solve them, a store keeps the rows"
    )
    drawing.box(8, 56, 74, 54, "spec.toml", fill=PALE, size=12)
    for number in range(3):
        drawing.box(122, 22 + 44 * number, 88, 34, f"worker {number}", fill=PALE_AMBER, size=12)
        drawing.line((82, 83), (120, 39 + 44 * number), arrow=True)
        drawing.line((210, 39 + 44 * number), (246, 83), arrow=True)
    drawing.box(248, 56, 64, 54, "store", fill=PALE_BLUE, size=12)
    drawing.line((312, 83), (330, 83), arrow=True)
    drawing.box(332, 56, 52, 54, "report", fill=PALE, size=12)
    drawing.words(195, 158, "what is in the store is not run again", size=12)
    return drawing


@chart
def sweeps_gap() -> Any:
    """Draw gaps of two methods of a small sweep, by the size of the problem."""
    sizes = (4, 8, 16, 32)
    figure, ax = new_chart(2.6)
    for method, ink in (("solstice", AMBER), ("portfolio", BLUE)):
        gaps = []
        for size in sizes:
            rng = np.random.default_rng(size)
            matrix = rng.pareto(1.5, (size, size)) * 1e-4
            np.fill_diagonal(matrix, 0)
            problem = om.Demand(om.IdealSwitch(size), matrix, delay_s=2e-5)
            gaps.append(100 * om.solve(problem, method, seed=0).gap)
        ax.plot(sizes, gaps, "o-", color=ink, label=method)
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.set_ylim(bottom=0)
    ax.set_xlabel("ports")
    ax.set_ylabel("gap to the lower bound, %")
    ax.legend(frameon=False)
    return figure
