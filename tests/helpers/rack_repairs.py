"""From a failure to tuned circuits: a rack of 64 chips, or a switch of 320 ports, on stand-ins.

    python -m tests.helpers.rack_repairs [rack | switch] [SEED] [FAILURES]

Each server of the rack is a switch with a database of its own. All agents are in one process of
their own, so that their work is not counted as the watcher's. Failures come one by one, two at the
same moment, and while the circuits of the one before are still being tuned; some have no answer,
as no spare is left. Printed is how long a repair took beyond the delay of the switch, from the
moment at which the side failed.
"""

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import redis

import optmatch as om
from optmatch.io.switches.planned import PlannedSwitch
from optmatch.io.switches.plans import switches_of_state
from optmatch.io.switches.ports import PortTable
from optmatch.io.switches.racks import RackNodes, rack_nodes
from optmatch.switches import Difference, SonicSwitch, Watcher, WatchEvent
from tests.helpers.sonic_agent import RedisServer, SonicAgent

DELAY_S = 0.1
"""The delay of each switch."""

FAIL_KEY = "tests|fail"
"""A list in database 0 of the first switch: which sides the agents let fail."""

WARM_UP_S = 6.0
"""A watcher loads compiled kernels at first."""

GAP_S = 0.4
"""Between two scenes, long enough for the repairs of the one before."""


class Outcome(NamedTuple):
    """What became of the failures."""

    repaired_s: list[float]
    """Seconds from each failure that was repaired to the last tuned circuit."""
    unanswered: list[str]


@contextmanager
def stand_ins(folder: Path, planned: list[PlannedSwitch]) -> Iterator[dict[str, RedisServer]]:
    """Start a database for each switch, and all of their agents in one other process."""
    with ExitStack() as stack:
        servers: dict[str, RedisServer] = {}
        for plan in planned:
            place = folder / plan.name.replace(" ", "-")
            place.mkdir()
            servers[plan.name] = RedisServer(place)
            stack.callback(servers[plan.name].stop)
        child = os.fork()
        if not child:
            _run_agents(list(servers.values()), [plan.matchings.shape[1] for plan in planned])
        try:
            yield servers
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _run_agents(servers: list[RedisServer], n_ports: list[int]) -> None:
    """Run the agents of some databases, and let sides fail as told, until the end.

    The first database has the orders: the number of the agent and the side.
    """
    agents = [
        SonicAgent(server.port, size, DELAY_S)
        for server, size in zip(servers, n_ports, strict=True)
    ]
    orders = redis.Redis(port=servers[0].port, db=0, decode_responses=True)
    while True:
        with suppress(redis.exceptions.ConnectionError):
            order: Any = orders.blpop([FAIL_KEY], timeout=1)
            if order is not None:
                number, _, side = order[1].partition(" ")
                agents[int(number)].fail(side)


def starting_state(kind: str) -> om.Reroute:
    """Return a full rack of 64 chips, or a ring of 300 ports on a switch of 320."""
    if kind == "rack":
        return om.fill_rack(om.RackFabric())
    circuits = [[port, (port + 1) % 300] for port in range(300)]
    return om.Reroute(om.IdealSwitch(320), circuits, spares=tuple(range(300, 320)))


def draw_scenes(
    planned: list[PlannedSwitch], n_failures: int, rng: np.random.Generator
) -> list[list[tuple[float, str, str]]]:
    """Draw scenes of one or two failures each: seconds from its beginning, switch, side."""
    sides = []
    for plan in planned:
        used = np.flatnonzero(plan.matchings[0] >= 0)
        sides += [(plan.name, f"{port + 1}A") for port in used.tolist()]
    chosen = [sides[k] for k in rng.permutation(len(sides))[:n_failures]]
    scenes = []
    while chosen:
        scene = [(0.0, *chosen.pop())]
        kind = rng.integers(3)
        if kind and chosen:
            later_s = 0.0 if kind == 1 else float(rng.uniform(0.02, 0.15))
            scene.append((later_s, *chosen.pop()))
        scenes.append(scene)
    return scenes


def part_name(planned: list[PlannedSwitch], nodes: RackNodes | None, name: str, side: str) -> str:
    """Name the part of the state that is at an A side, as events name it."""
    port = int(side[:-1]) - 1
    if nodes is None:
        return f"port {port}"
    index = [plan.name for plan in planned].index(name)
    part = nodes.part_at(index, port, is_input=True)
    return f"{part.kind} {part.number}"


def run_scenes(kind: str, seed: int, n_failures: int, folder: Path) -> Outcome:
    """Let parts fail, and return how long their repairs took."""
    rng = np.random.default_rng(seed)
    state = starting_state(kind)
    planned = list(switches_of_state(state))
    outcome = Outcome([], [])
    with stand_ins(folder, planned) as servers:
        switches = {name: SonicSwitch(server.url) for name, server in servers.items()}
        names = list(servers)
        orders = redis.Redis(port=servers[names[0]].port, db=0)
        for plan in planned:
            circuits = PortTable.numbered(plan.matchings.shape[1]).circuits_of(plan.matchings[0])
            switches[plan.name].apply(Difference((), circuits))
            switches[plan.name].wait(circuits, 30.0)

        nodes = rack_nodes(state.fabric) if isinstance(state.fabric, om.RackFabric) else None
        failed_s: dict[str, float] = {}
        """When the order to fail was given, by the part that it is about."""

        def note(event: WatchEvent) -> None:
            if event.what == "repaired":
                parts = event.message.partition(":")[0].split(", ")
                outcome.repaired_s.extend(time.monotonic() - failed_s[part] for part in parts)
            elif event.what == "unanswered":
                outcome.unanswered.append(event.message)
            elif event.what != "failed":
                print(event)

        stop = threading.Event()
        controller = om.Rerouter.open(folder / "controller", state)
        one_switch = switches[planned[0].name] if len(planned) == 1 else switches
        watcher = Watcher(controller, one_switch, apply=True, on_event=note)
        thread = threading.Thread(target=lambda: watcher.run_until(stop))
        thread.start()
        time.sleep(WARM_UP_S)
        for scene in draw_scenes(planned, n_failures, rng):
            began_s = time.monotonic()
            for after_s, name, side in scene:
                time.sleep(max(0.0, began_s + after_s - time.monotonic()))
                failed_s[part_name(planned, nodes, name, side)] = time.monotonic()
                orders.rpush(FAIL_KEY, f"{names.index(name)} {side}")
            time.sleep(GAP_S)
        time.sleep(1.0)
        stop.set()
        thread.join()
        controller.close()
    return outcome


def main() -> None:
    """Print percentiles of the time beyond the delay of the switch."""
    kind = sys.argv[1] if len(sys.argv) > 1 else "rack"
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    n_failures = int(sys.argv[3]) if len(sys.argv) > 3 else 16
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_scenes(kind, seed, n_failures, Path(folder))
    beyond_ms = 1e3 * (np.array(outcome.repaired_s) - DELAY_S)
    p50, p99 = np.percentile(beyond_ms, [50, 99])
    print(
        f"{kind}, seed {seed}: {len(beyond_ms)} repairs, {p50:.0f} ms (p50), {p99:.0f} ms (p99)"
        f" beyond the delay; {len(outcome.unanswered)} messages of failures without an answer"
    )


if __name__ == "__main__":
    main()
