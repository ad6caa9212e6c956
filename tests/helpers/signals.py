"""Commands that a signal meets at a chosen moment, in forks of one process that has all loaded.

A moment is a count of events in Python: calls of functions, and lines of this package. So a moment
is the same in each run, however busy the machine is. Run as a program, this reads cases from
stdin, a list in JSON on each line, and writes one on stdout for each.
"""

import faulthandler
import gc
import json
import os
import signal
import sys
import time
from types import FrameType
from typing import Any, NamedTuple

from click.testing import CliRunner

from optmatch.cli import main
from tests.helpers.command import ROOT

OURS = tuple(str(ROOT / folder) for folder in ("optmatch", "solvers"))
MARK = "the signal"
HANGS_S = 60


class Ended(NamedTuple):
    """The end of a command, and its time from the signal on."""

    code: int
    stdout: str
    stderr: str
    """A line `MARK` tells where the signal came."""
    moments: int
    """How many moments there were until the signal, or until the end."""
    wall_s: float
    cpu_s: float


class Moments:
    """Counts events in Python while signals are listened to, and sends one in the end."""

    def __init__(self, sent: int, at: int, told: int) -> None:
        self.sent, self.at, self.told, self.count = sent, at, told, 0

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Take notice of a call or a line."""
        if callable(signal.getsignal(signal.SIGTERM)):
            self.count += 1
            if self.count == self.at:
                sys.settrace(None)
                print(MARK, file=sys.stderr, flush=True)
                self.tell()
                os.kill(os.getpid(), self.sent)
        return self if frame.f_code.co_filename.startswith(OURS) else None

    def tell(self) -> None:
        """Write down when this is."""
        now = [self.count, time.perf_counter(), time.process_time()]
        os.write(self.told, json.dumps(now).encode() + b"\n")


def fork(words: list[str], sent: int, at: int) -> Ended:
    """Run a command in a fork, and tell how it ended."""
    read, told = os.pipe()
    out, err = (os.memfd_create(name) for name in ("out", "err"))
    child = os.fork()
    if child == 0:
        os.dup2(out, 1)
        os.dup2(err, 2)
        faulthandler.dump_traceback_later(HANGS_S, exit=True, file=err)
        moments = Moments(sent, at, told)
        sys.settrace(moments)
        try:
            main(words, prog_name="optmatch")
        finally:
            sys.settrace(None)
            moments.tell()
    os.close(told)
    _, status = os.waitpid(child, 0)
    times = [json.loads(line) for line in os.read(read, 1000).splitlines()]
    os.close(read)
    (count, then_s, spent_s), (_, end_s, all_s) = times[0], times[-1]
    texts = []
    for file in (out, err):
        os.lseek(file, 0, os.SEEK_SET)
        texts.append(os.read(file, 1 << 22).decode())
        os.close(file)
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, texts[0], texts[1], count, end_s - then_s, all_s - spent_s)


def serve() -> None:
    """Read cases and run them; modules that a command needs are loaded before its first case."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    loaded = set[str]()
    for line in sys.stdin:
        words, sent, at = json.loads(line)
        if words[0] not in loaded:
            loaded.add(words[0])
            CliRunner().invoke(main, words)
            gc.freeze()  # a fork that ends then touches, and so copies, little
        print(json.dumps(fork(words, sent, at)), flush=True)


if __name__ == "__main__":
    serve()
