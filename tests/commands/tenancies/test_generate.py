"""Tenancies on the command line: jobs in words, and an answer that becomes the next question."""

from pathlib import Path

import pytest

import optmatch as om
from optmatch.io import loads
from optmatch.problems import Tenancy, Tenant
from tests.helpers.command import call

GENERATE = ("generate", "tenancy", "--rows", "4", "--cols", "4", "--ports", "8")


def test_jobs_come_and_go(tmp_path: Path) -> None:
    first, answer = tmp_path / "first.json", tmp_path / "answer.json"
    jobs = ("--job", "a:2", "--job", "b:4", "--job", "c:2:all-reduce:6")
    assert call(*GENERATE, *jobs, "--delay", "0.5", "-o", first).exit_code == 0
    tenants = Tenant("a", 2), Tenant("b", 4), Tenant("c", 2, "all-reduce", size_bytes=6.0)
    assert om.load(first) == Tenancy(om.HexMesh(4, 4, ports=8), tenants, delay_s=0.5)
    assert call("solve", first, "--seed", "0", "-o", answer).exit_code == 0
    later = ("--job", "b:4", "--job", "c:3", "--job", "d:1", "--previous", answer)
    done = call(*GENERATE, *later)
    again: Tenancy = loads(done.stdout)  # type: ignore[assignment]
    solution = om.load(answer)
    assert isinstance(solution, om.Solution)
    assert [tenant.held for tenant in again.tenants] == [solution.answer.ports[1], None, None]


def test_a_random_demand_is_that_of_its_seed() -> None:
    drawn = [
        loads(call(*GENERATE, "--job", "a:6:demand:3", "--seed", seed).stdout).tenants[0]  # type: ignore[union-attr]
        for seed in ("4", "4", "5")
    ]
    demand = drawn[0].demand_bytes
    assert drawn[0] == drawn[1] != drawn[2]
    assert set(demand.ravel().tolist()) == {0.0, 1.0, 2.0, 3.0} and not demand.diagonal().any()


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("a", "--job a: NAME:PORTS[:QUESTION[:BYTES]]"),
        ("a:two", "--job a:two: NAME:PORTS[:QUESTION[:BYTES]]"),
        ("a:2:gossip", "a question is all-to-all, demand"),
        ("a:2:demand:3:4", "a question is all-to-all, demand"),
        ("a:2:demand", "a random demand is of 1 byte or more"),
        ("a:2:demand:nan", "a random demand is of 1 byte or more"),
        ("a:99999999:demand:1", "at most 100000000"),
        ("a:-3", "n_ports = -3: must be >= 1"),
        ("a:2:all-reduce", "size_bytes = 0: above 0 of a collective"),
        ("a:9", "9 ports are needed, and 8 are alive"),
    ],
)
def test_jobs_that_are_none_are_refused(job: str, message: str) -> None:
    done = call(*GENERATE, "--job", job)
    assert done.exit_code == 2 and not done.stdout
    assert message in " ".join(done.stderr.split())


def test_previous_is_an_answer_to_a_tenancy(tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    assert call(*GENERATE, "--job", "a:2", "-o", path).exit_code == 0
    done = call(*GENERATE, "--job", "a:2", "--previous", path)
    assert done.exit_code == 2 and "no answer to a tenancy" in done.stderr
