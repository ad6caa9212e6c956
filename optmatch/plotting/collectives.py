"""Plans of a collective round by round, and what its ranks have before and after."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError, Solution, brief_tuple, write_amount
from optmatch.plotting import palette
from optmatch.plotting.drawing import (
    Axes,
    Figure,
    axes_of,
    choose_evenly,
    choose_ticks,
    figure_of,
)
from optmatch.plotting.scenes import LOWER_HALF, UPPER_HALF, BarLook, draw_rows
from optmatch.plotting.slots import answered
from optmatch.plotting.viewer import pack_bars, page_data, scene
from optmatch.problems import Collective, CollectivePlan
from optmatch.problems.collectives.plan import KINDS, plan_of

_COPIES = 1
"""The task of a rank in a round: 0 if it receives nothing, 1 copies, 2 adds data to its own."""


@brief_tuple
class RoundsData(NamedTuple):
    """A cell for each rank and round."""

    does: NDArray[np.int8]
    """``does[rank, round]``: 0 nothing, 1 copies, 2 adds."""
    changes: NDArray[np.int64]
    """Rounds before which circuits change."""


def rounds_data(plan: CollectivePlan) -> RoundsData:
    """Lay out a plan of a collective operation: what each rank does in each round.

    Parameters
    ----------
    plan
        The plan, with `sends`: rows of round, source rank, destination rank, chunk and kind (0 the
        receiver copies, else it adds).

    Returns
    -------
    RoundsData
        ``does[rank, round]``, which is 0 nothing, 1 copies, 2 adds, and `changes`, the rounds
        before which circuits change.

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
    # The sends of all ranks. What is drawn asks for no numbers of chunks: turned as those of an
    # all-gather, chunks of an all-to-all have other numbers but their bytes.
    plan = plan.spelled_out("all-gather")
    n_ranks = plan.circuits.shape[2]
    does = np.zeros((n_ranks, plan.n_rounds), dtype=np.int8)

    # A rank that adds some chunks and copies others in a round counts as one that adds.
    round_of_send, _, destination, _, kind = plan.sends.T
    task = (np.minimum(kind, 1) + _COPIES).astype(np.int8)
    np.maximum.at(does, (destination, round_of_send), task)

    is_change = np.diff(plan.epoch_of_round) != 0
    return RoundsData(does, np.flatnonzero(is_change) + 1)


