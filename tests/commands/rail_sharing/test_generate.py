"""Rail sharing on the command line: from jobs to shares that are verified and drawn."""

import json
from pathlib import Path

import optmatch as om
from tests.helpers.command import call
from tests.helpers.rails import small_job


def test_jobs_become_shares(tmp_path: Path) -> None:
    job, problem, answer = (tmp_path / f"{name}.json" for name in ("one", "shared", "shares"))
    om.save(small_job(2, 1, 2, ports_per_gpu=2), job)
    words = ("--radix", "12", "--by", "ports", "-o", problem)
    assert call("generate", "rail-sharing", job, f"two={job}", *words).exit_code == 0
    read = om.load(problem)
    assert isinstance(read, om.RailSharing)
    assert [named.name for named in read.jobs] == ["one", "two"]
    solved = call("solve", problem, "--method", "provisioned", "--seed", "0", "-o", answer)
    assert solved.exit_code == 0 and "dp 2, ports of a GPU" in solved.stdout
    assert call("verify", answer).exit_code == 0
    report = json.loads(call("verify", answer, "--json").stdout)
    assert report["figures"]["objective"] >= 1


def test_what_is_no_job_is_refused(tmp_path: Path) -> None:
    mesh = tmp_path / "mesh.json"
    om.save(om.AllToAll(om.HexMesh(2, 2, ports=4)), mesh)
    target = tmp_path / "shared.json"
    done = call("generate", "rail-sharing", mesh, "--radix", "12", "-o", target)
    assert done.exit_code == 2 and "a rail job is expected" in done.stderr
    assert not target.exists()


def test_jobs_need_names(tmp_path: Path) -> None:
    job, target = tmp_path / "one.json", tmp_path / "shared.json"
    om.save(small_job(2, 1, 2), job)
    done = call("generate", "rail-sharing", f"={job}", "--radix", "12", "-o", target)
    assert done.exit_code == 2 and "jobs[0].name = '': a name is expected" in done.stderr
    assert not target.exists()


def test_paths_may_have_an_equals_sign(tmp_path: Path) -> None:
    folder, target = tmp_path / "lr=0.1", tmp_path / "shared.json"
    folder.mkdir()
    job = folder / "one.json"
    om.save(small_job(2, 1, 2), job)
    words = ("--radix", "12", "-o", target)
    done = call("generate", "rail-sharing", job, f"two={job}", *words)
    assert done.exit_code == 0, done.output
    read = om.load(target)
    assert isinstance(read, om.RailSharing)
    assert [named.name for named in read.jobs] == ["one", "two"]
