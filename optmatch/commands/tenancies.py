"""`optmatch generate tenancy`: jobs side by side on one switch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import click
import numpy as np
from numpy.typing import NDArray

from optmatch.commands.shared.options import (
    CONDITION_OPTIONS,
    FABRIC_OPTIONS,
    FILE_OPTIONS,
    build_fabric,
    count,
    field_options,
    with_options,
    write_problem,
)
from optmatch.model import InputError, Solution, check_size
from optmatch.problems import Tenancy, TenancyPlan, Tenant
from optmatch.problems.tenancies import Question

_TIMES = ("slot_s", "delay_s", "rate_bytes_per_s", "alpha_s")


@click.command()
@with_options(FABRIC_OPTIONS)
@with_options(CONDITION_OPTIONS)
@click.option(
    "--job",
    "jobs",
    multiple=True,
    required=True,
    metavar="NAME:PORTS[:QUESTION[:BYTES]]",
    help="A job, all-to-all unless said: a:8, b:8:all-reduce:64, or c:4:demand:3 for a random"
    " demand of at most 3 bytes between two ports.",
)
@click.option(
    "--previous",
    type=click.Path(),
    help="The answer to an earlier tenancy: jobs of the same name and size hold those ports.",
)
@count("--seed", 0, "Seed of random demands.")
@with_options(field_options(Tenancy, _TIMES))
@with_options(FILE_OPTIONS)
def tenancy(
    type_: str,
    output: str,
    force: bool,
    jobs: tuple[str, ...],
    previous: str | None,
    seed: int,
    **options: Any,
) -> None:
    """Jobs on ports of one switch, side by side, each with its own question."""
    # Each of `jobs` is a text such as "b:8:all-reduce:64": name, number of ports, question, bytes.
    # `previous` is an earlier answer, whose ports jobs keep, None for none. `options` are those of
    # the switch, and times in seconds.
    rng = np.random.default_rng(seed)
    times = {name: options.pop(name) for name in _TIMES}
    ports_of_job = {} if previous is None else _read_previous_ports(previous)
    tenants = []
    for text in jobs:
        tenant = _read_job(text, rng)

        # A job that has another size now cannot keep its ports.
        ports = ports_of_job.get(tenant.name, ())
        if len(ports) == tenant.n_ports:
            tenant = replace(tenant, held=ports)
        tenants.append(tenant)
    write_problem(Tenancy(build_fabric(type_, options), tuple(tenants), **times), output, force)


def _read_job(text: str, rng: np.random.Generator) -> Tenant:
    """Read a job, such as ``a:8``, ``b:8:all-reduce:64`` or ``c:4:demand:3``.

    Parameters
    ----------
    text
        Name, number of ports, question and bytes; of a demand the most bytes between two ports. A
        question says what the job does on its ports, "all-to-all" where it is missing.
    rng
        Draws the bytes of a demand.

    Returns
    -------
    Tenant
        The job.

    Raises
    ------
    click.UsageError
        If the text is no such job.
    """
    name, *parts = text.split(":")
    try:
        n_ports = int(parts[0])
        question = parts[1] if len(parts) > 1 else "all-to-all"
        size_bytes = float(parts[2]) if len(parts) > 2 else 0.0
    except (ValueError, IndexError):
        raise click.UsageError(f"--job {text}: NAME:PORTS[:QUESTION[:BYTES]]") from None
    if len(parts) > 3 or question not in get_args(Question):
        raise click.UsageError(f"--job {text}: a question is {', '.join(get_args(Question))}")
    try:
        if question != "demand":
            return Tenant(name, n_ports, question, size_bytes=size_bytes)  # type: ignore[arg-type]
        demand_bytes = _draw_demand(text, n_ports, size_bytes, rng)
        return Tenant(name, n_ports, "demand", demand_bytes=demand_bytes)
    except InputError as exc:
        raise click.UsageError(f"--job {text}: {exc.message}") from None


def _draw_demand(
    text: str, n_ports: int, max_bytes: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw a random demand between the ports of a job.

    Parameters
    ----------
    text
        The job, for messages.
    n_ports
        The number of its ports.
    max_bytes
        The most bytes between two ports; entries are whole numbers up to this one.
    rng
        The generator of random numbers.

    Returns
    -------
    array, shape (ports, ports)
        Bytes from source to destination; a port sends nothing to itself.

    Raises
    ------
    click.UsageError
        If `max_bytes` is below 1, or too large for whole numbers.
    """
    # Whole numbers of 2**53 and more have no exact float.
    if not 1 <= max_bytes < 2**53:
        raise click.UsageError(f"--job {text}: a random demand is of 1 byte or more")
    check_size("entries", n_ports**2, "--job")
    shape = (max(0, n_ports), max(0, n_ports))
    demand = rng.integers(0, int(max_bytes), shape, endpoint=True)
    np.fill_diagonal(demand, 0)
    return demand.astype(np.float64)


def _read_previous_ports(path: str) -> dict[str, tuple[int, ...]]:
    """Return the ports of each job in the answer to an earlier tenancy.

    Parameters
    ----------
    path
        A schedule file of a tenancy.

    Returns
    -------
    dict
        The numbers of its ports by the name of the job.

    Raises
    ------
    InputError
        If the file holds no such answer.
    """
    from optmatch.io import load

    content = load(path)
    if not isinstance(content, Solution) or not isinstance(content.answer, TenancyPlan):
        raise InputError("no answer to a tenancy", path=path)
    problem: Any = content.problem
    names = [tenant.name for tenant in problem.tenants]
    return dict(zip(names, content.answer.ports, strict=True))
