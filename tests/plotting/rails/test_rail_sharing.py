"""Pictures and tables of jobs that share rails but are not on the same ones."""

from typing import Any

import optmatch as om
from optmatch.plotting.rail_sharing import draw, rail_sharing_data, tabulate
from optmatch.problems import NamedJob, RailSharing
from optmatch.problems.rails.training.step import COMPUTE, RECV, SEND
from tests.verify.rules.rails import group, job


def shared(*jobs: om.RailJob) -> Any:
    """Return a division of switches of two ports among jobs."""
    named = tuple(NamedJob(f"job-{number}", job) for number, job in enumerate(jobs))
    return om.solve(RailSharing(jobs=named, radix=2), "static", seed=0)


def message_on_rail(rail: int) -> om.RailJob:
    """Return a job of one message on a rail."""
    rows = [[0, SEND, 0, 8, 0, 1, 0], [1, RECV, 0, 8, 0, 0, 0]]
    return job([group((0, 1), "pp", rail)], rows)


def test_ports_of_different_rails_are_not_added_up() -> None:
    solution = shared(message_on_rail(0), message_on_rail(1))
    assert solution.answer.first_port.tolist() == [[0, -1], [-1, 0]]
    data = rail_sharing_data(solution)
    assert data.start.tolist() == [0, 0] and data.end.tolist() == [2, 2]
    assert tabulate(solution)["first_port"] == [0, 0]
    right = draw(solution).axes[1]
    assert right.get_title() == "2 of 2 ports of a rail are used"
    assert right.get_xlabel() == "ports of the first rail of each job"


def test_jobs_on_no_rail_have_no_port() -> None:
    alone = job([], [[0, COMPUTE, -1, 0, 1, -1, -1]])
    assert tabulate(shared(alone))["first_port"] == [-1]
    solution = shared(alone, message_on_rail(0))
    assert tabulate(solution)["first_port"] == [-1, 0]
    data = rail_sharing_data(solution)
    assert data.start.tolist() == [0, 0] and data.end.tolist() == [0, 2]
    assert draw(solution).axes[1].get_title() == "2 of 2 ports of a rail are used"
