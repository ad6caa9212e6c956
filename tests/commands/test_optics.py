"""`optmatch optics`: states to measure, and what was measured against the model."""

import json
from pathlib import Path

import numpy as np

import optmatch as om
from tests.helpers.command import call

FABRIC = om.Crossbar(3)


def measure(folder: Path, loss_db: float) -> None:
    """Measure a crossbar without leaks whose cell 4 loses more, by following its light."""
    from optmatch.fabrics.light import trace

    with np.load(folder / "states.npz") as archive:
        states = archive["cell_states"]
    starts = np.broadcast_to(FABRIC.source_terminals, (len(states), 3))
    light = trace(FABRIC.graph, states, starts)
    lost = np.zeros((len(states), 3))
    np.add.at(lost, (light.slot, light.beam), np.where(light.entered // 4 == 4, loss_db, 0.1))
    power = np.zeros((len(states), 3, 3))
    ends = FABRIC.destination_terminals.tolist()
    for k, i in np.ndindex(lost.shape):
        if light.arrived[k, i] in ends:
            power[k, i, ends.index(light.arrived[k, i])] = 10 ** (-lost[k, i] / 10)
    np.savez(folder / "measured.npz", cell_states=states, power=power)


def test_from_states_to_the_cell(tmp_path: Path) -> None:
    """States are chosen, a chip is measured in them, and its cell is found."""
    problem, states = str(tmp_path / "p.json"), str(tmp_path / "states.npz")
    om.save(om.Routing(FABRIC, [0, 1, 2]), problem)
    device = tmp_path / "device.json"
    device.write_text('{"format": "optmatch/device/1", "bar_loss_db": 0.1, "cross_loss_db": 0.1}')
    assert call("optics", problem, "--choose", "6", "-o", states).exit_code == 0
    assert call("optics", problem, "--choose", "6", "-o", states).exit_code == 2  # no --force
    measure(tmp_path, 1.1)
    measured = ("--measured", str(tmp_path / "measured.npz"), "--device", str(device))
    shown = call("optics", problem, *measured)
    assert shown.exit_code == 0
    assert "  cell 4: bar: loss 1.10 dB" in shown.stdout
    found = json.loads(call("optics", problem, *measured, "--json").stdout)
    assert [suspect["cell"] for suspect in found["suspects"]] == [4]
    assert min(min(map(min, rows)) for rows in found["difference_db"]) < -0.9
    measure(tmp_path, 0.1)
    assert "no single cell explains more" in call("optics", problem, *measured).stdout


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    problem = str(tmp_path / "p.json")
    om.save(om.Routing(FABRIC, [0, 1, 2]), problem)
    for words in ((), ("--choose", "3"), ("--choose", "3", "-o", "x.npz", "--measured", "y.npz")):
        done = call("optics", problem, *words)
        assert done.exit_code == 2
        assert "either --choose and --output, or --measured" in done.stderr
    done = call("optics", problem, "--measured", str(tmp_path / "absent.npz"))
    assert done.exit_code != 0
    assert "absent.npz: cannot be read" in done.stderr
