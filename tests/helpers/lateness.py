"""How late a player is on a stand-in of a SONiC switch, beyond the delay of the switch itself.

    python -m tests.helpers.lateness [PORTS] [SLOTS]

The database and the agent are processes of their own. Circuits take 50 ms to be tuned, one of
twenty takes 70 ms. In each slot all circuits change. From the time that a change took in all is
taken off what the switch itself needed: the time in which the agent removed circuits, and the time
from when it began to set others until it had reported the last one as tuned.
"""

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from optmatch.switches import PlayOptions, SonicSwitch, play
from tests.helpers.sonic_agent import RedisServer, SonicAgent
from tests.switches.test_play import schedule_of, shifts


class TunedPart(NamedTuple):
    """Circuits of one slot that the agent has set and tuned: all of them, or a first part.

    A loaded machine may let the agent hear of a change in parts, so far from each other that the
    first part is tuned before the last one is set.
    """

    shift: int
    """The slot has circuits from each port p to port ``(p + shift) % n_ports``."""
    began_s: float
    """When the agent began to set circuits, on the monotonic clock."""
    ended_s: float
    """When it had reported all circuits that were set as tuned."""
    removing_s: float
    """How long it removed circuits before that."""


def times_of_switch(parts: Sequence[TunedPart]) -> list[float]:
    """Return how long the switch itself took for each slot.

    Parameters
    ----------
    parts
        All parts of all slots, in the order of time. Two slots that follow each other have
        different shifts, so that parts with the same shift in a row are those of one slot.

    Returns
    -------
    list of float
        By slot: the seconds of removals, and those from the first circuit that was set to the last
        one that was tuned.
    """
    times_s = []
    for _shift, group in groupby(parts, key=lambda part: part.shift):
        of_slot = list(group)
        removing_s = sum(part.removing_s for part in of_slot)
        times_s.append(removing_s + of_slot[-1].ended_s - of_slot[0].began_s)
    return times_s


class LoggingAgent(SonicAgent):
    """An agent that writes down when it has set and tuned circuits, as `TunedPart`."""

    log = Path()
    n_ports = 0
    began_s = 0.0
    removing_s = 0.0

    def _carry_out(self, bulk: list[tuple[str, str]]) -> None:
        # What a look at the whole table has found before comes once more as a message, which
        # neither sets nor removes anything.
        now_s = time.monotonic()
        sets = any(what == "hset" and name not in self.circuits for what, name in bulk)
        removes = any(what == "del" and name in self.circuits for what, name in bulk)
        if not self.began_s and sets:
            self.began_s = now_s
        super()._carry_out(bulk)
        if removes and not self.began_s:
            self.removing_s += time.monotonic() - now_s

    def _tune(self) -> None:
        super()._tune()
        if self.began_s and self.circuits and len(self.tuned) == len(self.circuits):
            source, destination = (int(side[:-1]) for side in next(iter(self.circuits)).split("-"))
            shift = (destination - source) % self.n_ports
            part = TunedPart(shift, self.began_s, time.monotonic(), self.removing_s)
            self.began_s = self.removing_s = 0.0
            with self.log.open("a") as log:
                log.write(json.dumps(part) + "\n")


def tuning_delay_s(name: str) -> float:
    """Return how long a circuit takes: one of twenty is late."""
    source = int(name.partition("A")[0])
    return 0.07 if source % 20 == 0 else 0.05


def measure(n_ports: int, n_slots: int, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Play slots; return the seconds that each change took in all, and those of the switch."""
    server = RedisServer(folder)
    LoggingAgent.log = folder / "agent.log"
    LoggingAgent.n_ports = n_ports
    agent = os.fork()
    if not agent:
        LoggingAgent(server.port, n_ports, tuning_delay_s)
        while True:
            time.sleep(1.0)
    try:
        time.sleep(1.0)
        plan = schedule_of(shifts(n_ports, n_slots))
        options = PlayOptions(journal=folder / "journal")
        report = play(plan, SonicSwitch(server.url), options)
        time.sleep(0.1)
    finally:
        os.kill(agent, signal.SIGKILL)
        os.waitpid(agent, 0)
        server.stop()
    in_all_s = [moment.delay_s + moment.own_time_s for moment in report.moments]
    lines = LoggingAgent.log.read_text().splitlines()
    of_switch_s = times_of_switch([TunedPart(*json.loads(line)) for line in lines])
    return np.array(in_all_s), np.array(of_switch_s)


def main() -> None:
    """Print percentiles of the time beyond the delay of the switch."""
    n_ports = int(sys.argv[1]) if len(sys.argv) > 1 else 320
    n_slots = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    with tempfile.TemporaryDirectory() as folder:
        in_all_s, of_switch_s = measure(n_ports, n_slots, Path(folder))
    assert len(in_all_s) == len(of_switch_s), "the agent has logged other slots than were played"
    beyond_ms = 1e3 * (in_all_s - of_switch_s)
    percentiles = np.percentile(beyond_ms, [50, 99])
    print(
        f"{n_ports} ports, {len(beyond_ms)} slots: {percentiles[0]:.1f} ms (p50),"
        f" {percentiles[1]:.1f} ms (p99) beyond the switch's own"
        f" {1e3 * np.median(of_switch_s):.1f} ms (p50)"
    )


if __name__ == "__main__":
    main()
