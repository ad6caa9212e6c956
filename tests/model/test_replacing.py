"""Files that are replaced whole: the rests of a killed run go away with the next one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from optmatch.model import files
from optmatch.model.files import replace_file


@pytest.mark.skipif(os.name == "nt", reason="nobody can ask there whether a process lives")
def test_parts_of_dead_processes_are_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here = files._HERE
    names = {
        f".a.json.{ended.pid}-{here}-0000.part": False,
        f".a.json.{os.getpid()}-{here}-0000.part": True,
        f".b.json.{ended.pid}-{here}-0000.part": True,
        f".a.json.{ended.pid}-elsewhere-0000.part": True,
        f".a.json.{ended.pid}-elsewhere-0001.part": False,
        ".a.json.of-somebody.part": True,
    }
    for name in names:
        (tmp_path / name).write_bytes(b"half")
    os.utime(tmp_path / list(names)[4], (0, 0))
    replace_file(tmp_path / "a.json", b"whole")
    assert (tmp_path / "a.json").read_bytes() == b"whole"
    assert {name: (tmp_path / name).exists() for name in names} == names
