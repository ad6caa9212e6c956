"""Measured losses: SONiC's table in a file, at a frequency and a temperature, or a matrix."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.io import loads
from optmatch.io.switches.circuits import PortSides, PortTable
from optmatch.io.switches.sonic import Conditions, matrix_of_losses, read_running_state
from optmatch.model import FormatError, InputError
from optmatch.switches import read_losses
from tests.helpers.command import call, put


def loss_db(a: int, b: int, thz: float, celsius: float) -> float:
    """Return a loss that is bilinear in frequency and temperature."""
    return a + b / 10 + thz / 100 + celsius / 1000 + thz * celsius / 1e5


ROWS = {
    f"{a}A-{b}B|{thz}|{celsius}": {
        "loss_dB": repr(loss_db(a, b, thz, celsius)),
        "accuracy_dB": "0.25",
    }
    for a in range(1, 4)
    for b in range(1, 4)
    for thz in (191.0, 193.0, 196.0)
    for celsius in (20.0, 70.0)
}


@pytest.mark.parametrize("thz", [191.0, 192.2, 193.0, 195.5, 196.0])
@pytest.mark.parametrize("celsius", [20.0, 31.0, 70.0])
def test_losses_are_interpolated_between_what_was_measured(thz: float, celsius: float) -> None:
    found = matrix_of_losses(ROWS, conditions=Conditions(thz, celsius))
    expected = [[loss_db(a, b, thz, celsius) + 0.25 for b in (1, 2, 3)] for a in (1, 2, 3)]
    assert np.allclose(found, expected)


def test_without_conditions_the_worst_counts() -> None:
    found = matrix_of_losses(ROWS, conditions=Conditions(add_accuracy=False))
    assert found[0, 1] == loss_db(1, 2, 196.0, 70.0)


@pytest.mark.parametrize("dumped", [False, True])
def test_tables_and_dumps_are_read(tmp_path: Path, dumped: bool) -> None:
    path = tmp_path / "loss.json"
    tree: Any = {"OCS_FACTORY_INSERTION_LOSS": ROWS, "OCS_PORT": {}}
    if dumped:
        tree = {
            f"OCS_FACTORY_INSERTION_LOSS|{key}": {"type": "hash", "ttl": -1, "value": row}
            for key, row in ROWS.items()
        }
    path.write_text(json.dumps(tree))
    assert np.array_equal(read_losses(path), matrix_of_losses(ROWS))


@pytest.mark.parametrize("sources", [(1, 2), (2, 1), (1, 3), (3, 2)])
@pytest.mark.parametrize("destinations", [(1, 2), (2, 3), (3, 1)])
def test_rows_with_one_side_of_ours_are_passed_over(
    sources: tuple[int, int], destinations: tuple[int, int]
) -> None:
    """They come before and behind the rows that count, by either side."""
    sides = zip(sources, destinations, strict=True)
    ports = PortTable([PortSides(f"{a}A", f"{b}B") for a, b in sides])
    found = matrix_of_losses(ROWS, ports, Conditions(191.0, 20.0, add_accuracy=False))
    assert found.tolist() == [[loss_db(a, b, 191.0, 20.0) for b in destinations] for a in sources]


def test_a_matrix_is_read(tmp_path: Path) -> None:
    path = put(tmp_path, "loss.csv", "1.0,3.5\n2.0,1.0\n")
    assert read_losses(path).tolist() == [[1.0, 3.5], [2.0, 1.0]]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"1A-2B|191.0": {"loss_dB": "1"}}, "CIRCUIT|THZ|CELSIUS"),
        ({"1A-2A|191.0|20.0": {"loss_dB": "1"}}, "1A-2A"),
        ({"1A-2B|191.0|20.0": {"accuracy_dB": "1"}}, "loss_dB"),
        ({"1A-2B|191.0|20.0": {"loss_dB": "much"}}, "number"),
        ({"1A-2B|191.0|20.0": {"loss_dB": "-1"}}, "loss_dB"),
    ],
)
def test_a_wrong_row_is_named(change: Any, named: str) -> None:
    with pytest.raises(FormatError, match=named.replace("|", r"\|")):
        matrix_of_losses(ROWS | change)


def test_what_was_not_measured_is_named() -> None:
    rows = {key: row for key, row in ROWS.items() if key != "2A-3B|193.0|20.0"}
    with pytest.raises(InputError, match="2A-3B was not measured"):
        matrix_of_losses(rows)
    with pytest.raises(InputError, match="frequency_thz = 200: losses were measured from 191"):
        matrix_of_losses(ROWS, conditions=Conditions(200.0))


def test_rows_by_their_whole_keys_without_types_are_read(tmp_path: Path) -> None:
    """As other programs dump a database: the table stands in each key, the fields below it."""
    path = tmp_path / "loss.json"
    prefix = "OCS_FACTORY_INSERTION_LOSS|"
    tree: dict[str, Any] = {f"{prefix}{key}": row for key, row in ROWS.items()}
    path.write_text(json.dumps(tree))
    assert np.array_equal(read_losses(path), matrix_of_losses(ROWS))
    tree[f"{prefix}1A-1B|191.0|20.0"] = 7
    path.write_text(json.dumps(tree))
    with pytest.raises(FormatError, match="an object with loss_dB is expected"):
        read_losses(path)


@pytest.mark.parametrize("circuit", ["1-1A-1B", "1A-2-1B"])
def test_ports_of_modules_need_a_table(circuit: str) -> None:
    rows = {f"{circuit}|191.0|20.0": {"loss_dB": "1.0", "accuracy_dB": "0.1"}}
    with pytest.raises(InputError, match="ports of modules need a table of ports"):
        matrix_of_losses(rows)


# The state that a switch is in, from its configuration: circuits, spares and blocked ports.


CONFIG = {
    "OCS_PORT": {
        f"{number}{side}": {"state": "force_blocked" if number == 5 else "normal"}
        for number in range(1, 7)
        for side in "AB"
    },
    "OCS_CROSS_CONNECT": {
        "1A-2B": {"a_side": "1A", "b_side": "2B"},
        "2A-3B": {"a_side": "2A", "b_side": "3B"},
    },
    "DEVICE_METADATA": {},
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return a configuration in a file."""
    path = put(tmp_path, "config_db.json", json.dumps(CONFIG))
    return path


