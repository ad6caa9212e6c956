"""Ctrl-C while the program is still importing: it ends at once, without a traceback."""

import os
import signal
import sys

_PROGRAMS = ("optmatch", "optmatch.exe", "cli.py", "-m")  # the last while `-m` looks for a module


def end(number: int, _frame: object) -> None:
    """End the process: an exception would come out of the middle of an import, as another."""
    os._exit(128 + number)


if os.path.basename("".join(sys.argv[:1])) in _PROGRAMS:  # noqa: PTH119 - pathlib loads slowly
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, end)
    except ValueError:  # not the main thread
        pass
