"""Files that are replaced whole: what a killed run has left goes away with the next one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from optmatch.model.files import replace_file


@pytest.mark.skipif(os.name == "nt", reason="nobody can ask there whether a process lives")
def test_parts_of_dead_processes_are_removed(tmp_path: Path) -> None:
    """Those of living ones, and of other files, stay."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    stale = tmp_path / f".a.json.{ended.pid}-0000.part"
    alive = tmp_path / f".a.json.{os.getpid()}-0000.part"
    other = tmp_path / f".b.json.{ended.pid}-0000.part"
    for part in (stale, alive, other):
        part.write_bytes(b"half")
    replace_file(tmp_path / "a.json", b"whole")
    assert (tmp_path / "a.json").read_bytes() == b"whole"
    assert not stale.exists() and alive.exists() and other.exists()
