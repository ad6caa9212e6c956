"""Tables of resources and jobs: read whole, or refused by name."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import optmatch as om
from optmatch.io import read_jobs, read_resources
from tests.helpers.command import call, put, refused
from tests.helpers.sharing import Jobs, Resources

pa = pytest.importorskip("pyarrow")

PORTS = "cpu,data,arrival_s,departure_s,plane\n4,1,0,5,0\n8,2.5,1,9,1\n"
JOBS = "demand,cpu,data,cap.0,cap.1\n1,6,0,1,1\n1,0,0,2,0\n"
EXPECTED = Resources(
    [[4.0, 8.0], [1.0, 2.5]],
    arrival_s=[0, 1],
    departure_s=[5, 9],
    plane=[0, 1],
    names=("cpu", "data"),
)


def write(path: Path, text: str) -> Path:
    """Write a table as the ending of its name says."""
    if path.suffix == ".parquet":
        from pyarrow import csv, parquet

        parquet.write_table(csv.read_csv(pa.BufferReader(text.encode())), path)
    else:
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_tables_are_read(tmp_path: Path, ending: str) -> None:
    resources = read_resources(write(tmp_path / f"ports.{ending}", PORTS))
    assert resources == EXPECTED
    jobs = read_jobs(write(tmp_path / f"jobs.{ending}", JOBS), resources)
    assert jobs.demand.tolist() == [1, 1]
    assert jobs.public.tolist() == [[6.0, 0.0], [0.0, 0.0]]
    assert jobs.plane_caps is not None
    assert jobs.plane_caps.tolist() == [[1, 1], [2, 0]]
    assert om.solve(om.PortSharing(resources, jobs), seed=0).answer.job_of.tolist() == [1, 0]


def test_rows_that_take_no_bytes_are_counted(tmp_path: Path, monkeypatch: Any) -> None:
    path = write(tmp_path / "ports.parquet", "cpu,ram\n" + "0,0\n" * 5000)
    monkeypatch.setenv("OPTMATCH_MAX_ENTRIES", "9999")
    with pytest.raises(om.FormatError, match=r"10000 entries: at most 9999"):
        read_resources(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cpu\n4\n8", "the file is cut off"),
        ("cpu,ram\n4,5\n8\n", "Expected 2 columns"),
        (
            "cpu\n4\nmany\n",
            "column 'cpu': numbers are expected, not string; rows are numbered from 0",
        ),
        ("cpu,ram\n4,1\n8,\n", "column 'ram', row 1: empty"),
        ("cpu,cpu\n4,1\n", "two columns have one name"),
        ("cpu\nnan\n", "public[0, 0] = nan"),
        ("cpu,arrival_s,departure_s\n1,3,2\n", "departure_s[0] = 2: after its arrival, 3"),
        ("", "the file is cut off"),
        ("plane\n0\n", "one attribute of resources or more"),
    ],
)
def test_a_damaged_table_is_refused_by_name(tmp_path: Path, text: str, told: str) -> None:
    path = put(tmp_path, "ports.csv", text)
    jobs, out = write(tmp_path / "jobs.csv", JOBS), tmp_path / "out.json"
    command: list[Any] = ["generate", "port-sharing", "--resource-table", path]
    result = call(*command, "--job-table", jobs, "-o", out, code=2)
    assert not out.exists()
    assert told in result.output and "ports.csv" in result.output


def test_a_truncated_parquet_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "ports.parquet", PORTS)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(om.FormatError, match=r"ports\.parquet: cannot be read"):
        read_resources(path)


def test_columns_of_jobs_are_known_ones(tmp_path: Path) -> None:
    for text, told in (
        ("demand,gpu\n1,4\n", "column 'gpu': known are cpu, data"),
        ("cpu\n4\n", "column 'demand' is missing"),
        ("demand,cap.1\n1,4\n", "column 'cap.0' is missing"),
        ("demand\n-1\n", "demand[0] = -1: must be >= 0"),
    ):
        with pytest.raises(om.InputError, match=r"jobs\.csv") as caught:
            read_jobs(write(tmp_path / "jobs.csv", text), EXPECTED)
        assert told in str(caught.value)


def test_the_command_draws_a_problem(tmp_path: Path) -> None:
    out, answer = tmp_path / "p.json", tmp_path / "a.schedule.json"
    for _ in range(2):
        call("generate", "port-sharing", "--resources", 40, "--jobs", 3, "--seed", 7,
                    "--objective", "max-min", "--force", "-o", out)  # fmt: skip
    call("solve", out, "--seed", 0, "-o", answer)
    verified = call("verify", answer, "--json")
    assert json.loads(verified.output.splitlines()[0])["ok"]
    solution: Any = om.load(answer)
    assert solution.to_dataframe()["job"].tolist() == solution.answer.job_of.tolist()
    call("generate", "port-sharing", "--job-table", out, code=2)


def test_a_job_that_nobody_can_serve_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    om.save(om.PortSharing(Resources([[4.0]], names=("cpu",)), Jobs([1], [[4.0]])), path)
    path.write_text(path.read_text().replace("[4.0]", "[5.0]", 2).replace("[5.0]", "[4.0]", 1))
    refused("job 0 (cpu >= 5, since 0 s): no resource can serve it", "solve", path)


def test_demands_that_no_number_counts_are_refused() -> None:
    with pytest.raises(om.InputError, match=r"at most 2\*\*53 resources in all"):
        Jobs([2**62, 2**62], [[1.0, 1.0]])


def test_a_field_that_is_gone_may_be_null(tmp_path: Path) -> None:
    """Files of former versions have it, and their digests hold; what it says is refused."""
    problem = om.PortSharing(Resources([[1.0, 2.0]]), Jobs([1], [[1.0]]))
    solution = om.solve(problem, seed=0)
    tree = json.loads(om.io.dumps(solution))
    assert "private" not in tree["problem"]["resources"]
    tree["problem"]["resources"]["private"] = None
    tree["problem"]["jobs"] |= {"private": None, "rounds": None}
    assert om.io.loads(json.dumps(tree)) == solution
    for part, name, value in (("jobs", "rounds", [2]), ("resources", "private", [[1.0, 1.0]])):
        said = json.loads(json.dumps(tree))
        said["problem"][part][name] = value
        with pytest.raises(om.FormatError, match=f"/problem/{part}/{name}: key '{name}': .* gone"):
            om.io.loads(json.dumps(said))
