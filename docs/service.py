"""A small service: states of cells for matchings, answers to failures, and figures.

    python docs/service.py FOLDER [PORT]

It speaks HTTP and JSON on this machine alone. ``POST /route [1, 0, ...]`` returns the states of
the cells of a mesh that hold a matching. ``POST /fail {"chip": 3}`` answers a failure in a rack,
takes the answer over and returns its steps; ``POST /repair {"chip": 3}`` takes parts into use
again; ``GET /failed`` lists what is on record, ``GET /figures`` says how things go. What has been
answered with 200 is on disk: a service that is started on the same FOLDER goes on from there.

Every request is answered, by an error if it is malformed, too large, or slower than
`REQUEST_TIME_S`. A connection is closed after an error of HTTP itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import optmatch as om
from optmatch.control import Tally
from optmatch.io import parse_json
from optmatch.solvers import fill_rack

MOST_BODY_BYTES = 1 << 20
"""A matching of 100,000 ports takes less."""
MOST_HEAD_BYTES = 16 << 10
"""The first line and all headers of a request together."""
MOST_CONNECTIONS = 64
"""Further clients are answered with 503."""
IDLE_TIME_S = 60.0
"""How long a connection may wait for its next request."""
REQUEST_TIME_S = 10.0
"""How long a client may take to send a request once it has begun, or to read its answer."""
LINGER_TIME_S = 2.0
"""How long the rest of a refused request is read and thrown away."""
MOST_TRIES = 20
"""How often a failure is answered anew because another request was first."""

PARTS = ("chip", "port", "fibre", "cell")
"""The keys of a repair; a report of a failure may also say how cells are ``stuck``."""

_LOG = logging.getLogger("service")


class Request(NamedTuple):
    """One request of a client."""

    verb: str
    path: str
    body: bytes
    keeps_alive: bool


class Answer(NamedTuple):
    """The answer to one request."""

    status: HTTPStatus
    text: str
    kind: str = "text/plain; charset=utf-8"


class RequestError(Exception):
    """A request that breaks a rule of HTTP or a limit; the connection is closed after it."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Service:
    """The calls; each takes and returns what JSON can hold."""

    def __init__(self, folder: Path) -> None:
        file = folder / "rack.json"
        state = None if file.exists() else fill_rack(om.RackFabric())
        self.rack = om.Rerouter.open(file, state)
        self.router = om.Router(om.HexMesh(5, 5, ports=12), check=True)
        self.route_tally = Tally()
        self.calls: dict[tuple[str, str], Callable[[bytes], Answer]] = {
            ("POST", "/route"): lambda body: _as_json(self.route(_read_json(body))),
            ("POST", "/fail"): lambda body: _as_json(
                self.fail(_read_parts(body, (*PARTS, "stuck")))
            ),
            ("POST", "/repair"): lambda body: _as_json(self.repair(_read_parts(body, PARTS))),
            ("GET", "/failed"): lambda body: _as_json(self.failed()),
            ("GET", "/figures"): lambda body: _as_json(self.figures()),
        }

    def answer(self, request: Request) -> Answer:
        """Answer a request, whatever it asks for; runs in a thread of its own."""
        call = self.calls.get((request.verb, request.path))
        if call is None:
            text = f"no {request.verb} {request.path}\n"
            return Answer(HTTPStatus.NOT_FOUND, text)
        try:
            return call(request.body)
        except om.InputError as exc:
            return Answer(HTTPStatus.BAD_REQUEST, f"{exc}\n")
        except om.OptMatchError as exc:  # nothing helps, or no way was found in time
            return Answer(HTTPStatus.CONFLICT, f"{exc}\n")
        except Exception:
            _LOG.exception("%s %s", request.verb, request.path)
            return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, "an error of the service\n")

    def route(self, matching: Any) -> Any:
        """Return a state for each cell: 0 bar, 1 cross, -1 any."""
        with self.route_tally.call("route"):
            return self.router.route(matching).states.tolist()

    def fail(self, parts: dict[str, Any]) -> Any:
        """Get over a failure, and return the steps of the answer."""
        for _ in range(MOST_TRIES):
            proposal = self.rack.fail(**parts, deadline_s=1.0)
            try:
                self.rack.apply(proposal)
            except om.InputError:
                continue  # another request was first: the failure is pending, and asked again
            return proposal.transition.describe()
        raise om.LimitReached("other requests were always first; the failure is on record")

    def repair(self, parts: dict[str, Any]) -> Any:
        """Take parts into use again, and give circuits back where that is possible."""
        self.rack.repair(**parts)
        for unit in self.rack.stand_ins:
            try:
                self.rack.apply(self.rack.give_back(unit, deadline_s=1.0))
            except om.OptMatchError:
                continue
        return self.failed()

    def failed(self) -> Any:
        """Return the chips that were replaced, and those that are pending."""
        pending = [*self.rack.refused, *self.rack.answered]
        chips = sorted({chip for failure in pending for chip in failure.failed_chips})
        return {"replaced": self.rack.state.failed_chips, "waiting": chips}

    def figures(self) -> Any:
        """Return all figures; those by several words have these in one key, as ``fail done``."""
        figures = {"rack": self.rack.figures(), "router": self.route_tally.figures()}
        return {name: _with_text_keys(values) for name, values in figures.items()}


def _read_json(body: bytes) -> Any:
    """Read JSON strictly: an `InputError` names what is wrong, nesting without end included."""
    return parse_json(body, "the request")


