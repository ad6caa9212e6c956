"""`optmatch warm-up`: compile what first calls would wait for."""

from __future__ import annotations

import click

from optmatch.commands.shared.progress import listening
from optmatch.model import Limits

_STEPS = 12  # of one method: enough for each of its kernels to be called


@click.command("warm-up")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
def warm_up(quiet: bool) -> None:
    """Compile the kernels of the default methods of all kinds of problems.

    First calls then take no longer than others. What is compiled is kept in the folder that
    `optmatch info` names.
    """
    from optmatch.entrances import solve
    from optmatch.kinds import all_kinds
    from optmatch.solvers.kernels.folders import kernel_folder

    problems = [problem for kind in all_kinds() for problem in kind.small_problems()]
    for number, problem in enumerate(problems, 1):
        name = f"{problem.kind} ({number} of {len(problems)})"
        with listening(name, quiet=quiet) as listen:
            solve(problem, seed=0, limits=Limits(iterations=_STEPS), on_event=listen)
    click.echo(f"kernels: {kernel_folder()}")
