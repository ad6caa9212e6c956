"""What somebody types on the first day is taken as it is meant, or refused with what to type."""

import json
import sys
from pathlib import Path

import pytest

import optmatch as om
from optmatch.commands.shared.options import read_rate, read_seconds
from optmatch.io import loads
from tests.helpers.command import call, put, refused

TABLE = "0,40\n30,0\n"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20us", 20e-6),
        ("0.3 ms", 0.3e-3),
        ("7ns", 7e-9),
        ("1e-5", 1e-5),
        ("2h", 7200.0),
        ("60", 60),
        ("250ms", 0.25),
        ("1m", 60),
        ("2 H", 7200),
    ],
)
def test_times_are_the_floats_that_they_say(text: str, seconds: float) -> None:
    assert read_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "us", "-1", "nan", "inf", "1.2.3", "3 weeks", "1e999", "9e999999h", "1e400", "5x"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_seconds(text)


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("12.5e9", 12.5e9), ("100Gbit/s", 12.5e9), ("100 Gb/s", 12.5e9), ("100Gbps", 12.5e9),
        ("400Mbit/s", 50e6), ("12.5GB/s", 12.5e9), ("50MB/s", 50e6), ("7bytes/s", 7.0),
        ("0.1TB/s", 1e11), ("8 bit/s", 1.0), ("3kB/s", 3e3),
    ],
)  # fmt: skip
def test_rates_are_the_floats_that_they_say(text: str, bytes_per_s: float) -> None:
    assert read_rate(text) == bytes_per_s


@pytest.mark.parametrize(
    "text",
    [
        *("", "Gbit/s", "1Gbit", "1.2.3GB/s", "1GB/h", "fast"),
        *("nan", "inf", "-inf", "1e999", "1e999GB/s", "9e999999GB/s"),
    ],
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_rate(text)


@pytest.mark.parametrize(
    ("command", "field"),
    [
        ("demand --model uniform --fabric ideal-switch --size 4 --delay 0 --rate", "rate"),
        (
            "demand --model uniform --fabric crossbar --size 4 --delay 0 --packet-rate",
            "packet",
        ),
        ("collective all-reduce --ranks 4 --bytes 8 --rate", "rate"),
    ],
)
def test_every_rate_has_units(command: str, field: str) -> None:
    done = call("generate", *command.split(), "80 Gbit/s")
    assert getattr(loads(done.stdout), f"{field}_bytes_per_s") == 10e9
    for wrong in ("80 parsec", "nan", "9e999999GB/s"):
        done = call("generate", *command.split(), wrong, code=2)
        assert "with its unit, as 100Gbit/s" in done.stderr.replace("\n", " ")


def test_a_matrix_has_a_unit(tmp_path: Path) -> None:
    (tmp_path / "tm.csv").write_text(TABLE)
    matrix = ("--matrix", tmp_path / "tm.csv")
    generate = ("generate", "demand", "--delay", "0", "--matrix-unit", "GB")
    problem = loads(call(*generate, *matrix).stdout)
    assert isinstance(problem, om.Demand)
    assert problem.demand_bytes.tolist() == [[0, 40e9], [30e9, 0]]

    refused(
        "--matrix-unit: only with --matrix",
        *generate,
        "--model",
        "uniform",
        "--size",
        "4",
        "--fabric",
        "ideal-switch",
    )
    trace = put(tmp_path, "trace.0.et", b"")
    done = call(*generate, "--matrix", trace, code=2)
    assert "is a trace, which is in bytes" in done.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("from,to,GB\na,b,12\nb,a,3\n", "GB"),
        ("from,to,bytes\na,b,12\nb,a,3\n", "bytes"),
        ("from,to,traffic (Mbit/s)\na,b,12\nb,a,3\n", "Mbit/s"),
        ("# unit: kB\n0 12\n3 0\n", "kB"),
        ("demand MB,a,b\na,0,12\nb,3,0\n", "MB"),
        ("from,to,demand\na,b,12\nb,a,3\n", None),
    ],
)
def test_a_matrix_has_one_unit(tmp_path: Path, text: str, stated: str | None) -> None:
    """Of the file or of the option: both at once would multiply."""
    (tmp_path / "t.csv").write_text(text)
    words = ("generate", "demand", "--delay", "0", "--matrix", tmp_path / "t.csv")
    call(*words)
    if stated is None:
        problem = loads(call(*words, "--matrix-unit", "GB").stdout)
        assert isinstance(problem, om.Demand) and problem.demand_bytes[0, 1] == 12e9
        return
    done = call(*words, "--matrix-unit", "GB", code=2)
    assert f"says {stated} already" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("command", "field", "value"),
    [
        ("demand --model uniform --fabric ideal-switch --size 4 --delay 20us", "delay_s", 20e-6),
        ("all-to-all --rows 2 --cols 2 --delay 5ms", "delay_s", 5e-3),
        ("all-to-all --rows 2 --cols 2 --slot 2ms", "slot_s", 2e-3),
        ("collective all-reduce --ranks 4 --bytes 8 --alpha 2us", "alpha_s", 2e-6),
    ],
)
def test_every_time_has_units(command: str, field: str, value: float) -> None:
    done = call("generate", *command.split())
    assert getattr(loads(done.stdout), field) == value