def _read_parts(body: bytes, known: tuple[str, ...]) -> dict[str, Any]:
    """Read a report of parts with known keys; the controller checks the values."""
    parts = _read_json(body)
    if not isinstance(parts, dict):
        raise om.InputError("an object is expected")
    for key in parts:
        if key not in known:
            raise om.InputError(f"unknown key {key!r:.60}: known are {', '.join(known)}")
    return parts


def _with_text_keys(values: Any) -> Any:
    """Return nested dicts as JSON can hold them."""
    if not isinstance(values, dict):
        return values
    return {
        " ".join(key) if isinstance(key, tuple) else str(key): _with_text_keys(value)
        for key, value in values.items()
    }


def _as_json(found: Any) -> Answer:
    return Answer(HTTPStatus.OK, json.dumps(found) + "\n", "application/json")


class Server:
    """Reads requests within the limits, and writes answers."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.n_connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one client, one by one, until it goes or breaks a rule."""
        self.n_connections += 1
        try:
            if self.n_connections > MOST_CONNECTIONS:
                raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")
            keeps_alive = True
            while keeps_alive:
                request = await self._read_request(reader)
                if request is None:
                    return
                answer = await asyncio.to_thread(self.service.answer, request)
                keeps_alive = request.keeps_alive
                await self._write(writer, answer, keeps_alive=keeps_alive)
        except RequestError as exc:
            answer = Answer(exc.status, f"{exc}\n")
            await self._write_last(reader, writer, answer)
        except ConnectionError:
            pass  # the client has gone
        except Exception:
            _LOG.exception("a connection")
            answer = Answer(HTTPStatus.INTERNAL_SERVER_ERROR, "an error of the service\n")
            await self._write_last(reader, writer, answer)
        finally:
            self.n_connections -= 1
            writer.close()

    async def _read_request(self, reader: asyncio.StreamReader) -> Request | None:
        """Read one request; None if the client has gone or has nothing more to ask."""
        try:
            first = await asyncio.wait_for(reader.read(1), IDLE_TIME_S)
        except TimeoutError:
            return None
        if not first:
            return None
        try:
            return await asyncio.wait_for(self._read_rest(first, reader), REQUEST_TIME_S)
        except TimeoutError:
            message = f"the request took more than {REQUEST_TIME_S:g} s"
            raise RequestError(HTTPStatus.REQUEST_TIMEOUT, message) from None
        except asyncio.LimitOverrunError:
            message = f"more than {MOST_HEAD_BYTES} bytes of headers"
            raise RequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message) from None
        except asyncio.IncompleteReadError:
            raise RequestError(HTTPStatus.BAD_REQUEST, "the request ends early") from None

    async def _read_rest(self, first: bytes, reader: asyncio.StreamReader) -> Request:
        head = first + await reader.readuntil(b"\r\n\r\n")
        request_line, *header_lines = head.decode("latin-1").split("\r\n")
        words = request_line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise RequestError(HTTPStatus.BAD_REQUEST, "VERB PATH HTTP/1.1 is expected")
        verb, path, version = words

        headers = dict[str, str]()
        for line in filter(None, header_lines):
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        if "transfer-encoding" in headers:
            message = "a body needs Content-Length"
            raise RequestError(HTTPStatus.LENGTH_REQUIRED, message)
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            message = f"Content-Length: {length[:20]}: a number is expected"
            raise RequestError(HTTPStatus.BAD_REQUEST, message)
        if len(length) > 12 or int(length) > MOST_BODY_BYTES:
            message = f"at most {MOST_BODY_BYTES} bytes of content"
            raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)

        body = await reader.readexactly(int(length))
        default = "close" if version == "HTTP/1.0" else "keep-alive"
        keeps_alive = headers.get("connection", default).lower() != "close"
        return Request(verb, path, body, keeps_alive)

    async def _write(
        self, writer: asyncio.StreamWriter, answer: Answer, *, keeps_alive: bool
    ) -> None:
        """Write an answer; a client that does not read it in time is cut off."""
        content = answer.text.encode("utf-8", "backslashreplace")
        head = (
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
            f"Content-Type: {answer.kind}\r\n"
            f"Content-Length: {len(content)}\r\n"
            f"Connection: {'keep-alive' if keeps_alive else 'close'}\r\n\r\n"
        )
        writer.write(head.encode() + content)
        try:
            await asyncio.wait_for(writer.drain(), REQUEST_TIME_S)
        except TimeoutError:
            raise ConnectionError("the client does not read") from None

    async def _write_last(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer
    ) -> None:
        """Write a last answer to a client that may have gone.

        What the client still sends is thrown away for a while: a connection that is closed with
        unread bytes is reset, and the client would not see the answer.
        """
        try:
            await self._write(writer, answer, keeps_alive=False)
            writer.write_eof()
            async with asyncio.timeout(LINGER_TIME_S):
                while await reader.read(1 << 16):
                    pass
        except (ConnectionError, OSError, TimeoutError):
            pass


async def main(folder: str, port: str = "0") -> None:
    """Serve until the process ends; the first line of the output is the address."""
    service = Service(Path(folder))
    server = await asyncio.start_server(
        Server(service).serve, "127.0.0.1", int(port), limit=MOST_HEAD_BYTES
    )
    print("http://{}:{}".format(*server.sockets[0].getsockname()), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
