"""`optmatch study recording`: what traces of PyTorch's profiler recorded, as lists."""

from __future__ import annotations

import click

from optmatch.commands.shared.options import JSON, LENIENT, say_skipped, with_options
from optmatch.commands.shared.outcome import print_object, print_table


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option("--groups", type=click.Path(), help="JSON with the ranks of each group.")
@with_options((LENIENT, JSON))
def recording(files: tuple[str, ...], groups: str | None, lenient: bool, as_json: bool) -> None:
    """List the collectives in traces of PyTorch's profiler, and how long ranks did what.

    Any ranks of a job do.
    """
    from optmatch.io.rails.groups import read_groups
    from optmatch.io.rails.kineto.job import list_calls, measure
    from optmatch.io.rails.kineto.recordings import read_recording

    members = None if groups is None else read_groups(groups)
    skipped: list[str] | None = [] if lenient else None
    recordings = [read_recording(file, groups=members, skipped=skipped) for file in files]
    say_skipped(skipped)
    calls, times = list_calls(recordings), [measure(one) for one in recordings]
    if as_json:
        told = [{"file": one.path, "rank": one.rank} for one in recordings]
        ranks = [{**one, **time._asdict()} for one, time in zip(told, times, strict=True)]
        rows = [{**call._asdict(), "ranks": list(call.ranks)} for call in calls]
        print_object("recording", {"ranks": ranks, "collectives": rows})
        return
    shown = [[f"{us:.6f}" for us in time] for time in times]
    ranks_told = [["file", "communication s", "computation s", "overlap s", "span s"]]
    print_table(ranks_told + [[r.path, *row] for r, row in zip(recordings, shown, strict=True)])
    click.echo()
    head = ["operation", "group", "ranks", "bytes", "times", "mean s"]
    print_table(
        [head]
        + [
            [
                c.operation,
                c.group,
                str(len(c.ranks)),
                str(c.size_bytes),
                str(c.count),
                f"{c.mean_s:.6f}",
            ]
            for c in calls
        ]
    )
