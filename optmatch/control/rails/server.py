"""The controller of one rail as a process: a line of JSON in, a line of JSON out, over TCP.

``python -m optmatch.control.rails.server`` listens on 127.0.0.1 and prints its port. The first
line that it gets says what to play; each further one holds messages. It ends with its client.
"""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

from optmatch.control.rails.controller import Controller, Message
from optmatch.io.fields import from_object
from optmatch.problems.rails.execution.triggers import RailTriggers

LONGEST = 1 << 28
"""Bytes of a line."""
_PATIENCE_S = 60.0
"""So long a server waits for its client."""


class Link:
    """A controller and the messages that it was given: the far end of a connection."""

    def __init__(self, setup: Any) -> None:
        rail = from_object(RailTriggers, setup["rail"], "/rail")
        options = {
            name: setup[name] for name in ("followers", "delay_s", "timeout_s", "whole", "tries")
        }
        self.controller = Controller(rail, **options)
        self._first = list(self.controller.start())
        self._told = 0

    async def exchange(self, rows: list[Any]) -> dict[str, Any]:
        """Give messages in the order of their times; return answers, and what was changed."""
        found, self._first = self._first, []
        for at_s, kind, rank, step, what in rows:
            found += self.controller.receive(Message(at_s, kind, rank, step, tuple(what)))
        changes = self.controller.changes[self._told :]
        self._told += len(changes)
        return {"send": found, "changes": changes, "fallbacks": self.controller.n_fallbacks}


async def serve() -> None:
    """Serve one client, until it goes."""
    came, gone = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        try:
            link = Link(json.loads(await reader.readline()))
            while line := await reader.readline():
                answer = await link.exchange(json.loads(line))
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        finally:
            writer.close()
            gone.set()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=LONGEST)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await asyncio.wait_for(came.wait(), _PATIENCE_S)
        await gone.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client, and ends it
    asyncio.run(serve())