def plot_rounds(
    plan: CollectivePlan, *, problem: Collective | None = None, ax: Axes | None = None
) -> Figure:
    """Draw what ranks do in a collective operation: a row for each rank, a column for each round.

    A box stands where a rank receives in a round; its colour says whether the rank copies what it
    receives or adds it to what it has.

    Parameters
    ----------
    plan
        The plan, with sends from rank to rank by rounds.
    problem
        What it answers. Between islands, a box has an upper half for what comes over rails, and a
        lower one for what comes from the island; ranks that are late are named so.
    ax
        Where to draw; None makes a new figure.

    Returns
    -------
    Figure
        A dashed line stands before each round for which circuits change. With more than 24 ranks,
        evenly chosen ones are drawn, of islands all ranks, with the first that each round reaches.
    """
    plan = plan.spelled_out("all-gather")
    n_ranks = plan.circuits.shape[2]
    n_rounds = plan.n_rounds
    island = getattr(problem, "island", 1)

    # Whole islands stand for all, and a rank for each round in which one first receives.
    islands = choose_evenly(n_ranks // island, max(1, _MOST_NAMED_RANKS // island))
    ranks = (islands[:, None] * island + choose_evenly(island, _MOST_NAMED_RANKS)).ravel()
    does = rounds_data(plan).does
    first_round = np.where(does.any(axis=1), does.argmax(axis=1), -1)
    _, reached_first = np.unique(first_round, return_index=True)
    ranks = np.union1d(ranks, reached_first[choose_evenly(len(reached_first), _MOST_NAMED_RANKS)])
    chart = _rounds_chart(plan, ranks, problem)

    # A column is wide enough for what is written in its boxes, as long as there are few.
    most_letters = max(map(len, chart["texts"]))
    width_inches = min(12.5, 3.4 + n_rounds * max(0.42, 0.12 * most_letters))
    row_inches = 0.2 if island == 1 else 0.36
    ax = axes_of(ax, width_inches, max(2.6, 1.8 + row_inches * len(ranks)))
    draw_rows(chart, ax)
    if island > 1:
        for row in np.flatnonzero(np.diff(ranks // island)):
            ax.axhline(row + 0.5, color=palette.INK, linewidth=0.8)

    # As many rounds are named as there is room for, each below the middle of its column. The bytes
    # are said once where they are the same in all rounds.
    sizes = _most_bytes(plan, _bytes_between_ranks(plan))
    named_rounds = choose_ticks(n_rounds, 24)
    label = f"round; at most {sizes[0]} to a peer"
    round_texts = [str(round_) for round_ in named_rounds]
    rotation = 0
    if len(set(sizes)) > 1:
        label = "round, and the most bytes to a peer"
        round_texts = [f"{round_}\n{sizes[round_]}" for round_ in named_rounds]
        rotation = 90 * (n_rounds > 12)
    ax.set_xticks(named_rounds + 0.5, round_texts, fontsize=8, rotation=rotation)

    # What is written in boxes is explained.
    if ax.texts:
        label += ";\nin a box: from which rank, or x3 from three"
    ax.set_xlabel(label)
    title = f"{n_rounds} rounds in {write_amount(plan.time_s, 's')}" if plan.time_s else ""
    if len(ranks) < n_ranks:
        title += f"\n{len(ranks)} of {n_ranks:,} ranks are shown"
    ax.set_title(title, fontsize=10)
    return figure_of(ax)


def _name_ranks(ranks: NDArray[np.int64], problem: Collective | None) -> list[str]:
    """Name ranks by their numbers, with their islands, and say which ones are late."""
    names = [str(rank) for rank in ranks.tolist()]
    if problem is None:
        return names
    late = {rank for rank, late_s in problem.late_s.items() if late_s > 0}
    names = [f"late: {name}" if name in late else name for name in names]
    if problem.island > 1:
        islands = (ranks // problem.island).tolist()
        names = [f"island {island}, {name}" for island, name in zip(islands, names, strict=True)]
    return names


def _rounds_chart(
    plan: CollectivePlan, ranks: NDArray[np.int64], problem: Collective | None
) -> dict[str, Any]:
    """Lay out what some ranks receive in each round, as parts of a scene whose unit is a round.

    A box takes 88 % of its round, and its text is the rank that data come from, or how many ranks
    these are, as "x3". A rank of an island has two boxes in a round: what comes over rails, and
    from the island.
    """
    # A box is a receiver, a round, and whether data come from its island.
    island = getattr(problem, "island", 1)
    shown_sends = plan.sends[np.isin(plan.sends[:, 2], ranks)].T.astype(np.int64)
    round_, source, destination, _, kind = shown_sends
    is_inside = (source // island == destination // island) & (island > 1)
    shape = (plan.circuits.shape[2], plan.n_rounds, 2)
    place = np.ravel_multi_index((destination, round_, is_inside.astype(np.int64)), shape)
    places, box_of_send = np.unique(place, return_inverse=True)
    receiver, round_of_box, link = np.unravel_index(places, shape)

    # A rank that adds some chunks and copies others counts as one that adds.
    adds = np.zeros(len(places), dtype=np.int64)
    np.maximum.at(adds, box_of_send, np.minimum(kind, 1))

    # The ranks that a box has data from, each once: the only one, or their number.
    box, source_of_box = np.unique([box_of_send, source], axis=1)
    n_sources = np.bincount(box)
    texts = [str(rank) for rank in source_of_box[np.cumsum(n_sources) - 1].tolist()]
    for several in np.flatnonzero(n_sources > 1).tolist():
        texts[several] = f"x{n_sources[several]}"

    copying, adding = palette.CIRCUIT_COLOURS[:2]
    looks = [BarLook("receives, copies", copying), BarLook("receives, adds", adding)]
    if island > 1:
        pale = palette.mix_with_white
        looks = [
            BarLook("over rails, copies", copying, UPPER_HALF),
            BarLook("over rails, adds", adding, UPPER_HALF),
            BarLook("in the island, copies", pale(copying), LOWER_HALF),
            BarLook("in the island, adds", pale(adding), LOWER_HALF),
        ]
    row = np.searchsorted(ranks, receiver)
    begin = round_of_box + 0.06
    look = 2 * link + adds
    span = float(plan.n_rounds)
    return {
        "legend": looks,
        "row_noun": "rank",
        "rows": _name_ranks(ranks, problem),
        "bars": pack_bars(row, look, begin, begin + 0.88, len(ranks), span),
        "texts": texts,
        "span_s": span,
        "changes": rounds_data(plan).changes.tolist(),
    }


# Ranks that have a row of boxes, in a plan and in a problem.
_MOST_NAMED_RANKS = 24
_MOST_BLOCKS = 32


# Sends that a page lists in all rounds together, so that it stays small.
_MAX_SENDS = 20_000


def _bytes_between_ranks(plan: CollectivePlan) -> NDArray[np.float64]:
    """Sum the bytes of each round, source and destination, in rows in ascending order."""
    n_ranks = plan.circuits.shape[2]
    shape = (plan.n_rounds, n_ranks, n_ranks)

    # Sends of several chunks have one place.
    place = np.ravel_multi_index(tuple(plan.sends.T[:3]), shape)
    places, number = np.unique(place, return_inverse=True)
    sent_bytes = np.bincount(number, plan.sent_bytes, minlength=len(places))
    return np.column_stack([*np.unravel_index(places, shape), sent_bytes])


def _most_bytes(plan: CollectivePlan, sent: NDArray[np.float64]) -> list[str]:
    """Write for each round the most bytes that a rank sends to another one."""
    most_bytes = np.zeros(plan.n_rounds)
    np.maximum.at(most_bytes, sent[:, 0].astype(np.int64), sent[:, 3])
    return [write_amount(size_bytes, "B") for size_bytes in most_bytes.tolist()]


def page(solution: Solution) -> dict[str, Any]:
    """Collect the page of a plan: circuits by rounds, planes over time, or ranks over rounds.

    A plan whose rounds are shared by planes has planes over time, one with a schedule the circuits
    of each round, any other one ranks over rounds.
    """
    _, plan = answered(solution, Collective, CollectivePlan)
    if plan.shares_bytes.size:
        return _shares_page(solution, plan)
    if solution.schedule is None:
        return _rounds_page(solution, plan_of(solution))

    # The schedule has one slot for all rounds of an epoch, and the page a step for each round.
    sizes = _most_bytes(plan, _bytes_between_ranks(plan))
    names = [f"at most {size} to a peer" for size in sizes]
    shown = page_data(solution, names=names, noun="round")
    shown["epoch_of_round"] = plan.epoch_of_round.tolist()
    shown["durations"] = [""] * plan.n_rounds
    return shown


def _shares_chart(plan: CollectivePlan) -> dict[str, Any]:
    """Lay out planes over time, with a bar for each round of which a plane carries a share.

    A plane is one of several switches. ``plan.shares_bytes[round, plane]`` is what it carries of a
    round; arrays of times have the same shape.
    """
    hues = palette.CIRCUIT_COLOURS[:8]
    n_planes = plan.shares_bytes.shape[1]
    plane, round_ = np.nonzero(plan.shares_bytes.T)
    span_s = plan.time_s or 1.0
    start_s = plan.start_s[round_, plane]
    end_s = plan.end_s[round_, plane]
    return {
        "legend": [BarLook(f"rounds {k}, {k + 8}, ...", hue) for k, hue in enumerate(hues)],
        "row_noun": "plane",
        "rows": [str(plane) for plane in range(n_planes)],
        "bars": pack_bars(plane, round_ % len(hues), start_s, end_s, n_planes, span_s),
        "texts": [str(number) for number in round_],
        "span_s": span_s,
    }


def _shares_page(solution: Solution, plan: CollectivePlan) -> dict[str, Any]:
    """Collect the page of planes; it steps through the ends of the rounds."""
    steps = []
    rows = []
    for round_, shares_bytes in enumerate(plan.shares_bytes):
        size = write_amount(float(shares_bytes.sum()), "B")
        end_s = float(plan.end_s[round_].max())
        steps.append({"say": f"round {round_}: {size}", "at": end_s})
        for plane in np.flatnonzero(shares_bytes).tolist():
            size = write_amount(float(shares_bytes[plane]), "B")
            rows.append([[f"round {round_}, plane {plane}", size], {"row": plane}])
    return scene(
        solution,
        **_shares_chart(plan),
        noun="round",
        row_of=list(range(plan.shares_bytes.shape[1])),
        steps=steps,
        list={"title": "Shares", "heads": ["", "carries"], "rows": rows},
    )


def _rounds_page(solution: Solution, plan: CollectivePlan) -> dict[str, Any]:
    """Collect the page of ranks: a bar for each round in which a rank receives.

    Each round is a step of the page with a caption `say`, a time `at` in rounds, and `rows`, the
    bytes from rank to rank: two texts, and the row of the receiver, which is marked. There are at
    most `_MAX_SENDS` such lines on the whole page.
    """
    # A row of `sent` is a round, a source rank, a destination rank, and bytes.
    sent = _bytes_between_ranks(plan)
    n_ranks = plan.circuits.shape[2]
    problem: Any = solution.problem
    chart = _rounds_chart(plan, np.arange(n_ranks), problem)

    # A step for each round lists the bytes from rank to rank.
    sizes = _most_bytes(plan, sent)
    max_lines = _MAX_SENDS // plan.n_rounds
    steps: list[dict[str, Any]] = []
    for round_ in range(plan.n_rounds):
        sent_here = sent[sent[:, 0] == round_]
        lines = []
        for _, source, destination, size_bytes in sent_here[:max_lines].tolist():
            text = f"{int(source)} to {int(destination)}"
            size = write_amount(float(size_bytes), "B")
            lines.append([[text, size], {"row": int(destination)}])
        change = ", after new circuits" if round_ in chart["changes"] else ""
        step = {
            "say": f"{len(sent_here)} pairs, at most {sizes[round_]} to a peer{change}",
            "at": float(round_),
            "title": f"Round {round_}",
            "rows": lines,
        }
        steps.append(step)
    return scene(
        solution,
        **chart,
        noun="round",
        row_of=list(range(n_ranks)),
        bound_s=None,
        steps=steps,
        unit="rounds",
        list={"title": "", "heads": ["from, to", "bytes"], "rows": []},
    )


def draw_problem(problem: Collective, ax: Axes | None = None) -> Figure:
    """Draw the blocks of each rank before and after a collective, into `ax` or a new figure.

    A block has the colour of the rank whose data it is; black is the sum of all. With more than 32
    ranks, evenly chosen ones are shown, with their blocks.
    """
    n_ranks = problem.n_ranks
    shown_ranks = choose_evenly(n_ranks, _MOST_BLOCKS)

    # ``origin[rank, block]`` before and after: the rank whose data the block has, -1 for none, and
    # the number of all ranks for their sum.
    rank, block = np.indices((n_ranks, n_ranks))
    before = rank
    after = block
    match problem.operation:
        case "all-gather":
            before = np.where(rank == block, rank, -1)
        case "reduce-scatter":
            after = np.where(rank == block, n_ranks, -1)
        case "all-reduce":
            after = np.full_like(rank, n_ranks)
        case "broadcast":
            before = np.where(rank == problem.root, problem.root, -1)
            after = np.full_like(rank, problem.root)

    # A row has the blocks before, a gap of two, and those after. Colours repeat after 24 ranks.
    n_shown = len(shown_ranks)
    gap = np.full((n_shown, 2), -1)
    square = np.ix_(shown_ranks, shown_ranks)
    origin = np.concatenate([before[square], gap, after[square]], axis=1)
    row, place = np.nonzero(origin >= 0)
    origins = origin[row, place]
    hues = palette.CIRCUIT_COLOURS
    kind = np.where(origins == n_ranks, len(hues), origins % len(hues))
    looks = [BarLook("", hue, is_unlisted=True) for hue in hues]
    span = float(origin.shape[1])
    chart = {
        "legend": [*looks, BarLook("the sum of all", palette.INK)],
        "row_noun": "rank",
        "rows": _name_ranks(shown_ranks, problem),
        "bars": pack_bars(row, kind, place + 0.05, place + 0.95, n_shown, span),
        "span_s": span,
    }
    ax = draw_rows(chart, ax)
    middles = [n_shown / 2, n_shown * 1.5 + 2]
    ax.set_xticks(middles, ["blocks before", "blocks after"])
    ax.set_xlabel("colours: from which rank")

    # The title says what the operation is, and which ranks begin late.
    size = write_amount(problem.size_bytes, "B")
    title = f"{problem.operation} of {size} between {n_ranks} ranks"
    if problem.late_s:
        most_late = write_amount(max(problem.late_s.values()), "s")
        title += f"; late by up to {most_late}: {len(problem.late_s)} of {n_ranks} ranks"
    if n_shown < n_ranks:
        title += f"\n{n_shown} of {n_ranks:,} ranks and blocks are shown, evenly chosen"
    ax.set_title(title, fontsize=10)
    return figure_of(ax)


def tabulate_problem(problem: Collective) -> dict[str, Any]:
    """List a row for each rank: what it has, and when it is ready."""
    ranks = np.arange(problem.n_ranks)
    late = [float(problem.late_s.get(str(rank), 0.0)) for rank in ranks]
    return {"rank": ranks, "size_bytes": np.full(len(ranks), problem.size_bytes), "ready_s": late}


def draw(solution: Solution, *, ax: Axes | None = None) -> Figure:
    """Draw the rounds of a plan; with several planes, which rounds each of them carries.

    Only plans whose planes share rounds have ``shares_bytes[round, plane]``.
    """
    problem, plan = answered(solution, Collective, CollectivePlan)
    if not plan.shares_bytes.size:
        return plot_rounds(plan, problem=problem, ax=ax)

    n_planes = plan.shares_bytes.shape[1]
    ax = axes_of(ax, 12.0, 1.8 + 0.4 * n_planes)
    draw_rows(_shares_chart(plan), ax)
    if ax.texts:
        ax.set_xlabel(f"{ax.get_xlabel()}; a number is the round that a plane carries a share of")
    span = write_amount(plan.time_s, "s")
    ax.set_title(f"{plan.n_rounds} rounds in {span} on {n_planes} planes", fontsize=10)
    return figure_of(ax)


def tabulate(solution: Solution) -> dict[str, Any]:
    """Return the columns of an answer: a row for each send, or for each share of a plane.

    Where ranks are on islands, a column says whether a send stays inside one or goes over the
    rails.
    """
    plan: Any = solution.answer
    if plan.shares_bytes.size:
        round_, plane = np.nonzero(plan.shares_bytes)
        return {
            "round": round_,
            "plane": plane,
            "share_bytes": plan.shares_bytes[round_, plane],
            "start_s": plan.start_s[round_, plane],
            "end_s": plan.end_s[round_, plane],
        }

    round_, source, destination, chunk, kind = plan.sends.T
    columns = {
        "round": round_,
        "source": source,
        "destination": destination,
        "chunk": chunk,
        "kind": np.array(KINDS)[kind],
    }

    # Between islands, a send either stays inside one or goes over the rails.
    ranks_per_island: Any = getattr(solution.problem, "island", 1)
    if ranks_per_island > 1:
        is_inside = source // ranks_per_island == destination // ranks_per_island
        columns["link"] = np.where(is_inside, "island", "rail")
    columns["size_bytes"] = plan.sent_bytes
    return columns
