"""The service of the manual: many requests at once, and kills between them."""

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from tests.helpers.modes import compiled_only, examples

SERVICE = Path(__file__).parents[2] / "docs" / "service.py"
KILLS, CLIENTS, REQUESTS = examples(2, plain=2), 5, 10
MESH = om.HexMesh(5, 5, ports=12)
CUT_SHORT = 63
"""A chip of which a report is under way when the kill comes."""


@contextmanager
def running(folder: Path, request_time_s: float = 10.0) -> Iterator[int]:
    """Start the service, yield its port, and kill it, whatever it is doing."""
    start = (
        f"import asyncio, sys; sys.path.insert(0, {str(SERVICE.parent)!r}); import service;"
        f" service.REQUEST_TIME_S = {request_time_s}; asyncio.run(service.main({str(folder)!r}))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", start], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().rsplit(":", 1)[1])
        finally:
            process.kill()


HOSTILE_CONTENTS = [
    b"[100000000000000000000000000, 1, 0]",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"\\ud800": 1}',
    b'{"\\udfff": [1]}',
    b"[NaN]",
    b"[1e999]",
    b"9" * 5000,
    b"\xff\xfe",
    b"",
    b"null",
    b'"x"',
    b'{"chip": 100000000000000000000000000}',
    b'{"chip": [[[]]]}',
    b'{"chip": {"chip": 1}}',
    b'{"chip": 1, "deadline_s": 100}',
    b'{"self": 1}',
    b'{"cell": 0, "stuck": []}',
    b'{"chip": "' + b"x" * 500_000 + b'"}',
]
HOSTILE_REQUESTS: dict[str, tuple[bytes, int]] = {
    "no HTTP": (b"hello\r\n\r\n", 400),
    "another version": (b"GET / HTTP/2\r\n\r\n", 400),
    "a length that is no number": (b"POST /fail HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
    "a length of many digits": (
        b"POST /fail HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        413,
    ),
    "too much content": (
        b"POST /fail HTTP/1.1\r\nContent-Length: 3000000\r\n\r\n" + bytes(3_000_000),
        413,
    ),
    "chunks": (b"POST /fail HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
    "long headers": (b"GET /failed HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", 431),
    "a request that never ends": (b"POST /fail HTTP/1.1\r\nContent-Length: 10\r\n\r\n{", 408),
    "headers that never end": (b"POST /fail HTTP/1.1\r\nX: ", 408),
    "letters of the path": (b"GET /\xe9\xff HTTP/1.1\r\n\r\n", 404),
}


class Client:
    """Sends requests, and remembers which changes were acknowledged."""

    def __init__(self, port: int, chips: range, seed: int) -> None:
        self.link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.chips, self.rng = chips, np.random.default_rng(seed)
        self.failed: set[int] = set()
        self.wrong: list[str] = []

    def ask(self, verb: str, path: str, content: Any = None) -> tuple[int, str]:
        """Send a request; return status and text."""
        self.link.request(verb, path, None if content is None else json.dumps(content))
        answer = self.link.getresponse()
        return answer.status, answer.read().decode()

    def send(self, verb: str, path: str, content: bytes) -> tuple[int, str]:
        """Send bytes that may be no JSON; return status and text."""
        self.link.request(verb, path, content)
        answer = self.link.getresponse()
        return answer.status, answer.read().decode()

    def act(self) -> None:
        """Route a matching, or let a chip of its own fail or work again."""
        if self.rng.random() < 0.5:
            matching = np.full(12, -1)
            pairs = self.rng.permutation(12).reshape(-1, 2)[:3]
            matching[pairs] = pairs[:, ::-1]
            status, text = self.ask("POST", "/route", matching.tolist())
            if status != 200 or len(json.loads(text)) != MESH.n_cells:
                self.wrong.append(f"route: {status} {text}")
            return
        chip = int(self.rng.choice(self.chips))
        repair = chip in self.failed
        status, text = self.ask("POST", "/repair" if repair else "/fail", {"chip": chip})
        if status not in (200, 409) or (repair and status != 200):
            self.wrong.append(f"{'repair' if repair else 'fail'} {chip}: {status} {text}")
        self.failed ^= {chip}  # failures that nothing helps are on record too


@compiled_only
@pytest.mark.slow
def test_many_requests_and_kills_between_them(tmp_path: Path) -> None:
    """Each change that was acknowledged is there after a kill; figures count the requests."""
    known = [set[int]() for _ in range(CLIENTS)]
    for kill in range(KILLS):
        with (
            running(tmp_path) as port,
            ThreadPoolExecutor(CLIENTS) as threads,
            ExitStack() as links,
        ):
            clients = [
                Client(port, range(12 * k, 12 * k + 12), CLIENTS * kill + k)
                for k in range(CLIENTS)
            ]
            for client, failed in zip(clients, known, strict=True):
                client.failed = failed
                links.callback(client.link.close)
            on_record = json.loads(clients[0].ask("GET", "/failed")[1])
            found = {*on_record["replaced"], *on_record["waiting"]}
            assert found - {CUT_SHORT} == set().union(*known)

            def work(client: Client) -> None:
                for _ in range(examples(REQUESTS, plain=4)):
                    client.act()

            list(threads.map(work, clients))
            assert [client.wrong for client in clients] == [[]] * CLIENTS
            figures = json.loads(clients[0].ask("GET", "/figures")[1])
            calls = figures["rack"]["calls"] | figures["router"]["calls"]
            asked = sum(
                count
                for call, count in calls.items()
                if call.split()[0] in ("route", "fail", "repair")
            )
            assert asked >= CLIENTS * examples(REQUESTS, plain=4)
            clients[0].link.request("POST", "/fail", json.dumps({"chip": CUT_SHORT}))


@compiled_only
def test_bad_requests_are_answered(tmp_path: Path) -> None:
    with running(tmp_path) as port, ExitStack() as links:
        client = Client(port, range(1), 0)
        links.callback(client.link.close)
        assert client.ask("POST", "/fail", {"chip": 64}) == (400, "chip = 64: chips are 0 .. 63\n")
        assert client.ask("POST", "/fail", {"ship": 6})[0] == 400
        assert client.ask("POST", "/fail", [1])[0] == 400
        assert client.ask("POST", "/route", [1, 2, 0])[0] == 400
        assert client.ask("GET", "/nothing") == (404, "no GET /nothing\n")
        for content in HOSTILE_CONTENTS:
            for path in ("/route", "/fail", "/repair"):
                status, text = client.send("POST", path, content)
                assert status == 400 and len(text) < 4000 and "Traceback" not in text, content
        assert client.ask("POST", "/fail", {"chip": [1, 2, 3, 4, 5]})[0] == 409
        assert json.loads(client.ask("GET", "/failed")[1])["waiting"] == [1, 2, 3, 4, 5]


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Start a service that gives each request one second, and yield its port."""
    with running(tmp_path_factory.mktemp("hurried"), request_time_s=1.0) as port:
        yield port


@compiled_only
@pytest.mark.parametrize("name", HOSTILE_REQUESTS)
def test_every_request_is_answered_and_slow_clients_are_cut_off(name: str, hurried: int) -> None:
    """Nobody else waits meanwhile."""
    content, status = HOSTILE_REQUESTS[name]
    with ExitStack() as links:
        with socket.create_connection(("127.0.0.1", hurried), timeout=60) as link:
            link.sendall(content)
            other = Client(hurried, range(1), 0)
            links.callback(other.link.close)
            assert other.ask("GET", "/failed")[0] == 200
            answer = b""
            while b"\r\n\r\n" not in answer:
                part = link.recv(65536)
                assert part, f"closed without an answer after {answer!r}"
                answer += part
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
