"""`optmatch generate port-sharing`: jobs that want resources, drawn or from tables."""

from __future__ import annotations

from dataclasses import replace

import click
import numpy as np

from optmatch.commands.shared.options import (
    FILE_OPTIONS,
    count,
    field_options,
    with_options,
    write_problem,
)
from optmatch.problems import PortSharing
from optmatch.problems.sharing.problem import Objective
from optmatch.problems.sharing.resources import draw_shares


@click.command("port-sharing")
@count("--resources", 100, "How many resources are drawn.", least=1)
@count("--jobs", 5, "How many jobs are drawn, with random bounds and demands.", least=1)
@count("--attributes", 4, "Attributes of each resource, uniform in [0, 1).", least=1)
@count("--levels", 4, "Levels of each attribute on which bounds lie.", least=1)
@click.option(
    "--load", type=float, default=1.0, help="The mean demand of all jobs over the resources."
)
@click.option("--all-or-nothing", is_flag=True, help="Each job takes its whole demand or nothing.")
@click.option(
    "--resource-table",
    type=click.Path(),
    help="Instead of drawn ones: CSV or Parquet, a row for each resource.",
)
@click.option(
    "--job-table",
    type=click.Path(),
    help="With --resource-table: CSV or Parquet, a row for each job.",
)
@with_options(field_options(PortSharing, ("objective",)))
@count("--seed", 0, "The seed of what is drawn.")
@with_options(FILE_OPTIONS)
def port_sharing(
    resources: int,
    jobs: int,
    attributes: int,
    levels: int,
    load: float,
    all_or_nothing: bool,
    resource_table: str | None,
    job_table: str | None,
    objective: Objective,
    seed: int,
    output: str,
    force: bool,
) -> None:
    """Resources that jobs share for one round."""
    # Resources and jobs are read from two tables or, where these are None, drawn: so many of each,
    # with attributes of so many levels, and a mean demand of `load` over the resources.
    if (resource_table is None) != (job_table is None):
        raise click.UsageError("--resource-table and --job-table: both or none")
    if resource_table is not None and job_table is not None:
        from optmatch.io.sharing import read_jobs, read_resources

        pool = read_resources(resource_table)
        requests = read_jobs(job_table, pool)
    else:
        pool, requests = draw_shares(
            resources,
            jobs,
            np.random.default_rng(seed),
            attributes=attributes,
            levels=levels,
            load=load,
        )
    if all_or_nothing:
        requests = replace(requests, all_or_nothing=np.ones(requests.n_jobs, dtype=np.int8))
    write_problem(PortSharing(pool, requests, objective), output, force)