def test_a_matrix_gets_an_ideal_switch_of_a_size(tmp_path: Path) -> None:
    (tmp_path / "tm.csv").write_text(TABLE)
    words = ("generate", "demand", "--matrix", tmp_path / "tm.csv", "--size", "9", "--delay", "0")
    done = call(*words)
    problem = loads(done.stdout)
    assert isinstance(problem, om.Demand)
    assert problem.fabric == om.IdealSwitch(9)
    refused(
        "--size: no option of hex-mesh; --fabric ideal-switch, benes",
        *words,
        "--fabric",
        "hex-mesh",
    )


@pytest.mark.parametrize("command", [("solve",), ("generate", "demand", "--delay", "0")])
def test_a_table_is_told_where_it_belongs(command: tuple[str, ...], tmp_path: Path) -> None:
    table = put(tmp_path, "tm.csv", TABLE)
    done = call(*command, table, code=2)
    assert f"--matrix {table}" in done.stderr.replace("\n", " ")


def write_demand(folder: Path, name: str) -> Path:
    """Write a small demand to a file."""
    path = folder / name
    om.save(om.Demand.from_matrix([[0, 3], [2, 0]], delay_s=0.5), path)
    return path


def test_a_picture_of_a_comparison_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    done = call(
        "compare", tmp_path / "no.json", "--methods", "best", "-o", tmp_path / "x.png", code=1
    )
    assert "pictures need matplotlib" in done.stderr
    assert "no.json" not in done.stderr


def test_methods_are_compared_without_being_named(tmp_path: Path) -> None:
    file = write_demand(tmp_path, "a.json")
    done = call("compare", file, "--time-limit", "0.3", "--json")
    rows = json.loads(done.stdout)["rows"]
    assert {"best", "ilp", "solstice"} <= {row["method"] for row in rows}
    refused("perhaps 'best'", "compare", file, "--methods", "bset")


def test_methods_of_a_kind_are_listed() -> None:
    done = call("methods", "demand")
    assert "solstice" in done.stdout
    assert "negotiated" not in done.stdout
    refused("perhaps 'demand'", "methods", "demnd")
    refused("perhaps 'solstice'", "methods", "solstic")


def test_a_report_of_what_is_no_store_is_refused(tmp_path: Path) -> None:
    file = write_demand(tmp_path, "a.json")
    before = file.read_bytes()
    done = call("report", file, code=2)
    assert "no store of a sweep" in done.stderr
    assert "recover" not in done.stderr
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            'methods = ["bset"]',
            "methods: method = 'bset': no method has this name; perhaps 'best'",
        ),
        ('[methods]\ndemands = ["best"]', "methods/demands: demands: no such name; perhaps 'dem"),
        (
            '[methods]\ndemand = ["negotiatd"]',
            "methods/demand: method = 'negotiatd': no method for demand has this name",
        ),
        ("[limit]\ntime_s = 1.0", "limit: no such name; perhaps 'limits'"),
    ],
)
def test_a_spec_is_checked_before_its_first_task(spec: str, message: str, tmp_path: Path) -> None:
    write_demand(tmp_path, "a.json")
    file = put(tmp_path, "spec.toml", f'problems = ["a.json"]\n{spec}\n')
    refused(message, "sweep", file)
    assert not (tmp_path / "spec.sqlite").exists()


def test_a_task_of_no_method_is_refused() -> None:
    problem = om.Demand.from_matrix([[0, 3], [2, 0]], delay_s=0.5)
    with pytest.raises(om.InputError, match="perhaps 'best'"):
        om.Task(problem, "bset")


def test_the_list_of_instances_fits_a_terminal() -> None:
    lines = call("instances", "list").stdout.splitlines()
    assert len(lines) > 70
    assert max(map(len, lines)) <= 100


def test_what_is_saved_comes_first(tmp_path: Path) -> None:
    problem = om.Routing(om.IdealSwitch(2), [1, 0])
    with pytest.raises(om.InputError, match="a problem or a solution comes first"):
        om.save(str(tmp_path / "x.json"), problem)  # type: ignore[arg-type]
    with pytest.raises(om.InputError, match="path of type int: a path is expected"):
        om.save(problem, 3)  # type: ignore[arg-type]
