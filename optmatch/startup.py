"""What the program sets up before all else: Ctrl-C, and streams that are closed or broken.

The package imports this module before all others. While the program is still importing, SIGINT
ends it at once, without a traceback; later the command line listens to signals itself. A daemon
may have closed its streams, and a pipe may be broken: what cannot be said on stderr is lost, and
nothing else changes. Where the package is imported by another program, or in a notebook, none of
this is done.
"""

from __future__ import annotations

import errno
import os
import signal
import sys

TYPE_CHECKING = False  # as type checkers know it: typing itself takes long to load
if TYPE_CHECKING:
    from typing import Any, NoReturn

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


class _Stderr:
    """The stream of notes: what cannot be written is lost, and raises no error."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, if the stream takes it."""
        try:
            self._stream.write(text)
        except OSError:
            return 0
        return len(text)

    def flush(self) -> None:
        """Write what waits in a buffer, if the stream takes it."""
        try:
            self._stream.flush()
        except OSError:
            return


class _ClosedStdout:
    """The stream of results of a program that was started without one: to write is an error."""

    encoding = "utf-8"

    def write(self, text: str) -> NoReturn:
        """Raise the error of a closed file."""
        raise OSError(errno.EBADF, "closed, so nothing can be printed", "<stdout>")

    def flush(self) -> None:
        """Write nothing, as nothing was taken."""

    def isatty(self) -> bool:
        """Tell that it is no terminal."""
        return False


def _open_closed_streams() -> None:
    """Replace the streams of the program that are closed, and let stderr raise no errors.

    The numbers of closed streams are taken by the null device: a file that is opened later would
    get such a number, and what libraries write to stderr would go into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is None:
        sys.stdout = _ClosedStdout()
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8")  # noqa: SIM115 - by its number
    sys.stderr = _Stderr(sys.stderr)


if _is_program():
    _end_at_ctrl_c()
    _open_closed_streams()