def test_circuits_spares_and_blocked_ports(config: Path) -> None:
    state = read_running_state(config)
    assert state.circuits.tolist() == [[0, 1], [1, 2]]
    assert state.spares == (3, 5)
    assert state.failed_ports == (4,)
    assert not state.hit.any()


def test_a_failure_in_it_is_answered(config: Path) -> None:
    done = call("generate", "reroute", "--state", config, "--failed-ports", "1")
    problem = loads(done.stdout)
    solution = om.solve(problem, seed=0)  # type: ignore[arg-type]
    assert om.verify(solution).ok
    assert solution.answer.moves.tolist() == [[1, 3]]


def test_losses_choose_the_spare(config: Path, tmp_path: Path) -> None:
    loss = tmp_path / "loss.csv"
    rows = [[1.0] * 6 for _ in range(6)]
    rows[0][3] = 4.0  # from the first port to the first spare
    loss.write_text("\n".join(",".join(map(str, row)) for row in rows))
    done = call(
        *("generate", "reroute", "--state", config, "--failed-ports", "1"),
        *("--loss", loss, "--budget", "3"),
    )
    problem = loads(done.stdout)
    assert om.solve(problem, seed=0).answer.moves.tolist() == [[1, 5]]  # type: ignore[arg-type]


def test_a_table_leaves_out_ports_of_others(config: Path, tmp_path: Path) -> None:
    table = PortTable([PortSides("1A", "1B"), PortSides("2A", "2B"), PortSides("3A", "3B")])
    assert read_running_state(config, table).spares == ()
    with pytest.raises(InputError, match="circuit 2A-3B: only one of its sides"):
        read_running_state(config, PortTable(table.sides[:2]))
    sides = put(tmp_path, "sides.csv", "port,A,B\n0,1A,1B\n1,2A,2B\n2,3A,3B\n")
    done = call("generate", "reroute", "--state", config, "--port-sides", sides)
    assert loads(done.stdout).fabric.n_ports == 3  # type: ignore[union-attr]
