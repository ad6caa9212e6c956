"""Polatis switches, driven by SCPI over TCP.

The spelling of commands follows the public drivers devicecontrol-polatis and tcdona: commands end
in a line feed, ``*opc?`` answers once a command is carried out, and ``:oxc:swit:size?`` answers
``inputs,outputs``. It was tried against a stand-in of the tests, not on a device.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from optmatch.io.switches.circuits import (
    CrossConnect,
    Difference,
    check_difference,
    list_circuits,
    sort_circuits,
)
from optmatch.io.switches.polatis import READ_CIRCUITS, READ_SIZE, command_lines, read_lists
from optmatch.model.declarations import Count, Positive, form_of
from optmatch.switches.protocol import SwitchError, SwitchReading, Tuning, refused_by

PORT = 5025
_MOST_BYTES = 1 << 20
"""The longest answer that is read."""
_POLL_S = 0.01
_MOST_DIGITS = 6
"""The digits of a number of ports; Python refuses to read numbers of thousands of digits."""


class PolatisSwitch:
    """A Polatis switch.

    Parameters
    ----------
    host
        Its address.
    port
        The TCP port of its SCPI interface.
    time_limit_s
        How long one answer may take.

    Raises
    ------
    SwitchError
        If it cannot be reached, or answers otherwise than expected.
    """

    def __init__(self, host: str, port: int = PORT, *, time_limit_s: float = 5.0) -> None:
        """Connect to a Polatis switch by SCPI over TCP, and ask it for its number of ports.

        Parameters
        ----------
        host, port
            The address of the switch and the TCP port of its SCPI interface.
        time_limit_s
            How long one answer of the switch may take, in seconds.

        Raises
        ------
        SwitchError
            If the switch cannot be reached, or does not say that it has as many inputs as outputs.
        """
        host = form_of(str).check("host", host)
        port = form_of(Count).check("port", port)
        time_limit_s = form_of(Positive).check("time_limit_s", time_limit_s)
        self.name: str = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._address = (host, port)
        self._time_limit_s = time_limit_s
        self._connection: socket.socket | None = None
        self._unread = b""

        # The switch answers ``"inputs,outputs"``, in quotation marks or without. One port is one
        # input and one output.
        size = self._ask(READ_SIZE)
        inputs, _, outputs = size.strip().strip('"').partition(",")
        is_number = inputs.isdecimal() and len(inputs) <= _MOST_DIGITS
        if not is_number or inputs != outputs.strip():
            self.close()
            raise SwitchError(
                f"{self.name}: size {size[:40]!r}: as many inputs as outputs are expected"
            )
        self.n_ports: int = int(inputs)

    def read(self) -> SwitchReading:
        """Return all circuits; the switch says nothing about its ports."""
        return SwitchReading(self.read_circuits(), {})

    def read_circuits(self) -> tuple[CrossConnect, ...]:
        """Ask the switch for all its circuits, and return them sorted by their sides.

        Raises
        ------
        SwitchError
            If it cannot be reached, or its answer has another form than expected.
        """
        with refused_by(self.name):
            return sort_circuits(read_lists(self._ask(READ_CIRCUITS), self.n_ports))

    def read_statuses(self) -> dict[str, str]:
        """Return nothing, once the switch has answered: it says nothing about its ports."""
        self._ask(READ_SIZE)
        return {}

    def apply(self, difference: Difference) -> None:
        """Change the circuits of the switch: a command that removes, then one that adds.

        Each command is carried out before the next one is sent: ``*opc?`` behind it is answered by
        1 once that is so. The queue of errors is read after each, as ``*opc?`` says nothing of
        them.

        Parameters
        ----------
        difference
            The circuits to remove and to add.

        Raises
        ------
        SwitchError
            If the switch cannot be reached, does not have one of the ports, or reports an error.
        """
        check_difference(difference)
        with refused_by(self.name):
            lines = command_lines(difference, self.n_ports)
        for line in lines:
            answer = self._ask(f"{line};*opc?").strip()
            if answer != "1":
                raise SwitchError(f"{self.name}: {line[:80]}: answered {answer[:80]!r}")
            # An entry of the queue is a number and a text, such as +0,"No error".
            error_text = self._ask(":syst:err?").strip()
            if error_text.lstrip("+").partition(",")[0] != "0":
                raise SwitchError(f"{self.name}: {line[:80]}: {error_text[:200]}")

    def wait(self, circuits: Sequence[CrossConnect], time_limit_s: float) -> Tuning:
        """Wait until the switch lists all circuits, or the time is over.

        The switch does not say when light passes: a circuit that it lists counts as tuned.

        Parameters
        ----------
        circuits
            The circuits to wait for.
        time_limit_s
            The longest wait, in seconds; with 0 the switch is asked once.

        Returns
        -------
        Tuning
            How long the wait took, in seconds, and the status ``absent`` of each circuit that is
            not listed at its end.
        """
        circuits = list_circuits("circuits", circuits)
        started_s = time.monotonic()
        while True:
            listed = set(self.read_circuits())
            absent = {circuit: "absent" for circuit in circuits if circuit not in listed}
            elapsed_s = time.monotonic() - started_s
            if not absent or elapsed_s >= time_limit_s:
                return Tuning(elapsed_s, absent)
            time.sleep(_POLL_S)

    def claim(self, owner: str) -> None:
        """Do nothing: the interface knows no claims."""

    def release(self, owner: str) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, command: str) -> str:
        """Send a line of ASCII to the switch and return the line that answers it.

        A connection is opened if there is none, with an empty buffer of received bytes. After an
        error the connection is closed, so that a late answer is not taken for that of the next
        command.
        """
        try:
            if self._connection is None:
                self._connection = socket.create_connection(self._address, self._time_limit_s)
                self._connection.settimeout(self._time_limit_s)
                self._unread = b""
            self._connection.sendall(command.encode("ascii") + b"\n")

            # The answer is a line, which may come in pieces.
            assert self._connection is not None
            while b"\n" not in self._unread:
                received = self._connection.recv(65536)
                if not received:
                    raise ConnectionError("the connection was closed in the middle of an answer")
                self._unread += received
                if len(self._unread) > _MOST_BYTES:
                    raise ConnectionError(f"an answer of over {_MOST_BYTES} bytes")
            line, _, self._unread = self._unread.partition(b"\n")
            return line.decode("ascii", "replace").strip()
        except (OSError, UnicodeError) as error:  # the latter of a name that no host can have
            self.close()  # the next command begins with a connection of its own
            raise SwitchError(f"{self.name}: cannot be reached: {error}") from None
