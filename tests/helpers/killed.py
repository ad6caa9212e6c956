"""Controllers that are killed at random moments, and opened again.

    python -m tests.helpers.killed [KILLS] [FIRST]

Each child goes on where the one before was killed, and says after each call what is on record.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import optmatch as om
from optmatch.control.reroutes.records import Record, record_to_tree
from optmatch.io.text import canonical, digest
from optmatch.model import InfeasibleError, LimitReached
from optmatch.solvers.reroutes.states import fill_rack


def digest_of(records: Sequence[Record]) -> str:
    """Return a digest of records."""
    return digest(canonical([record_to_tree(record) for record in records]))[:16]


def describe(controller: om.Rerouter) -> str:
    """Return a digest of all that a restart has to know."""
    return digest_of([*controller._history, controller._now.record])


def act(controller: om.Rerouter, rng: np.random.Generator) -> None:
    """Do one thing at random."""
    failed, draw = controller.state.failed_chips, rng.random()
    try:
        if draw < 0.15:
            controller.rollback()
        elif draw < 0.5 and failed:
            chip = failed[int(rng.integers(len(failed)))]
            controller.repair(chip=chip)
            controller.apply(controller.give_back(chip))
        elif draw < 0.55:
            controller.repair(chip=controller.refused[0].failed_chips)
        else:
            controller.apply(controller.fail(chip=int(rng.integers(60))))
    except (om.InputError, InfeasibleError, LimitReached, IndexError):
        return


def run(path: Path, seed: int, say: int, steps: int) -> None:
    """Open the controller, and print its record before and after each step."""
    controller, rng = om.Rerouter.open(path), None
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        os.write(say, (describe(controller) + "\n").encode())
        act(controller, rng)


def replay(path: Path, copy: Path, seed: int, steps: int) -> list[str]:
    """List the records of a controller after each change of the same steps, killed or not."""
    for part in path.parent.glob(f"{path.name}*"):
        (copy / part.name).write_bytes(part.read_bytes())
    controller = om.Rerouter.open(copy / path.name)
    known = [describe(controller)]
    file: Any = controller._file
    write = file.write

    def spy(records: Sequence[Record], **more: Any) -> None:
        write(records, **more)
        known.append(digest_of(records))

    file.write = spy
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        act(controller, rng)
        known.append(describe(controller))
    controller.close()
    return known


def kill(kills: int, steps: int = 40, first: int = 0) -> list[str]:
    """Kill a child so many times, the first of this number; return the faults."""
    wrong, rng = list[str](), np.random.default_rng(1 + first)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "controller.json"
        om.Rerouter.open(path, fill_rack(om.RackFabric())).close()
        for seed in range(first, first + kills):
            copy = Path(folder) / str(seed)
            copy.mkdir()
            known = replay(path, copy, seed, steps)
            hear, say = os.pipe()
            child = os.fork()
            if not child:
                run(path, seed, say, steps)
                os._exit(0)
            os.close(say)
            time.sleep(float(rng.uniform(0.005, 0.2)))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            with os.fdopen(hear) as heard:
                said = [line for line in heard.read().split("\n")[:-1]]
            try:
                controller = om.Rerouter.open(path)
            except om.InputError as exc:
                wrong.append(f"kill {seed}: {exc}")
                continue
            now = describe(controller)
            least = len(known) - 1 - known[::-1].index(said[-1]) if said else 0
            first = known.index(said[-1]) if said else 0
            if now not in known[first : least + 4]:
                wrong.append(f"kill {seed}: after {len(said)} steps something is lost")
            controller.close()
    return wrong


if __name__ == "__main__":
    asked = [int(word) for word in sys.argv[1:]]
    found = kill(asked[0] if asked else 200, first=asked[1] if asked[1:] else 0)
    print("\n".join(found) or "nothing is lost")
    sys.exit(bool(found))
