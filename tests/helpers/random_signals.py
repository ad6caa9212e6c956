"""Solves that a signal meets at a random moment: no answer is lost, and nothing ends in a crash.

    python -m tests.helpers.random_signals [SIGNALS] [--seed N] [--flows A:B] [--program PATH]

Each flow is one solve of the command line. It runs once without a signal, which tells how long it
takes; then a SIGINT or a SIGTERM comes at a random moment of such a time. Solves run in forks of
one process that has loaded all, or, where a program is named (the `optmatch` of an installed
wheel), as processes of that program. The moments are of the clock, so no two runs are the same:
`tests/commands/test_signals.py` counts instructions instead.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from click.testing import CliRunner

import optmatch as om
from optmatch.cli import main
from optmatch.commands.shared.outcome import NOTHING_FOUND
from optmatch.model import CellDevice, Problem, unit_of, write_score
from optmatch.startup import end
from tests.helpers.command import INSTANCES

HANGS_S = 60.0
"""A solve that goes on for so long after its signal hangs."""

SLOW_S = 1.5
"""The end of a run that takes longer after its signal is printed, though it is no fault."""

ENTRY_S = 0.03
"""The time after its start from which a process gets signals: before, Python itself starts."""

CODES = {signal.SIGINT: (130,), signal.SIGTERM: (143, -signal.SIGTERM)}
"""Exit codes by signal; a SIGTERM while modules are imported ends the process as by default."""


class Flow(NamedTuple):
    """A solve of the command line."""

    name: str
    problem: Callable[[], Problem[Any]]
    options: str = ""


class Ended(NamedTuple):
    """How one run has ended."""

    code: int
    stdout: str
    stderr: str
    latency_s: float
    """From the signal to the end; negative if the run had ended before its signal."""


@dataclass
class Tally:
    """What all signals have led to."""

    n_signals: int = 0
    n_before_the_entry: int = 0
    n_after_the_end: int = 0
    n_saved: int = 0
    n_before_an_answer: int = 0
    max_latency_s: float = 0.0


def of_instance(path: str, **changes: Any) -> Callable[[], Problem[Any]]:
    """Return what reads an instance of the library, with some fields changed."""

    def read() -> Problem[Any]:
        loaded: Any = om.load(INSTANCES / f"{path}.json")
        problem: Problem[Any] = replace(loaded, **changes) if changes else loaded
        return problem

    return read


def on_a_chip(objective: Any, *, size: int, ports: int) -> Callable[[], Problem[Any]]:
    """Return what makes a routing problem on a chip of which each cell is known."""

    def make() -> Problem[Any]:
        rng = np.random.default_rng(size)
        mesh = om.HexMesh(size, size, ports=ports)
        order = rng.permutation(ports)
        matching = np.empty(ports, dtype=np.int32)
        matching[order[::2]] = order[1::2]
        matching[order[1::2]] = order[::2]
        by_cell = {
            cell: {"bar_loss_db": loss, "bar_extinction_db": extinction}
            for cell, (loss, extinction) in enumerate(
                zip(
                    rng.uniform(0.2, 0.8, mesh.n_cells),
                    rng.uniform(20.0, 40.0, mesh.n_cells),
                    strict=True,
                )
            )
        }
        cells = CellDevice.of("smartlight", mesh.n_cells, by_cell)
        return om.Routing(mesh, matching, objective=objective, cells=cells)

    return make


FLOWS = (
    Flow("all-to-all", of_instance("all-to-all/hex-7x7-32"), "--time-limit 1"),
    Flow("all-to-all of two classes", of_instance("all-to-all/square-5x5-tx-rx-6")),
    Flow("all-to-all, exact", of_instance("all-to-all/hex-4x4-8"), "--method ilp --time-limit 2"),
    Flow("routing", of_instance("routing/hex-9x9-32-random-1"), "--time-limit 1"),
    Flow("routing, 64 ports", of_instance("routing/hex-17x17-64-random-1")),
    Flow(
        "routing, exact",
        of_instance("routing/hex-9x9-32-random-1"),
        "--method ilp --time-limit 1",
    ),
    Flow(
        "routing, longest",
        of_instance("routing/hex-17x17-64-random-1", objective="worst-cells"),
        "--time-limit 1",
    ),
    Flow(
        "routing, losses",
        of_instance("routing/hex-9x9-32-random-1", objective="loss-db"),
        "--method ilp --time-limit 1",
    ),
    Flow("routing, power", on_a_chip("power-mw", size=4, ports=8), "--method ilp"),
    Flow("routing, worst loss", on_a_chip("worst-loss-db", size=6, ports=12), "--time-limit 1"),
    Flow("routing, few cells", on_a_chip("total-cells", size=8, ports=24), "--time-limit 1"),
    Flow("routing, Benes", of_instance("routing/benes-32-random-5"), "--time-limit 1"),
    Flow("demand", of_instance("demand/gravity-16"), "--time-limit 1"),
    Flow("demand, exact", of_instance("demand/permutations-6"), "--method ilp --time-limit 1"),
    Flow("demand, two planes", of_instance("demand/solstice-32-two-planes"), "--time-limit 1"),
    Flow("collective", of_instance("collectives/all-reduce-8"), "--time-limit 1"),
    Flow("rail job", of_instance("rails/dense-32"), "--time-limit 1"),
    Flow("reroute", of_instance("reroute/hex-9x9-32-two-ports")),
    Flow("reroute, exact", of_instance("reroute/hex-9x9-32-two-ports"), "--method ilp"),
    Flow("slices", of_instance("slices/joined-racks"), "--time-limit 1"),
    Flow("slices, exact", of_instance("slices/rack-hard"), "--method ilp --time-limit 1"),
    Flow("port sharing", of_instance("sharing/devices-120-fair"), "--time-limit 1"),
    Flow("port sharing, in order", of_instance("sharing/devices-120-whole"), "--time-limit 1"),
)


def fork_solve(words: list[str], sent: int, at_s: float, program: str) -> Ended:
    """Run the command line in a fork of this process, and send it a signal after `at_s`."""
    assert not program
    out = os.memfd_create("out")
    err = os.memfd_create("err")
    ready, tell_ready = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(out, 1)
        os.dup2(err, 2)
        faulthandler.enable(err)
        signal.signal(signal.SIGINT, end)  # as a program has it from its first import on
        os.write(tell_ready, b"x")
        main(words, prog_name="optmatch")
        os._exit(99)  # main always ends the process
    os.read(ready, 1)
    status, latency_s = _wait(child, sent, time.perf_counter() + at_s)
    texts = []
    for file in (out, err):
        os.lseek(file, 0, os.SEEK_SET)
        texts.append(os.read(file, 1 << 22).decode())
    for file in (out, err, ready, tell_ready):
        os.close(file)
    return Ended(os.waitstatus_to_exitcode(status), texts[0], texts[1], latency_s)


def start_solve(words: list[str], sent: int, at_s: float, program: str) -> Ended:
    """Run the command line as a process of an installed program; else as `fork_solve`."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started_s = time.perf_counter()
        child = subprocess.Popen([program, *words], stdout=out, stderr=err)
        status, latency_s = _wait(child.pid, sent, started_s + at_s)
        child.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return Ended(child.returncode, texts[0], texts[1], latency_s)


