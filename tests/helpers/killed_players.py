"""Players and watchers of switches that are killed at random moments, and started again.

    python -m tests.helpers.killed_players [KILLS] [SEED]

A real database with a stand-in of SONiC's agent in a process of its own. Each child is killed by
SIGKILL, and the next one goes on. After each kill no circuit of others may be missing, and no side
be in two circuits; in the end the switch has to hold a whole slot, or all circuits of the record.
"""

import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import redis

import optmatch as om
from optmatch.io.switches.circuits import PortTable
from optmatch.switches import PlayOptions, SonicSwitch, Watcher, WatchEvent, play
from optmatch.switches.player import read_entries
from tests.helpers.sonic_agent import RedisServer, SonicAgent

N_OWN, N_PORTS = 12, 14
FOREIGN = "13A-14B"
"""A circuit of somebody else, on ports that no plan has."""

FAIL_KEY = "tests|fail"
"""A list in database 0 of sides that the agent lets fail."""

DELAY_S = 0.01
SETTLE_S = 60.0
"""How long the last run may take, on a busy machine, until all failures are repaired."""


class Stand:
    """A database, and an agent in a process of its own, so that this one has no threads."""

    def __init__(self, folder: Path) -> None:
        self.server = RedisServer(folder)
        self.config = redis.Redis(port=self.server.port, db=4, decode_responses=True)
        self.orders = redis.Redis(port=self.server.port, db=0, decode_responses=True)
        self.agent = os.fork()
        if not self.agent:
            self._run_agent()
        a_side, b_side = FOREIGN.split("-")
        row = {"a_side": a_side, "b_side": b_side}
        self.config.hset(f"OCS_CROSS_CONNECT|{FOREIGN}", mapping=row)

    def _run_agent(self) -> None:
        """Carry out circuits, and let sides fail as told, until this process is killed."""
        agent = SonicAgent(self.server.port, N_PORTS, DELAY_S)
        while True:
            with suppress(redis.exceptions.ConnectionError):
                side: Any = self.orders.lpop(FAIL_KEY)
                if side is not None:
                    agent.fail(side)
            time.sleep(0.005)

    def circuits(self) -> set[str]:
        """Return the names of all circuits that are configured."""
        return {key.partition("|")[2] for key in self.config.keys("OCS_CROSS_CONNECT|*")}

    def check(self) -> set[str]:
        """Return our circuits; no side may be in two, and the circuit of others must be there."""
        names = self.circuits()
        sides = [side for name in names for side in name.split("-")]
        assert len(sides) == len(set(sides)), f"a side in two circuits: {sorted(names)}"
        assert FOREIGN in names, "the circuit of others is gone"
        return names - {FOREIGN}

    def close(self) -> None:
        """End both processes."""
        os.kill(self.agent, signal.SIGKILL)
        os.waitpid(self.agent, 0)
        self.server.stop()


def start(work: Callable[[int], None]) -> tuple[int, int]:
    """Run a function in a child that shares nothing but a pipe; return its number and the pipe."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reading)
            work(writing)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    return child, reading


def kill(child: int, reading: int) -> list[dict[str, Any]]:
    """Kill a child, and return what it had said."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    lines = said.split("\n")[:-1]  # the last one may be cut off
    return [json.loads(line) for line in lines]


def slots_of(plan: om.Solution) -> list[set[str]]:
    """Return the names of the circuits of each slot."""
    table = PortTable.numbered(N_OWN)
    schedule: Any = plan.schedule
    return [
        {circuit.name for circuit in table.circuits_of(matching)}
        for matching in schedule.matchings
    ]


def kill_players(folder: Path, kills: int, rng: np.random.Generator) -> None:
    """Kill a player again and again; each run goes on with the journal of the one before."""
    plan = om.solve(om.AllToAll(om.IdealSwitch(N_OWN), slot_s=0.03), seed=0)
    slots = slots_of(plan)
    stand = Stand(folder)
    journal = folder / "play.jsonl"

    def run(_writing: int, *, is_last: bool = False) -> None:
        stop = threading.Event()
        options = PlayOptions(rounds=None, journal=journal, resume=journal.exists())
        # The last run ends after a slot, however long that takes on a busy machine.
        end = (lambda *_: stop.set()) if is_last else None
        play(plan, SonicSwitch(stand.server.url), options, on_moment=end, stop=stop)

    try:
        last = (0, 0)
        for _number in range(kills):
            child, reading = start(run)
            time.sleep(float(rng.uniform(0.02, 0.4)))
            kill(child, reading)
            ours = stand.check()
            if not journal.exists():
                continue
            entries = [entry for entry in read_entries(journal) if "moment" in entry]
            if not entries:
                continue
            # No run begins before the last slot that was acknowledged as tuned.
            tuned = [(e["round"], e["moment"]) for e in entries if e["event"] == "tuned"]
            assert tuned == sorted(tuned), "a slot that was tuned was played again"
            assert not tuned or tuned[-1] >= last, "an acknowledged slot is lost"
            last = max([last, *tuned[-1:]])

            # What is set is of the slot that was begun, and of the one before at most.
            moment = entries[-1]["moment"]
            assert ours <= slots[moment] | slots[moment - 1], sorted(ours)
        child, _ = start(lambda writing: run(writing, is_last=True))
        _, status = os.waitpid(child, 0)
        assert status == 0, f"the last run failed: {status}"
        assert stand.check() in slots, "the switch holds no whole slot"
    finally:
        stand.close()


