"""Plans of a collective round by round, and time against delay with the map of winners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Solution, write_amount
from optmatch.plotting import palette
from optmatch.plotting.figures import blank_figure, draw_bars, draw_schedule, label_time
from optmatch.plotting.slots import answered
from optmatch.plotting.viewer import page_data, scene
from optmatch.problems import Collective, CollectivePlan
from optmatch.problems.collectives.plan import KINDS, plan_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IDLE, COPIES, ADDS = 0, 1, 2
"""The task of a rank in a round: it receives nothing, copies, or adds data to its own."""


class RoundsData(NamedTuple):
    """A cell for each rank and round."""

    does: NDArray[np.int8]
    """``does[rank, round]``: 0 nothing, 1 copies, 2 adds."""
    changes: NDArray[np.int64]
    """Rounds before which circuits change."""


def rounds_data(plan: CollectivePlan) -> RoundsData:
    """Lay out a plan.

    Raises
    ------
    InputError
        If it has no sends.

    Examples
    --------
    >>> import optmatch as om
    >>> plan = om.solve(om.Collective("all-reduce", 3, 3.0), "ring").answer
    >>> rounds_data(plan).does.tolist()
    [[2, 2, 1, 1], [2, 2, 1, 1], [2, 2, 1, 1]]
    """
    if not len(plan.sends):
        raise InputError("nothing to draw: the plan has no sends")
    does = np.zeros((plan.circuits.shape[2], plan.n_rounds), dtype=np.int8)
    turn, _, target, _, kind = plan.sends.T
    np.maximum.at(does, (target, turn), (np.minimum(kind, 1) + COPIES).astype(np.int8))
    return RoundsData(does, np.flatnonzero(np.diff(plan.epoch_of_round)) + 1)


def plot_rounds(plan: CollectivePlan, *, fig: Figure | None = None) -> Figure:
    """Draw a row for each rank and a column for each round.

    Parameters
    ----------
    plan
        The plan.
    fig
        Where to draw; None makes a new figure.
    """
    data = rounds_data(plan)
    ranks, rounds = data.does.shape
    size = min(12.5, 3.2 + 0.42 * rounds), min(12.0, max(2.6, 1.8 + 0.2 * ranks))
    fig = fig if fig is not None else blank_figure(*size)
    ax = fig.add_subplot()
    for value, name in ((COPIES, "receives, copies"), (ADDS, "receives, adds")):
        rank, turn = np.nonzero(data.does == value)
        if not len(rank):
            continue
        wide, high = (0.44, 0.42) if _has_room(data, size) else (0.5, 0.5)
        edges: Any = turn - wide, turn + wide, rank - high, rank + high
        colour = palette.circuit_colour(value - 1)
        draw_bars(ax, *edges, facecolors=colour, edgecolors="none", label=name)
    for change in data.changes.tolist():
        ax.axvline(change - 0.5, color=palette.INK, lw=1.0, ls="--")
    if len(data.changes):
        ax.plot([], [], color=palette.INK, lw=1.0, ls="--", label="circuits change")
    ax.set_xlim(-0.5, rounds - 0.5)
    ax.set_ylim(ranks - 0.5, -0.5)
    sent = _bytes_of(plan)
    named = _has_room(data, size)
    if named:
        _name_peers(ax, sent, data)
    most = [float(sent[sent[:, 0] == turn, 3].max(initial=0.0)) for turn in range(rounds)]
    every, skip = max(1, -(-rounds // 24)), max(1, -(-ranks // max(1, int(size[1] / 0.16))))
    turns, shown = np.arange(0, rounds, every), np.arange(0, ranks, skip)
    texts = [f"{turn}\n{write_amount(most[turn], 'B')}" for turn in turns]
    ax.set_xticks(turns, texts, fontsize=8, rotation=0 if rounds <= 12 else 90)
    ax.set_yticks(shown, [str(rank) for rank in shown], fontsize=8)
    inside = ";\nin a box: from which rank" if named else ""
    ax.set_xlabel(f"round, and the most bytes to a peer{inside}")
    ax.set_ylabel("rank")
    if plan.time_s:
        ax.set_title(f"{rounds} rounds in {write_amount(plan.time_s, 's')}", fontsize=10)
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return fig


def _has_room(data: RoundsData, size: tuple[float, float]) -> bool:
    """Tell whether boxes of a figure of so many inches have room for a number."""
    ranks, rounds = data.does.shape
    return bool(size[1] / ranks >= 0.14 and size[0] / rounds >= 0.25)


def _name_peers(ax: Any, sent: NDArray[np.float64], data: RoundsData) -> None:
    """Write into each box from which rank, or from how many."""
    for turn, target in np.argwhere(data.does.T).tolist():
        own = sent[(sent[:, 0] == turn) & (sent[:, 2] == target)]
        text = f"{int(own[0, 1])}" if len(own) == 1 else f"{len(own)} ranks"
        ink = palette.ink_on(palette.circuit_colour(int(data.does[target, turn]) - 1))
        ax.text(turn, target, text, ha="center", va="center", fontsize=8, color=ink)


_MOST_SENDS = 20_000


def _bytes_of(plan: CollectivePlan) -> NDArray[np.float64]:
    """Sum what each rank sends to each other in each round: round, source, destination, bytes."""
    turn, source, target = plan.sends.T[:3].astype(np.int64)
    ranks = plan.circuits.shape[2]
    key, place = np.unique((turn * ranks + source) * ranks + target, return_inverse=True)
    sizes = np.bincount(place, plan.sent_bytes, minlength=len(key))
    columns = key // ranks**2, key // ranks % ranks, key % ranks, sizes
    return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)


def page(solution: Solution) -> dict[str, Any]:
    """Collect the page: circuits with the bytes of their rounds, or ranks over the rounds."""
    _, plan = answered(solution, Collective, CollectivePlan)
    if solution.schedule is not None and not plan.shares_bytes.size:
        names = []
        sent = _bytes_of(plan)
        for epoch in range(plan.n_epochs):
            rounds = np.flatnonzero(plan.epoch_of_round == epoch)
            most = [float(sent[sent[:, 0] == turn, 3].max(initial=0.0)) for turn in rounds]
            texts = [
                f"{k}: {write_amount(b, 'B')}" for k, b in zip(rounds[:6], most, strict=False)
            ]
            names.append(f"rounds, and bytes to a peer: {', '.join(texts)}"
                         + ", ..." * (len(rounds) > 6))  # fmt: skip
        return page_data(solution, names=names[: solution.schedule.n_slots])
    if plan.shares_bytes.size:
        return _shares_page(solution, plan)
    return _rounds_page(solution, plan_of(solution))


def _shares_page(solution: Solution, plan: CollectivePlan) -> dict[str, Any]:
    hues = palette.CIRCUIT_COLOURS[:8]
    span_s = plan.time_s or 1.0
    bars: list[list[int]] = [[] for _ in range(plan.shares_bytes.shape[1])]
    rows, ends = [], []
    for turn, plane in np.argwhere(plan.shares_bytes).tolist():
        start, end = (
            round(times[turn, plane] * 1e6 / span_s) for times in (plan.start_s, plan.end_s)
        )
        bars[plane] += [turn % len(hues), start, end - start]
        size = write_amount(float(plan.shares_bytes[turn, plane]), "B")
        rows.append([[f"round {turn}, plane {plane}", size], {"row": plane}])
    for turn in range(plan.n_rounds):
        size = write_amount(float(plan.shares_bytes[turn].sum()), "B")
        ends.append({"say": f"round {turn}: {size}", "at": float(plan.end_s[turn].max())})
    return scene(
        solution,
        legend=[(f"rounds {k}, {k + 8}, ...", hue, 2) for k, hue in enumerate(hues)],
        noun="round", row_noun="plane", rows=[str(k) for k in range(len(bars))], bars=bars,
        row_of=list(range(len(bars))), span_s=span_s, steps=ends,
        list={"title": "Shares", "heads": ["", "carries"], "rows": rows},
    )  # fmt: skip


def _rounds_page(solution: Solution, plan: CollectivePlan) -> dict[str, Any]:
    data, sent = rounds_data(plan), _bytes_of(plan)
    ranks, rounds = data.does.shape
    unit = 1_000_000 / rounds
    bars = [
        [
            part
            for turn in np.flatnonzero(row).tolist()
            for part in (int(row[turn]) - 1, round((turn + 0.06) * unit), round(0.88 * unit))
        ]
        for row in data.does
    ]
    steps: list[dict[str, Any]] = []
    for turn in range(rounds):
        own = sent[sent[:, 0] == turn]
        most = write_amount(float(own[:, 3].max(initial=0.0)), "B")
        lines = [
            [[f"{int(i)} to {int(j)}", write_amount(float(size), "B")], {"row": int(j)}]
            for _, i, j, size in own[: max(0, _MOST_SENDS // rounds)].tolist()
        ]
        changes = ", after new circuits" if turn in data.changes else ""
        steps.append({"say": f"{len(own)} pairs, at most {most} to a peer{changes}",
                      "at": float(turn), "title": f"Round {turn}", "rows": lines})  # fmt: skip
    return scene(
        solution,
        legend=[("copies", palette.circuit_colour(0), 2), ("adds", palette.circuit_colour(1), 2)],
        noun="round", row_noun="rank", rows=[str(k) for k in range(ranks)], bars=bars,
        row_of=list(range(ranks)), span_s=float(rounds), bound_s=None, steps=steps,
        unit="rounds", list={"title": "", "heads": ["from, to", "bytes"], "rows": []},
    )  # fmt: skip


def draw_problem(problem: Collective) -> Figure:
    """Draw what each rank has before, and what it must have after: blocks across, ranks down."""
    n = problem.n_ranks
    own, rank, block = np.eye(n, dtype=bool), np.arange(n)[:, None], np.arange(n)[None, :]
    everything, total = np.ones((n, n), dtype=bool), np.full((n, n), n)
    rows, columns = np.broadcast_to(rank, (n, n)), np.broadcast_to(block, (n, n))
    root = np.full((n, n), problem.root)
    before, after = {  # where there is a block, and whose it is; n for the sum
        "all-gather": ((own, rows), (everything, columns)),
        "reduce-scatter": ((everything, rows), (own, total)),
        "all-reduce": ((everything, rows), (everything, total)),
        "broadcast": ((rows == problem.root, root), (everything, root)),
        "all-to-all": ((everything, rows), (everything, columns)),
    }[problem.operation]
    side = min(6.0, max(3.0, 0.22 * n + 1.0))
    figure = blank_figure(2 * side, side + 0.6)
    every = max(1, -(-n // 16))
    ticks = np.arange(0, n, every)
    panels = zip(figure.subplots(1, 2), ((before, "before"), (after, "after")), strict=True)
    for ax, ((there, whose), name) in panels:
        ax.imshow(
            np.ma.masked_where(~there | (whose == n), whose), vmin=-0.1 * n, vmax=n, cmap="turbo"
        )
        ax.imshow(np.ma.masked_where(~there | (whose < n), whose), vmin=0, vmax=n, cmap="gray_r")
        ax.set_xticks(ticks, [str(k) for k in ticks], fontsize=8)
        ax.set_yticks(ticks, [str(k) for k in ticks], fontsize=8)
        ax.set_title(name, fontsize=10)
        ax.set_xlabel("block")
        ax.set_ylabel("rank")
    size = write_amount(problem.size_bytes, "B")
    told = f"{problem.operation} of {size} between {n} ranks"
    black = ", black: the sum of all" if (after[1] == n).any() else ""
    late = ""
    if problem.late_s:
        most = write_amount(max(problem.late_s.values()), "s")
        late = f"; late by up to {most}: {len(problem.late_s)} of {n} ranks"
    figure.suptitle(f"{told}; colours: from which rank{black}{late}", fontsize=10)
    return figure


def tabulate_problem(problem: Collective) -> dict[str, Any]:
    """List a row for each rank: what it has, and when it is ready."""
    ranks = np.arange(problem.n_ranks)
    late = [float(problem.late_s.get(str(rank), 0.0)) for rank in ranks]
    return {"rank": ranks, "size_bytes": np.full(len(ranks), problem.size_bytes), "ready_s": late}


def draw(solution: Solution, slot: int | None = None) -> Figure:
    """Draw the rounds of a plan."""
    if slot is not None or not isinstance(solution.answer, CollectivePlan):
        return draw_schedule(solution, slot)
    if solution.answer.shares_bytes.size:
        return _plot_shares(solution.answer)
    return plot_rounds(plan_of(solution))


def _plot_shares(plan: CollectivePlan) -> Figure:
    """Draw a row for each plane, and what it carries of each round against time."""
    n_planes = plan.shares_bytes.shape[1]
    fig = blank_figure(8.0, 1.2 + 0.5 * n_planes)
    ax = fig.add_subplot()
    for turn, plane in np.argwhere(plan.shares_bytes).tolist():
        start_s, end_s = float(plan.start_s[turn, plane]), float(plan.end_s[turn, plane])
        colour = palette.circuit_colour(turn)
        ax.barh(plane, end_s - start_s, left=start_s, color=colour, height=0.7)
        look: Any = {"ha": "center", "va": "center", "color": palette.ink_on(colour)}
        ax.text((start_s + end_s) / 2, plane, str(turn), fontsize=8, **look)
    label_time(ax, plan.time_s, n_planes)
    ax.set_yticks(range(n_planes))
    ax.set_xlabel(f"{ax.get_xlabel()}; a number is the round that a plane carries a share of")
    ax.set_ylabel("plane")
    told = f"{plan.n_rounds} rounds in {write_amount(plan.time_s, 's')}"
    ax.set_title(f"{told} on {n_planes} planes", fontsize=10)
    return fig


def tabulate(solution: Solution) -> dict[str, Any]:
    """List a row for each send, or for each share of a plane where a plan has no sends."""
    plan: Any = solution.answer
    if plan.shares_bytes.size:
        turn, plane = at = np.nonzero(plan.shares_bytes)
        times = {"start_s": plan.start_s[at], "end_s": plan.end_s[at]}
        return {"round": turn, "plane": plane, "share_bytes": plan.shares_bytes[at]} | times
    names = "round", "source", "destination", "chunk", "kind"
    columns = dict(zip(names, plan.sends.T, strict=True))
    columns["kind"] = np.array(KINDS)[columns["kind"]]
    size: Any = getattr(solution.problem, "island", 1)
    if size > 1:
        inside = columns["source"] // size == columns["destination"] // size
        columns["link"] = np.where(inside, "island", "rail")
    return columns | {"size_bytes": plan.sent_bytes}


Tables = Mapping[str, Sequence[Mapping[str, Any]]]


class DelaysData(NamedTuple):
    """Curves by method, and the winner of each size and delay."""

    delays_s: NDArray[np.float64]
    time_s: dict[str, NDArray[np.float64]]
    """``time_s[method][delay]``; ``"bound"`` is the lower bound."""
    sizes_bytes: NDArray[np.float64]
    winner: list[list[str]]
    """``winner[size][delay]``."""


def delays_data(tables: Tables) -> DelaysData:
    """Lay out the tables of `optmatch.studies.collectives.study_collectives`.

    Raises
    ------
    InputError
        If there is nothing to draw.

    Examples
    --------
    >>> rows = [{"method": "ring", "delay_s": 1.0, "time_s": 2.0}]
    >>> best = [{"size_bytes": 8.0, "delay_s": 1.0, "winner": "ring"}]
    >>> delays_data({"times": rows, "winners": best}).winner
    [['ring']]
    """
    rows, best = tables["times"], tables["winners"]
    if not rows or not best:
        raise InputError("nothing to draw: the study has no rows")
    delays = sorted({row["delay_s"] for row in best})
    sizes = sorted({row["size_bytes"] for row in best})
    known = {(row["size_bytes"], row["delay_s"]): row["winner"] for row in best}
    names = dict.fromkeys(row["method"] for row in rows)
    by_name = {
        name: {row["delay_s"]: row["time_s"] for row in rows if row["method"] == name}
        for name in names
    }
    return DelaysData(
        np.array(delays),
        {name: np.array([times[delay] for delay in delays]) for name, times in by_name.items()},
        np.array(sizes),
        [[known.get((size, delay), "") for delay in delays] for size in sizes],
    )


def plot_delays(tables: Tables, *, fig: Figure | None = None) -> Figure:
    """Draw both side by side.

    Parameters
    ----------
    tables
        As for `delays_data`.
    fig
        Where to draw; None makes a new figure.
    """
    data = delays_data(tables)
    fig = fig if fig is not None else blank_figure(11.0, 4.2)
    left, right = fig.subplots(1, 2)
    names = [name for name in data.time_s if name != "bound"]
    colours = {name: palette.circuit_colour(k) for k, name in enumerate(names)}
    for k, name in enumerate(names):
        style: Any = {"lw": max(1.0, 5.0 - 0.6 * k), "color": colours[name]}  # all equals are seen
        left.loglog(data.delays_s, data.time_s[name], marker=".", label=name, **style)
    if "bound" in data.time_s:
        left.loglog(data.delays_s, data.time_s["bound"], color=palette.INK, ls="--", label="bound")
    for axis in (left.xaxis, left.yaxis):
        axis.set_major_formatter(lambda time_s, _: write_amount(time_s, "s"))
    left.set_xlabel("delay")
    left.set_ylabel("time")
    left.legend(frameon=False, fontsize=8)
    for row, winners in enumerate(data.winner):
        for column, name in enumerate(winners):
            colour = colours.get(name, palette.FAINT_INK)
            right.fill(
                [column, column + 1, column + 1, column], [row, row, row + 1, row + 1], colour
            )
            right.text(
                column + 0.5, row + 0.5, name, ha="center", va="center", fontsize=8, rotation=45,
                color=palette.ink_on(colour),
            )  # fmt: skip
    right.set_xticks(
        np.arange(len(data.delays_s)) + 0.5,
        [write_amount(d, "s") for d in data.delays_s.tolist()],
        rotation=45,
    )
    right.set_yticks(
        np.arange(len(data.sizes_bytes)) + 0.5,
        [write_amount(s, "B") for s in data.sizes_bytes.tolist()],
    )
    right.set_xlabel("delay")
    right.set_ylabel("size")
    right.set_title("the fastest; of equals the first", fontsize=10)
    for ax in (left, right):
        ax.tick_params(labelsize=8)
    return fig
