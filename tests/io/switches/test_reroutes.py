"""The state that a switch is in, from its configuration: circuits, spares and blocked ports."""

import json
from pathlib import Path

import pytest

import optmatch as om
from optmatch.io import loads
from optmatch.io.switches.circuits import PortSides, PortTable
from optmatch.io.switches.sonic import read_running_state
from optmatch.model import InputError
from tests.helpers.command import call

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
    path = tmp_path / "config_db.json"
    path.write_text(json.dumps(CONFIG))
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
    sides = tmp_path / "sides.csv"
    sides.write_text("port,A,B\n0,1A,1B\n1,2A,2B\n2,3A,3B\n")
    done = call("generate", "reroute", "--state", config, "--port-sides", sides)
    assert loads(done.stdout).fabric.n_ports == 3  # type: ignore[union-attr]
