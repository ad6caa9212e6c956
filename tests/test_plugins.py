"""Methods of other packages: a broken one does not disturb the others."""

import os
from pathlib import Path

from tests.helpers.command import python

MODULE = """
import sys, time
from optmatch.problems import Routing
from optmatch.solvers import Method

good = Method("good", Routing, lambda: None, "Of a plugin.")
twice = (good,)
ours = Method("negotiated", Routing, lambda: None, "A name that is taken.")
other = "no method"

def __getattr__(name):
    if name == "hangs":
        time.sleep(60)
    if name == "exits":
        sys.exit(3)
    if name == "interrupts":
        raise KeyboardInterrupt
    raise AttributeError(name)
"""
COMPLAINTS = {
    "raises": "ZeroDivisionError: division by zero",
    "absent": "ModuleNotFoundError: No module named 'absent_of_optmatch'",
    "hangs": "not loaded after 0.5 s",
    "exits": "SystemExit: 3",
    "interrupts": "KeyboardInterrupt: ",
    "other": "offers:other is no optmatch.solvers.Method",
    "twice": "there is a method 'good' already",
    "ours": "there is a method 'negotiated' already",
}
COMMAND = """
from optmatch import kinds
from optmatch.cli import main
kinds.PLUGIN_TIME_S = 0.5
main(["methods"], prog_name="optmatch")
"""


def test_a_plugin_costs_itself(tmp_path: Path) -> None:
    (tmp_path / "offers.py").write_text(MODULE)
    (tmp_path / "raises.py").write_text("1 / 0")
    about = tmp_path / "offers-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: offers\nVersion: 1.0\n")
    places = {name: f"offers:{name}" for name in COMPLAINTS}
    places |= {"good": "offers:good", "raises": "raises:x", "absent": "absent_of_optmatch:x"}
    lines = "\n".join(f"{name} = {places[name]}" for name in ("good", *COMPLAINTS))
    (about / "entry_points.txt").write_text(f"[optmatch.methods]\n{lines}\n")
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    done = python("-c", COMMAND, PYTHONPATH=path)
    assert "Of a plugin." in done.stdout
    assert "negotiated" in done.stdout
    for name, complaint in COMPLAINTS.items():
        assert f"method '{name}' of offers cannot be used: {complaint}" in done.stderr
