"""A small service: states of cells for matchings, answers to failures, figures for Prometheus.

    python docs/service.py FOLDER [PORT]

It speaks HTTP and JSON on this machine alone. ``POST /route [1, 0, ...]`` returns the states of
the cells of a mesh that hold a matching. ``POST /fail {"chip": 3}`` answers a failure in a rack,
takes the answer over and returns its steps; ``POST /repair {"chip": 3}`` takes parts into use
again; ``GET /failed`` lists what is on record, ``GET /metrics`` is for Prometheus. What has been
answered with 200 is on disk: a service that is started on the same FOLDER goes on from there.
"""

from __future__ import annotations

import asyncio
import json
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np

import optmatch as om
from optmatch.control import Tally

_MOST_BYTES = 1 << 20


class Service:
    """The calls; each takes and returns what JSON can hold."""

    def __init__(self, folder: Path) -> None:
        file = folder / "rack.json"
        state = None if file.exists() else om.fill_rack(om.RackFabric())
        self.rack = om.Rerouter.open(file, state, background=True)
        self.router, self.routes = om.Router(om.HexMesh(5, 5, ports=12), check=True), Tally()
        self.posts = {"/route": self.route, "/fail": self.fail, "/repair": self.repair}

    def route(self, matching: Any) -> Any:
        """Return a state for each cell: 0 bar, 1 cross, -1 any."""
        with self.routes.call("route"):
            return self.router.route(np.array(matching, dtype=np.int32)).states.tolist()

    def fail(self, parts: Any) -> Any:
        """Get over a failure."""
        while True:
            proposal = self.rack.fail(**parts, deadline_s=1.0)
            try:
                self.rack.apply(proposal)
            except om.InputError:
                continue  # another request was first
            return proposal.transition.describe()

    def repair(self, parts: Any) -> Any:
        """Take parts into use again, and give circuits back where that is possible."""
        self.rack.repair(**parts)
        for unit in self.rack.stand_ins:
            try:
                self.rack.apply(self.rack.give_back(unit, deadline_s=1.0))
            except om.OptMatchError:
                continue
        return self.failed()

    def failed(self) -> Any:
        """Return the chips that were replaced, and those that wait."""
        waiting = [*self.rack.refused, *self.rack.answered]
        chips = sorted({chip for parts in waiting for chip in parts.failed_chips})
        return {"replaced": self.rack.state.failed_chips, "waiting": chips}

    def metrics(self) -> str:
        """Return all figures as text."""
        figures = {"rack": self.rack.figures(), "router": self.routes.figures()}
        return om.to_prometheus(figures)

    def answer(self, request: str, body: bytes) -> tuple[HTTPStatus, str, str]:
        """Return the status, the kind and the text of an answer; in a thread of its own."""
        verb, path, *_ = request.split(" ")
        try:
            if (verb, path) == ("GET", "/metrics"):
                return HTTPStatus.OK, "text/plain; version=0.0.4", self.metrics()
            if (verb, path) == ("GET", "/failed"):
                found = self.failed()
            elif verb == "POST" and path in self.posts:
                found = self.posts[path](json.loads(body))
            else:
                return HTTPStatus.NOT_FOUND, "text/plain", f"no {verb} {path}\n"
        except (om.OptMatchError, TypeError, ValueError) as exc:
            helpless = not isinstance(exc, ValueError | TypeError)  # an InputError is a ValueError
            status = HTTPStatus.CONFLICT if helpless else HTTPStatus.BAD_REQUEST
            return status, "text/plain", f"{exc}\n"
        return HTTPStatus.OK, "application/json", json.dumps(found) + "\n"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one client, one after the other."""
        try:
            while request := (await reader.readline()).decode("latin-1").strip():
                size = 0
                while header := (await reader.readline()).decode("latin-1").strip().lower():
                    if header.startswith("content-length:"):
                        size = int(header.split(":")[1])
                if size > _MOST_BYTES:
                    break  # nothing that is asked here is that long
                body = await reader.readexactly(size)
                status, kind, text = await asyncio.to_thread(self.answer, request, body)
                head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
                content = text.encode()
                writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass  # the client has gone, or speaks something else
        finally:
            writer.close()


async def main(folder: str, port: str = "0") -> None:
    """Serve until the process ends; the first line of the output is the address."""
    service = Service(Path(folder))
    server = await asyncio.start_server(service.serve, "127.0.0.1", int(port))
    print("http://{}:{}".format(*server.sockets[0].getsockname()), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
