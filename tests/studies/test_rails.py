"""Jobs on the same rails: ports that do not clash, verified plans, and the best division."""

from itertools import product
from typing import Any

import pytest

import optmatch as om
from optmatch.studies.rails import share_rails
from tests.helpers.rails import change_job, make_job, message_step, small_job


def jobs_of(*ports: int) -> dict[str, om.RailJob]:
    """Return jobs of different sizes, each with so many ports for a GPU."""
    return {
        f"job-{k}": small_job(2 * (1 + k % 2), 1, 2, ports_per_gpu=each, gpus_per_server=1 + k % 2)
        for k, each in enumerate(ports)
    }


@pytest.mark.parametrize(
    ("ports", "radix"), [((2, 2), 8), ((2, 2, 2), 16), ((4, 1), 11), ((3,), 9)]
)
def test_no_division_has_a_smaller_worst_slowdown(ports: Any, radix: int) -> None:
    """Against every division of the ports, each plan solved here."""
    jobs = jobs_of(*ports)
    shares = share_rails(jobs, radix, method="provisioned")
    times = []
    for name, job in jobs.items():
        row: dict[int, float] = {}
        for k in range(1, job.network.ports_per_gpu + 1):
            each = change_job(job, ports_per_gpu=k)
            if k * job.n_gpus // job.network.gpus_per_server <= radix:
                found = om.solve(each, method="provisioned", seed=0)
                assert isinstance(found.objective, float)
                row[k] = found.objective
        alone = min(row.values())
        times.append({k: value / alone for k, value in row.items()})
        assert shares[name].alone.objective == alone
        assert shares[name].slowdown == times[-1][shares[name].ports_per_gpu]
    gpus = [job.n_gpus // job.network.gpus_per_server for job in jobs.values()]
    rails = [job.network.gpus_per_server for job in jobs.values()]

    def fits(given: Any) -> bool:
        return all(
            sum(k * n for k, n, r in zip(given, gpus, rails, strict=True) if r > rail) <= radix
            for rail in range(max(rails))
        )

    allowed = [given for given in product(*times) if fits(given)]
    worst = [max(row[k] for row, k in zip(times, given, strict=True)) for given in allowed]
    assert max(each.slowdown for each in shares.values()) == min(worst)
    for rail in range(max(rails)):
        own = [port for each in shares.values() for port in each.ports.get(rail, ())]
        assert len(own) == len(set(own))
        assert max(own) < radix
    for name, tenant in shares.items():
        divided = change_job(jobs[name], ports_per_gpu=tenant.ports_per_gpu)
        assert om.verify(divided, tenant.beside.answer).valid


def test_what_cannot_be_shared_is_refused() -> None:
    jobs = jobs_of(1, 1)
    with pytest.raises(om.InputError, match="radix = 7 ports: rail 0 has 8 GPUs of 2 jobs"):
        share_rails(jobs, 7)
    with pytest.raises(om.InputError, match="job a: switching = 'all-stop'"):
        share_rails({"a": small_job(switching="all-stop")}, 64)
    with pytest.raises(om.InputError, match="job a: a fabric of its own"):
        share_rails({"a": small_job(fabric=om.IdealSwitch(4))}, 64)


def test_a_recorded_job_has_the_ports_of_its_rail() -> None:
    shares = share_rails({"a": make_job(gpus_per_server=1, recorded=message_step())}, 2)
    assert shares["a"].ports == {0: range(2)}
    assert shares["a"].slowdown == 1
