"""No module is loaded while the time of a solve counts: the limit would end before the search."""

import json
import subprocess
import sys

import pytest

from tests.helpers.command import INSTANCES

COUNTING = """
import json, sys
from optmatch.model.limits import current_stopwatch, running_clock
counted, seen = [], set(sys.modules)
def hook(event, words):
    if event == "import" and words[0] not in seen:
        seen.add(words[0])
        if running_clock() is not None and current_stopwatch().running_block() is None:
            counted.append(words[0])
sys.addaudithook(hook)
from optmatch.cli import main
try:
    main(sys.argv[1:], prog_name="optmatch")
except SystemExit:
    print(json.dumps(counted))
"""


@pytest.mark.slow
def test_no_import_counts_in_a_solve() -> None:
    """Sixty modules did, among them all kinds of problems; `fcntl` takes no time."""
    problem = str(INSTANCES / "routing" / "hex-9x9-32-random-1.json")
    words = ["solve", problem, "--seed", "0", "--time-limit", "20", "-q"]
    done = subprocess.run(
        [sys.executable, "-c", COUNTING, *words], capture_output=True, text=True, check=False
    )
    counted = json.loads(done.stdout.splitlines()[-1])
    assert [module for module in counted if module != "fcntl"] == [], done.stderr