def kill_watchers(folder: Path, kills: int, rng: np.random.Generator) -> int:
    """Kill a watcher while ports fail; return how many failures were repaired."""
    circuits = [[port, (port + 1) % 6] for port in range(6)]
    state = om.Reroute(om.IdealSwitch(N_OWN), circuits, spares=tuple(range(6, N_OWN)))
    stand = Stand(folder)
    path = folder / "controller"
    failed: set[int] = set()
    acknowledged: set[str] = set()

    def run(writing: int) -> None:
        def say(event: WatchEvent) -> None:
            os.write(writing, (json.dumps(event._asdict()) + "\n").encode())

        with om.Rerouter.open(path, state) as controller:
            switch = SonicSwitch(stand.server.url)
            Watcher(controller, switch, apply=True, on_event=say).run_until(threading.Event())

    try:
        set_up = SonicSwitch(stand.server.url)
        table = PortTable.numbered(N_OWN)
        held = np.full(N_OWN, -1)
        held[:6] = (np.arange(6) + 1) % 6
        from optmatch.switches import Difference

        set_up.apply(Difference((), table.circuits_of(held)))
        set_up.close()
        for _number in range(kills):
            child, reading = start(run)
            if len(failed) < 5 and rng.random() < 0.7:
                time.sleep(float(rng.uniform(0.0, 0.2)))
                port = next(port for port in range(N_OWN) if port not in failed)
                failed.add(port)
                stand.orders.rpush(FAIL_KEY, f"{port + 1}A")
            time.sleep(float(rng.uniform(0.02, 0.5)))
            said = kill(child, reading)
            stand.check()
            acknowledged |= {e["message"] for e in said if e["what"] == "repaired"}

        # The last run has the time to mend what differs, and to answer what has failed.
        child, reading = start(run)
        give_up_s = time.monotonic() + SETTLE_S
        while time.monotonic() < give_up_s and not _is_repaired(stand, failed):
            time.sleep(0.1)
        time.sleep(1.0)  # failed spares, which no circuit shows
        kill(child, reading)
        with om.Rerouter.open(path) as controller:
            final = controller.state
        known = set(final.failed_ports)
        assert failed <= known, f"failures {sorted(failed)} happened, {sorted(known)} are known"
        expected = {f"{a + 1}A-{b + 1}B" for a, b in final.circuits.tolist()}
        assert stand.check() == expected, "the switch does not hold the circuits of the record"
        used = {port for pair in final.circuits.tolist() for port in pair}
        assert not used & failed, "a circuit is on a failed port"
        return len(failed)
    finally:
        stand.close()


def _is_repaired(stand: Stand, failed: set[int]) -> bool:
    """Tell whether all six circuits are there, and none of them at a failed port."""
    names = stand.check()
    numbers = {int(side[:-1]) for name in names for side in name.split("-")}
    return len(names) == 6 and not numbers & {port + 1 for port in failed}


def warm_up() -> None:
    """Load what watchers need, so that children need not do it before they are killed."""
    circuits = [[0, 1], [1, 0]]
    state = om.Reroute(om.IdealSwitch(4), circuits, spares=(2, 3))
    om.Rerouter(state).what_if(port=0)


def main() -> None:
    """Kill players, then watchers, half of the kills each; a watcher has ten kills of a state."""
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    warm_up()
    rng = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    with tempfile.TemporaryDirectory() as folder:
        kill_players(Path(folder), kills // 2, rng)
    print(f"players: {kills // 2} kills, all whole")
    done = 0
    repaired = 0
    while done < kills // 2:
        with tempfile.TemporaryDirectory() as folder:
            repaired += kill_watchers(Path(folder), min(10, kills // 2 - done), rng)
        done += 10
    print(f"watchers: {kills // 2} kills, {repaired} failures, all on record and repaired")


if __name__ == "__main__":
    main()