def _wait(child: int, sent: int, when_s: float) -> tuple[int, float]:
    """Send a signal at its moment; return the wait status, and the time from signal to end.

    A child that does not end is killed, so that it ends as if by a crash.
    """
    while time.perf_counter() < when_s:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status, -1.0
        time.sleep(min(0.002, max(0.0, when_s - time.perf_counter())))
    sent_s = time.perf_counter()
    os.kill(child, sent)
    while time.perf_counter() - sent_s < HANGS_S:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status, time.perf_counter() - sent_s
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return status, HANGS_S


def told_objectives(stderr: str) -> list[str]:
    """List the objectives that lines of progress have told, as they are written."""
    return re.findall(r", best ([^,\n]+)", stderr)


def came_before_the_entry(stderr: str) -> bool:
    """Tell whether a signal came while Python itself started, before any code of this package."""
    return "Traceback" in stderr and f"optmatch{os.sep}" not in stderr


def find_faults(ended: Ended, sent: int, whole_code: int, folder: Path, tally: Tally) -> list[str]:
    """Compare the end of a run with what it owes its user.

    Parameters
    ----------
    ended, sent
        The end, and the signal that was sent.
    whole_code
        The exit code of a run without a signal; one that ends so had ended before its signal.
    folder
        Has nothing but what the run has written.
    tally
        Counts this run.
    """
    faults: list[str] = []
    tally.n_signals += 1
    tally.max_latency_s = max(tally.max_latency_s, ended.latency_s)
    if came_before_the_entry(ended.stderr):
        tally.n_before_the_entry += 1
        return faults
    saved = folder / "answer.json"
    had_ended = ended.latency_s < 0 or ended.code in (whole_code, NOTHING_FOUND)
    tally.n_after_the_end += had_ended
    if not had_ended and ended.code not in CODES[signal.Signals(sent)]:
        faults.append(f"exit code {ended.code}")
    for word in ("Traceback", "terminate called", "Fatal", "Exception ignored", "failed"):
        if word in ended.stderr:
            faults.append(f"{word!r} on stderr")
    strangers = [file.name for file in folder.iterdir() if file != saved]
    if strangers:
        faults.append(f"left behind: {strangers}")

    # What was told is saved, and nothing else is: no answer from before the last that was told.
    told = told_objectives(ended.stderr)
    if not saved.exists():
        tally.n_before_an_answer += not told
        if told:
            faults.append(f"nothing saved after best {told[-1]}")
        return faults
    tally.n_saved += 1
    solution: Any = om.load(saved)
    if not om.verify(solution).valid:
        faults.append("the saved answer is wrong")
    if solution.objective is not None:
        objective = write_score(solution.objective, unit_of(solution.problem))
        if objective in told[:-1] and objective != told[-1]:
            faults.append(f"saved {objective} after best {told[-1]}")
    return faults


