"""Ctrl-C while the program is still importing: it ends at once, without a traceback.

The package imports this module before all others, and from here on SIGINT ends the program. Later
the command line listens to signals itself. Where the package is imported by another program, or in
a notebook, Ctrl-C stays the exception that it is there.
"""

import os
import signal
import sys

_PROGRAMS = ("optmatch", "optmatch.exe", "cli.py", "-m")
"""What `sys.argv` calls our program; the last name while `python -m` looks for the module."""


def end(number: int, _frame: object) -> None:
    """End the process: an exception would come out of the middle of an import, as another."""
    os._exit(128 + number)


def end_program() -> None:
    """End the process as `end` does, if it is our program and nobody else handles Ctrl-C."""
    if _is_program() and signal.getsignal(signal.SIGINT) is end:
        end(signal.SIGINT, None)


def _is_program() -> bool:
    """Tell whether this process runs our command line."""
    if not sys.argv:
        return False
    return os.path.basename(sys.argv[0]) in _PROGRAMS  # noqa: PTH119 - pathlib loads slowly


def _end_at_ctrl_c() -> None:
    """Let SIGINT end the process, unless it is ignored or handled already."""
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, end)
    except ValueError:
        return  # signals can be handled in the main thread alone


if _is_program():
    _end_at_ctrl_c()
