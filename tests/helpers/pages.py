"""Python of pages, each page in a fork of one process that has loaded what most of them need.

Run as a program, this reads a list of blocks and a folder as JSON from each line of stdin, and
writes the exit code and what was printed.
"""

import json
import os
import re
import sys
import traceback
import warnings
from importlib import import_module
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from optmatch.solvers.rails import forwarding

LOADED = ("matplotlib.pyplot", "networkx", "numba", "ortools.sat.python.cp_model", "scipy.sparse")
END = "\0\n"
"""Ends what a block prints."""
LIMIT = re.compile(r"\btime_limit_s=[\d.]+(?![\w.])")
"""The limit of a search, which gets a fifth of it: many go on until the limit."""


class Done(NamedTuple):
    """The end of a page."""

    code: int
    stdout: str
    stderr: str


def run(blocks: list[str], folder: str, streams: list[IO[str]]) -> None:
    """Run the blocks, and end this process."""
    code = 1
    try:
        os.chdir(folder)
        for number, stream in enumerate(streams, 1):
            os.dup2(stream.fileno(), number)
        for block in blocks:
            exec(LIMIT.sub(r"\g<0> / 5", block), {"__name__": "__main__"})
            print(end=END, flush=True)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve() -> None:
    """Run pages until stdin ends."""
    warnings.filterwarnings("ignore", ".*use of fork", DeprecationWarning)  # nothing runs in them
    for name in LOADED:
        import_module(name)
    forwarding._MOST_TRIALS = 150  # plans are searched for elsewhere
    for line in sys.stdin:
        with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
            if not (child := os.fork()):
                found, folder = json.loads(line)
                run(found, folder, [out, err])
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            for stream in (out, err):
                stream.seek(0)
            print(json.dumps([code, out.read(), err.read()]), flush=True)


if __name__ == "__main__":
    serve()