def write_problems(place: Path) -> dict[str, list[str]]:
    """Write the problem of each flow; return the words of its command, which saves an answer."""
    words = {}
    for flow in FLOWS:
        file = place / f"{flow.name.replace(' ', '-').replace(',', '')}.json"
        om.save(flow.problem(), file)
        options = ["-v", "--force", "--seed", "0", "-o", str(place / "answers" / "answer.json")]
        words[flow.name] = ["solve", str(file), *flow.options.split(), *options]
    return words


def run_signals(
    place: Path, flows: Sequence[Flow], n_signals: int, seed: int, program: str
) -> bool:
    """Send signals to flows in turn; print each fault, and the counts.

    A fork leaves by the frames of this function, so none of them cleans up.

    Parameters
    ----------
    place
        An empty folder.
    flows
        The flows that take turns.
    n_signals, seed
        How many, and the seed of the moments and of the choice between the two signals.
    program
        Path of a program that is run in place of forks; empty for forks.

    Returns
    -------
    bool
        Whether there was no fault.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    rng = random.Random(seed)
    run = start_solve if program else fork_solve
    tally = Tally()
    faults = Counter[str]()
    answers = place / "answers"
    answers.mkdir()
    words = write_problems(place)

    # A whole run of each flow tells where its signals belong: until its answer is written.
    work_s = {}
    whole_code = {}
    for flow in flows:
        if program:
            run(words[flow.name], 0, HANGS_S, program)  # compiles what the others need
        else:
            CliRunner().invoke(main, words[flow.name])  # loads what the forks need
            gc.freeze()
        _empty(answers)
        started_s = time.time()
        whole = run(words[flow.name], 0, HANGS_S, program)
        written = [file.stat().st_mtime for file in answers.iterdir()]
        work_s[flow.name] = max(written, default=time.time()) - started_s
        whole_code[flow.name] = whole.code
        print(f"{flow.name}: {work_s[flow.name]:.2f} s without a signal", flush=True)
        if whole.code not in (0, 4):
            print(f"{flow.name}: without a signal it ends with {whole.code}: {whole.stderr}")
            faults[flow.name] += 1

    first_s = ENTRY_S if program else 0.0
    for number in range(n_signals):
        flow = flows[number % len(flows)]
        _empty(answers)
        sent = rng.choice(list(CODES))
        at_s = rng.uniform(first_s, max(first_s, work_s[flow.name]))
        ended = run(words[flow.name], sent, at_s, program)
        if ended.latency_s > SLOW_S:
            print(f"{flow.name}, at {at_s:.4f} s: ended {ended.latency_s:.1f} s later")
        for fault in find_faults(ended, sent, whole_code[flow.name], answers, tally):
            faults[flow.name] += 1
            end_of_stderr = json.dumps(ended.stderr[-2000:])
            print(f"{flow.name}, {sent.name} at {at_s:.4f} s: {fault}: {end_of_stderr}")
    print(f"{tally}; faults: {dict(faults)}", flush=True)
    return not faults


def _empty(folder: Path) -> None:
    """Remove all files of a folder."""
    for file in folder.iterdir():
        file.unlink()


def run_program() -> None:
    """Run the program of this module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("signals", type=int, nargs="?", default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--flows", default=":", help="which of them, as a slice of the list")
    parser.add_argument("--program", default="", help="an installed optmatch, in place of forks")
    given = parser.parse_args()
    first, _, last = given.flows.partition(":")
    flows = list(FLOWS)[int(first) if first else 0 : int(last) if last else len(FLOWS)]
    place = Path(tempfile.mkdtemp(prefix="optmatch-signals-"))
    is_clean = run_signals(place, flows, given.signals, given.seed, given.program)
    shutil.rmtree(place)
    if not is_clean:
        sys.exit(1)


if __name__ == "__main__":
    run_program()
