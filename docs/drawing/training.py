"""Figures of training jobs: rails, racks, slices and collectives."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

import optmatch as om
from drawing.tools import (
    AMBER,
    BLUE,
    FAINT,
    GREEN,
    INK,
    PALE,
    PALE_AMBER,
    PALE_BLUE,
    RED,
    Sketch,
    chart,
    new_chart,
    read_number,
    read_numbers,
    read_rows,
    sketch,
)

DELAYS_MS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


def small_job(delay_s: float = 0.005) -> om.RailJob:
    """Return a job of eight GPUs in two stages of two replicas."""
    model = om.TransformerModel(
        layers=8, hidden=4096, heads=32, sequence=2048, vocabulary=32000, ffn=16384
    )
    return om.RailJob(
        parallelism=om.Parallelism(dp=2, tp=2, pp=2),
        network=om.RailNetwork(gpus_per_server=2, delay_s=delay_s),
        workload=om.Workload(model=model, batch=8),
    )


@sketch
def rails_topology() -> Sketch:
    """Draw servers of which GPU r is attached to rail r."""
    drawing = Sketch(210, "Four servers of four GPUs, and a rail for each place in a server")
    inks = (BLUE, GREEN, AMBER, RED)
    for server in range(4):
        left = 8 + 96 * server
        drawing.box(left, 14, 88, 76, fill=PALE)
        drawing.words(left + 44, 28, f"server {server}", size=12)
        for gpu in range(4):
            x = left + 13 + 21 * gpu
            drawing.box(x - 9, 44, 19, 26, str(gpu), fill=PALE_BLUE, size=12)
            drawing.line((x, 70), (x, 118 + 22 * gpu), ink=inks[gpu])
    for rail, ink in enumerate(inks):
        drawing.box(8, 112 + 22 * rail, 376, 14, fill="white", line=ink, radius=7)
        drawing.words(196, 119 + 22 * rail, f"rail {rail}: a switch", size=11, ink=ink)
    return drawing


@sketch
def rails_phases() -> Sketch:
    """Draw what a rail holds in the phases of a step."""
    drawing = Sketch(170, "A rail holds links of the pipeline, then rings, then the links again")
    for phase, (name, pairs, ink) in enumerate(
        (
            ("pipeline", ((0, 1), (2, 3)), BLUE),
            ("data parallel", ((0, 2), (2, 0), (1, 3), (3, 1)), GREEN),
            ("pipeline", ((1, 0), (3, 2)), BLUE),
        )
    ):
        left = 10 + 126 * phase
        drawing.box(left + 20, 30, 98, 112, fill=PALE, line="none", radius=0)
        drawing.box(left, 30, 20, 112, fill=PALE_AMBER, line="none", radius=0)
        drawing.words(left + 69, 16, name, size=12, bold=True)
        for gpu in range(4):
            drawing.dot(left + 36, 48 + 25 * gpu, 5, INK)
            drawing.dot(left + 102, 48 + 25 * gpu, 5, INK)
        for source, destination in pairs:
            start = (left + 40, 48 + 25 * source)
            drawing.curve(start, (left + 98, 48 + 25 * destination), ink=ink, width=2.2)
    drawing.line((10, 152), (382, 152), arrow=True)
    drawing.words(195, 163, "time; yellow: the delay of a change", size=12)
    return drawing


@sketch
def rails_groups() -> Sketch:
    """Draw a group over two servers and two rails, and the groups that do its work."""
    drawing = Sketch(190, "A group of four ranks in two servers, and the groups that do its work")
    for server in range(2):
        top = 20 + 78 * server
        drawing.box(12, top, 150, 56, fill=PALE)
        drawing.words(26, top + 28, f"server {server}", side="start", size=12)
        for gpu in range(2):
            drawing.dot(104 + 38 * gpu, top + 28, 8, BLUE)
        drawing.line((112, top + 28), (134, top + 28), ink=AMBER, width=4)
    for gpu, ink in enumerate((GREEN, GREEN)):
        drawing.line((104 + 38 * gpu, 56), (104 + 38 * gpu, 118), ink=ink, width=4)
    drawing.words(172, 48, "1. reduce-scatter in each server", side="start", size=12, ink=AMBER)
    drawing.words(172, 88, "2. all-reduce on each rail", side="start", size=12, ink=GREEN)
    drawing.words(172, 126, "3. all-gather in each server", side="start", size=12, ink=AMBER)
    drawing.words(195, 174, "phases and plans see these groups of two alone", size=12)
    return drawing


@chart
def rails_step() -> Any:
    """Draw a step of a small job under a policy."""
    from optmatch.plotting import plot_rails

    job = small_job()
    answer: Any = om.solve(job, "on-demand", seed=0).answer
    figure, ax = new_chart(3.6)
    plot_rails(job, answer, ranks=[0, 2, 4, 6], ax=ax)
    ax.set_title("a step, circuits changed on demand")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, frameon=False)
    return figure


@chart
def rails_delays() -> Any:
    """Draw the step of a small job against the delay, by method."""
    figure, ax = new_chart(2.8)
    delays_s = (1e-4, 1e-3, 1e-2, 1e-1)
    for method, ink in (("on-demand", FAINT), ("provisioned", AMBER), ("prefetch", BLUE)):
        steps_ms = []
        for delay_s in delays_s:
            solution = om.solve(small_job(delay_s), method, seed=0, time_limit_s=2)
            assert isinstance(solution.objective, float)
            steps_ms.append(1e3 * solution.objective)
        ax.plot(delays_s, steps_ms, "o-", color=ink, label=method)
    bound = small_job().lower_bound()
    ax.axhline(1e3 * float(bound), color=INK, ls="--", lw=1, label="all links at once")
    ax.set_xscale("log")
    ax.set_xticks(delays_s, ["0.1 ms", "1 ms", "10 ms", "100 ms"])
    ax.set_xlabel("delay of a change of circuits")
    ax.set_ylabel("step, ms")
    ax.legend(frameon=False)
    return figure


@sketch
def rails_policies() -> Sketch:
    """Draw when a change begins under three policies."""
    drawing = Sketch(190, "When the circuits for data parallelism are set up under three policies")
    drawing.words(
        10,
        14,
        "a last message, work inside the server, a collective",
        side="start",
        size=12,
    )
    rows = (("on demand", 250, 290), ("provisioned", 130, 250), ("prefetch", 60, 250))
    for number, (name, change, start) in enumerate(rows):
        top = 34 + 50 * number
        drawing.words(10, top + 12, name, side="start", bold=True, size=12)
        end = 130 if number < 2 else 100
        drawing.box(94, top, end - 94, 24, fill=PALE_BLUE, radius=0)
        drawing.box(130, top, 120, 24, "computes", fill=PALE, radius=0, size=11)
        if number < 2:
            drawing.box(change, top + 26, 40, 12, fill=PALE_AMBER, radius=0)
        else:
            drawing.box(100, top + 26, 40, 12, fill=PALE_AMBER, radius=0)
        drawing.box(start, top, 90, 24, "collective", fill="#cfe8dd", radius=0, size=11)
    drawing.words(195, 182, "yellow: the delay; blue: a message over old circuits", size=12)
    return drawing


@sketch
def rails_forwarding() -> Sketch:
    """Draw data that reach a rank over two circuits and a rank between."""
    drawing = Sketch(150, "Data for rank 2 pass rank 1: no circuit has to be set up")
    places = {0: (60, 60), 1: (195, 60), 2: (330, 60)}
    for rank, (x, y) in places.items():
        drawing.dot(x, y, 18, PALE_BLUE, INK)
        drawing.words(x, y, str(rank), bold=True)
    drawing.line((80, 60), (174, 60), arrow=True, width=3, ink=BLUE)
    drawing.line((215, 60), (309, 60), arrow=True, width=3, ink=BLUE)
    drawing.curve((66, 40), (324, 40), bend=-50, dashed=True, ink=FAINT)
    drawing.words(195, 26, "no circuit", size=12, ink=FAINT)
    drawing.words(127, 80, "a circuit", size=12, ink=BLUE)
    drawing.words(262, 80, "a circuit", size=12, ink=BLUE)
    drawing.words(195, 108, "rank 1 passes on what comes, as it comes:", size=12)
    drawing.words(195, 126, "later by one latency, at the rate of the narrower hop", size=12)
    return drawing


@chart
def rails_figures_mixtral() -> Any:
    """Draw steps of Mixtral on 1,024 GPUs against the delay."""
    rows = read_rows("rails-figures", "| preset, all links |")[6:9]
    names = ("on demand", "provisioned", "prefetch")
    figure, ax = new_chart(2.8)
    for row, name, ink in zip(rows, names, (FAINT, AMBER, BLUE), strict=True):
        ax.plot(DELAYS_MS, read_numbers(row[2:]), "o-", color=ink, label=name)
    all_links = read_number(rows[0][0].split(",", 1)[1])
    ax.axhline(all_links, color=INK, ls="--", lw=1, label="all links")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks((0.001, 0.1, 10, 1000), ["1 µs", "100 µs", "10 ms", "1 s"])
    ax.set_xlabel("delay")
    ax.set_ylabel("step, s")
    ax.legend(frameon=False)
    return figure


@chart
def rails_figures_gaps() -> Any:
    """Draw distance of the best plans of four presets to the time with all links."""
    rows = read_rows("rails-figures", "| preset, all links |")
    figure, ax = new_chart(3.0)
    inks = (BLUE, RED, GREEN, AMBER)
    best = [row for row in rows if row[1] == "`prefetch`"]
    names = [row[0].split(",")[0] for row in rows if row[0]]
    for row, name, ink in zip(best, names, inks, strict=True):
        gaps = [read_number(cell.split("(")[1]) for cell in row[2:]]
        ax.plot(DELAYS_MS, gaps, "o-", color=ink, label=name)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks((0.001, 0.1, 10, 1000), ["1 µs", "100 µs", "10 ms", "1 s"])
    ax.set_xlabel("delay")
    ax.set_yticks((1e-4, 1e-2, 1, 100), ["0.0001", "0.01", "1", "100"])
    ax.set_ylabel("longer than with all links, %")
    ax.legend(frameon=False, loc="upper left")
    ax.set_ylim(top=1e6)
    return figure


@chart
def rails_figures_published() -> Any:
    """Draw published steps beside predicted ones."""
    rows = read_rows("rails-figures", "| step of | published")[:4]
    figure, ax = new_chart(2.7)
    place = np.arange(len(rows))
    ax.barh(
        place - 0.2, [read_number(row[1]) for row in rows], 0.38, color=AMBER, label="published"
    )
    ax.barh(
        place + 0.2, [read_number(row[2]) for row in rows], 0.38, color=BLUE, label="predicted"
    )
    names = ["Llama, 8,192 GPUs", "Llama, 16,384", "Llama, long context", "DeepSeek-V3, 2,048"]
    ax.set_yticks(place, names)
    ax.invert_yaxis()
    ax.set_xlabel("step, s")
    ax.legend(frameon=False, loc="upper right")
    ax.set_xlim(0, 26)
    return figure


@chart
def rails_figures_artifact() -> Any:
    """Draw emulated steps that were not predicted well."""
    rows = read_rows("rails-figures", "| delay, ms | on demand, published")
    delays = [read_number(row[0]) for row in rows]
    figure, ax = new_chart(2.8)
    for column, name, ink, line in (
        (1, "on demand, published", AMBER, "-"),
        (2, "on demand, predicted", AMBER, "--"),
        (3, "provisioned, published", BLUE, "-"),
        (4, "provisioned, predicted", BLUE, "--"),
    ):
        ax.plot(delays, [read_number(row[column]) for row in rows], line, color=ink, label=name)
    ax.set_ylim(0, 21)
    ax.set_xlabel("delay, ms")
    ax.set_ylabel("step, s")
    ax.legend(
        frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), title="Llama 3 8B, 64 GPUs"
    )
    return figure


@chart
def rails_figures_gains() -> Any:
    """Draw what better plans gain in two published cases."""
    rows = read_rows(
        "rails-figures", "| case | delay | on demand | provisioned | `prefetch` | all links | gain"
    )
    figure, axes = new_chart(2.6, ncols=2, sharey=True)
    for ax, first, name in ((axes[0], 0, "H200, dp 2"), (axes[1], 3, "H200, dp 4")):
        case = rows[first : first + 3]
        for column, label, ink in (
            (2, "on demand", FAINT),
            (3, "provisioned", AMBER),
            (4, "prefetch", BLUE),
        ):
            place = np.arange(3) + 0.27 * (column - 3)
            ax.bar(place, [read_number(row[column]) for row in case], 0.26, color=ink, label=label)
        ax.set_xticks(range(3), [row[1] for row in case])
        ax.set_title(name)
        ax.set_xlabel("delay")
    axes[0].set_ylabel("step, s")
    axes[0].legend(frameon=False)
    return figure


@sketch
def racks_rack() -> Sketch:
    """Draw a layer of a rack: servers of four chips, and fibres to their neighbours."""
    drawing = Sketch(220, "One layer of a rack: four servers of four chips, joined by fibres")
    for number in range(4):
        left = 92 + 118 * (number % 2)
        top = 24 + 96 * (number // 2)
        drawing.box(left, top, 74, 66, fill=PALE)
        for chip in range(4):
            x = left + 22 + 30 * (chip % 2)
            y = top + 19 + 28 * (chip // 2)
            drawing.dot(x, y, 11, PALE_BLUE, INK)
            drawing.words(x, y, str(4 * number + chip), size=11)
    for y in (57, 153):
        for shift in (-6, 6):
            drawing.line((166, y + shift), (210, y + shift), ink=BLUE)
        drawing.line((92, y), (70, y), ink=BLUE, dashed=True)
        drawing.line((284, y), (306, y), ink=BLUE, dashed=True)
    for x in (129, 247):
        for shift in (-6, 6):
            drawing.line((x + shift, 90), (x + shift, 120), ink=BLUE)
    drawing.words(62, 57, "round\nthe end", side="end", size=11, middle=True)
    drawing.words(314, 57, "round\nthe end", side="start", size=11, middle=True)
    drawing.words(195, 206, "8 fibres to each neighbour and as many back", size=12)
    return drawing


@sketch
def racks_splice() -> Sketch:
    """Draw a spare that takes over the circuits of a failed chip."""
    drawing = Sketch(190, "Circuits of a failed chip are set up anew to a spare; the others stay")
    chips = {"a": (50, 70), "b": (130, 70), "c": (210, 70), "d": (290, 70)}
    for name, (x, y) in chips.items():
        drawing.dot(x, y, 16, PALE_BLUE, INK)
        drawing.words(x, y, name, bold=True)
    drawing.line((66, 70), (114, 70), width=2.5, ink=FAINT)
    drawing.line((226, 70), (274, 70), width=2.5, ink=RED, dashed=True)
    drawing.line((146, 70), (194, 70), width=2.5, ink=RED, dashed=True)
    drawing.cross(210, 70, 16)
    drawing.dot(210, 140, 16, PALE_AMBER, INK)
    drawing.words(210, 140, "s", bold=True)
    drawing.curve((130, 86), (194, 140), bend=14, width=2.5, ink=GREEN)
    drawing.curve((290, 86), (226, 140), bend=14, width=2.5, ink=GREEN)
    drawing.words(90, 48, "stays up", size=12, ink=FAINT)
    drawing.words(210, 36, "failed", size=12, ink=RED)
    drawing.words(250, 164, "a spare takes over", size=12, side="start")
    drawing.words(100, 128, "set up anew", size=12, ink=GREEN)
    return drawing


@chart
def racks_steps() -> Any:
    """Draw circuits that have light after each step of a transition in a rack."""
    from optmatch.problems.reroutes.transition import DROP, RAISE

    state = om.fill_rack(om.RackFabric())
    failed = replace(state, failed_chips=(21,))
    answer: Any = om.solve(failed, seed=0).answer
    n_circuits = len(state.circuits)
    lit = [n_circuits, n_circuits - int(failed.hit.sum())]
    for action, _, _ in answer.steps.tolist():
        lit.append(lit[-1] + (action == RAISE) - (action == DROP))
    figure, ax = new_chart(2.5)
    ax.step(range(len(lit)), lit, where="post", color=BLUE)
    ax.set_ylim(min(lit) - 3, n_circuits + 3)
    ax.set_xlabel("failure, then the steps of the transition")
    ax.set_ylabel("circuits with light")
    ax.set_title(f"chip 21 of 64 fails: {int(failed.hit.sum())} of {n_circuits} circuits are hit")
    return figure


@chart
def racks_timeline() -> Any:
    """Draw stages from a failure to work, in milliseconds."""
    controller = om.Rerouter(om.fill_rack(om.RackFabric()))
    proposal = controller.fail(chip=21)
    stages = proposal.timeline(program_s=1e-3, cell_s=10e-6, lock_s=1e-3, restart_s=1.1)
    names = [stage.name for stage in stages]
    lengths_ms = [max(1e-3, 1e3 * (stage.end_s - stage.start_s)) for stage in stages]
    lengths_ms[names.index("decide")] = 1.0  # measured anew in each run; the page says how long
    figure, ax = new_chart(2.6)
    ax.barh(names, lengths_ms, color=BLUE)
    ax.set_xscale("log")
    ax.invert_yaxis()
    ax.set_xlabel("milliseconds, on a logarithmic scale")
    return figure


@sketch
def slices_scattered() -> Sketch:
    """Draw a block of neighbouring servers, and servers that lie apart."""
    drawing = Sketch(170, "A slice as a block of neighbours, and on servers that lie apart")
    for left, name, used in (
        (34, "electrical torus: a block", {0, 1, 4, 5}),
        (230, "with light: anywhere", {0, 6, 9, 15}),
    ):
        drawing.words(left + 62, 16, name, size=12, bold=True)
        places = []
        for server in range(16):
            x = left + 32 * (server % 4)
            y = 34 + 30 * (server // 4)
            is_used = server in used
            taken = not is_used and left > 200 and server in {1, 4, 5, 10, 11, 14}
            fill = BLUE if is_used else "#9aa5b1" if taken else "white"
            drawing.box(x, y, 26, 22, fill=fill)
            if is_used:
                places.append((x + 13, y + 11))
        if left > 200:
            ring = [places[0], places[1], places[3], places[2], places[0]]
            for start, end in pairwise(ring):
                drawing.curve(start, end, bend=-8, ink=AMBER, width=2.2)
    drawing.words(195, 162, "blue: the slice; grey: in use; yellow: its circuits", size=12)
    return drawing


@sketch
def slices_joined() -> Sketch:
    """Draw fibres of the faces of two racks that end at a switch between racks."""
    drawing = Sketch(170, "A switch between racks joins fibres of the same place on their faces")
    for rack, left in ((0, 14), (1, 286)):
        drawing.box(left, 40, 90, 70, f"rack {rack}", fill=PALE)
    drawing.box(155, 40, 80, 70, fill=PALE_AMBER)
    drawing.words(195, 22, "switch for axis x, place 3", size=12)
    drawing.line((104, 58), (155, 58), ink=BLUE, width=2.2)
    drawing.line((104, 92), (155, 92), ink=GREEN, width=2.2)
    drawing.line((235, 58), (286, 58), ink=BLUE, width=2.2)
    drawing.line((235, 92), (286, 92), ink=GREEN, width=2.2)
    drawing.curve((155, 58), (235, 92), ink=BLUE, width=2.2, dashed=True)
    drawing.curve((155, 92), (235, 58), ink=GREEN, width=2.2, dashed=True)
    drawing.words(130, 44, "+x", size=12)
    drawing.words(130, 108, "-x", size=12)
    drawing.words(260, 44, "+x", size=12)
    drawing.words(260, 108, "-x", size=12)
    drawing.words(195, 134, "it may close the ring of one rack (its + to its -)", size=12)
    drawing.words(195, 152, "or lead on to another rack, by any fibre of the same place", size=12)
    return drawing


@sketch
def slices_twist() -> Sketch:
    """Draw links round the short axis of a plain and of a twisted torus."""
    drawing = Sketch(190, "A plain and a twisted torus of 2 x 4 chips")
    for left, name, twist in ((34, "plain", 0), (226, "twisted", 2)):
        drawing.words(left + 60, 14, name, bold=True)
        for column in range(4):
            x = left + 40 * column
            drawing.line((x, 60), (x, 110), ink=FAINT, width=2)
            end = left + 40 * ((column + twist) % 4)
            ink = AMBER if twist else BLUE
            drawing.curve((x, 110), (end, 152), ink=ink, width=2)
            drawing.words(end, 164, str((column + twist) % 4), size=11)
            drawing.words(x, 38, str(column), size=11)
        for y in (60, 110):
            drawing.line((left, y), (left + 120, y), ink=FAINT, width=2)
            for column in range(4):
                drawing.dot(left + 40 * column, y, 7, INK)
    drawing.words(195, 182, "below: the column in which a link round the end arrives", size=12)
    return drawing


@chart
def slices_unusable() -> Any:
    """Draw free servers that cannot be used, by load and rule."""
    rows = read_rows("slices", "| load | unusable: first fit")
    loads = [read_number(row[0]) for row in rows]
    figure, ax = new_chart(2.7)
    for column, name, ink in (
        (1, "first fit", FAINT),
        (2, "optical", AMBER),
        (3, "optical, joined", BLUE),
    ):
        ax.plot(loads, [read_number(row[column]) for row in rows], "o-", color=ink, label=name)
    ax.set_xticks(loads)
    ax.set_ylim(bottom=-0.5)
    ax.set_xlabel("load of 64 racks")
    ax.set_ylabel("% of free servers\nthat no request can use")
    ax.legend(frameon=False)
    return figure


@chart
def collectives_rounds() -> Any:
    """Draw rounds of an all-gather of eight ranks."""
    from optmatch.plotting import plot_rounds

    problem = om.Collective("all-gather", 8, 8e5, alpha_s=2.7e-6, delay_s=1e-6)
    answer: Any = om.solve(problem, "mixed-radix", seed=0).answer
    figure, ax = new_chart(3.4)
    plot_rounds(answer, ax=ax)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.34), ncols=2, frameon=False)
    return figure


@sketch
def collectives_islands() -> Sketch:
    """Draw islands and rails."""
    drawing = Sketch(190, "Two islands of four ranks, with a rail for each place")
    for island in range(2):
        top = 20 + 84 * island
        drawing.box(20, top, 252, 60, fill=PALE)
        drawing.words(30, top + 12, f"island {island}", side="start", size=12)
        for place in range(4):
            x = 102 + 48 * place
            drawing.dot(x, top + 38, 11, PALE_BLUE, INK)
            drawing.words(x, top + 38, str(4 * island + place), size=11)
            if place < 3:
                drawing.line((x + 12, top + 38), (x + 36, top + 38), ink=AMBER, width=3)
    for place in range(4):
        x = 102 + 48 * place
        drawing.line((x, 70), (x, 130), ink=GREEN, width=2.4)
    drawing.words(
        280, 50, "in an island:\nall at once", side="start", size=12, ink=AMBER, middle=True
    )
    drawing.words(280, 104, "rails: circuits", side="start", size=12, ink=GREEN)
    drawing.words(195, 180, "both work in the same round; the slower decides", size=12)
    return drawing


@chart
def collectives_delays() -> Any:
    """Draw time of three methods against the delay."""
    figure, ax = new_chart(2.8)
    delays_s = np.geomspace(1e-6, 1e-3, 7)
    for method, ink in (("ring", FAINT), ("bruck", AMBER), ("mixed-radix", BLUE)):
        times_us = []
        for delay_s in delays_s:
            problem = om.Collective("all-gather", 64, 1e6, alpha_s=2.7e-6, delay_s=float(delay_s))
            solution = om.solve(problem, method, seed=0)
            assert isinstance(solution.objective, float)
            times_us.append(1e6 * solution.objective)
        ax.loglog(1e6 * delays_s, times_us, "o-", color=ink, label=method)
    ax.axvline(132, color=INK, lw=1, ls=":")
    ax.text(126, 40, "132 µs", ha="right")
    ax.set_ylim(30, 9000)
    ax.set_xlabel("delay, µs")
    ax.set_ylabel("all-gather of 64 ranks, µs")
    ax.legend(frameon=False, loc="upper left")
    return figure


@chart
def collectives_reach() -> Any:
    """Draw the fewest rounds in which a number of configurations reaches 64 ranks."""
    counts = (1, 2, 3, 4, 5, 6)
    fewest = []
    for count in counts:
        # The rounds of each configuration are as equal as possible: their product is largest.
        rounds = count
        while True:
            base, more = divmod(rounds, count)
            if (1 + base) ** (count - more) * (2 + base) ** more >= 64:
                break
            rounds += 1
        fewest.append(rounds)
    figure, ax = new_chart(2.4)
    ax.bar(counts, fewest, color=BLUE)
    for count, rounds in zip(counts, fewest, strict=True):
        ax.text(count, rounds + 1, str(rounds), ha="center")
    ax.set_ylim(0, 72)
    ax.set_xlabel("configurations of circuits")
    ax.set_ylabel("fewest rounds\nto reach 64 ranks")
    return figure


@chart
def collectives_late() -> Any:
    """Draw speed-up around a late rank."""
    (speed_ups, *_) = read_rows("collectives", "| ranks | 4 | 8 |")
    ranks = (4, 8, 16, 32, 64, 128, 256)
    figure, ax = new_chart(2.4)
    ax.plot(ranks, read_numbers(speed_ups[1:]), "o-", color=BLUE)
    ax.axhline(2, color=FAINT, ls=":", lw=1)
    ax.set_xscale("log", base=2)
    ax.set_xticks(ranks, [str(rank) for rank in ranks])
    ax.set_ylim(1, 2.1)
    ax.set_xlabel("ranks, one of which is late")
    ax.set_ylabel("times as fast\nas a ring")
    return figure


@sketch
def collectives_ports() -> Sketch:
    """Draw a circulant of nine ranks over two ports."""
    drawing = Sketch(
        230, "A circulant of nine ranks: each leads to the next one and to the third next"
    )
    places = []
    for rank in range(9):
        angle = 2 * np.pi * rank / 9
        places.append((195 + 80 * float(np.sin(angle)), 106 - 80 * float(np.cos(angle))))
    for rank, start in enumerate(places):
        drawing.line(start, places[(rank + 1) % 9], ink=BLUE, width=2)
        drawing.line(start, places[(rank + 3) % 9], ink=AMBER, width=1.6)
    for rank, (x, y) in enumerate(places):
        drawing.dot(x, y, 13, "white", INK)
        drawing.words(x, y, str(rank), size=12)
    drawing.words(195, 206, "port 0 leads one rank on (blue), port 1 three (yellow):", size=12)
    drawing.words(195, 222, "every rank is at most four hops away", size=12)
    return drawing
