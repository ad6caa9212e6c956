"""Plans played on a stand-in of a Polatis switch."""

import socketserver
import threading
from collections.abc import Iterator

import pytest

import optmatch as om
from optmatch.switches import (
    CrossConnect,
    Difference,
    PlayOptions,
    PolatisSwitch,
    SwitchError,
    open_switch,
    play,
)
from tests.helpers.polatis_server import PolatisServer


@pytest.fixture
def server() -> Iterator[PolatisServer]:
    started = PolatisServer(6)
    yield started
    started.stop()


def test_a_plan_is_played(server: PolatisServer) -> None:
    solution = om.solve(om.AllToAll(om.IdealSwitch(4)), seed=0)
    switch = open_switch(f"scpi://127.0.0.1:{server.port}")
    options = PlayOptions(pace="told", next_slot=lambda: None)
    report = play(solution, switch, options)
    assert report.is_whole and len(report.moments) == 3 and server.violations == []
    last = solution.schedule.matchings[2].tolist()
    assert server.output_of == {source + 1: 6 + exit_ + 1 for source, exit_ in enumerate(last)}
    switch.close()


def test_an_error_of_the_switch_is_told(server: PolatisServer) -> None:
    switch = PolatisSwitch("127.0.0.1", server.port)
    server.output_of[1] = 9
    with pytest.raises(SwitchError, match="port in use"):
        switch.apply(Difference((), (CrossConnect("1A", "2B"),)))
    with pytest.raises(SwitchError, match=r"side 7A: this switch has sides 1 \.\. 6"):
        switch.apply(Difference((), (CrossConnect("7A", "2B"),)))
    tuning = switch.wait([CrossConnect("2A", "2B")], 0.05)
    assert tuning.status_of_untuned == {CrossConnect("2A", "2B"): "absent"}
    switch.close()


def test_a_switch_that_is_not_there() -> None:
    with pytest.raises(SwitchError, match="cannot be reached"):
        PolatisSwitch("127.0.0.1", 1, time_limit_s=0.5)


@pytest.mark.parametrize(
    "answer",
    [b"nonsense\n", b"4,5\n", b"", b"x" * 2_000_000, b",".join([b"9" * 5000] * 2) + b"\n"],
)
def test_answers_of_something_else(answer: bytes) -> None:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as other:
        threading.Thread(target=other.handle_request, daemon=True).start()
        with pytest.raises(SwitchError):
            PolatisSwitch("127.0.0.1", other.server_address[1], time_limit_s=1.0)
