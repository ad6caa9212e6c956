"""A switch that is not there: it keeps its circuits in memory and prints what would be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from optmatch.io.switches.circuits import (
    CrossConnect,
    Difference,
    check_difference,
    check_sides,
    list_circuits,
    sort_circuits,
)
from optmatch.model.declarations import form_of
from optmatch.switches.protocol import SwitchReading, Tuning, refused_by


class DrySwitch:
    """A rehearsal of a switch: nothing is sent anywhere.

    Parameters
    ----------
    circuits
        The circuits that the switch holds in the beginning.
    write
        Is given a line for each circuit that is removed or added; `print` unless told otherwise.

    Examples
    --------
    >>> from optmatch.switches import CrossConnect, Difference
    >>> switch = DrySwitch([CrossConnect("1A", "2B")])
    >>> switch.apply(Difference((CrossConnect("1A", "2B"),), (CrossConnect("1A", "3B"),)))
    remove 1A-2B
    add 1A-3B
    >>> switch.read().circuits
    (CrossConnect(a_side='1A', b_side='3B'),)
    """

    name: str = "dry"

    def __init__(
        self, circuits: Iterable[CrossConnect] = (), write: Callable[[str], object] = print
    ) -> None:
        """Make a stand-in for a switch that only prints what it is told.

        Parameters
        ----------
        circuits
            The circuits that it holds at first, as `CrossConnect`.
        write
            Is called with each line, such as ``add 1A-2B``.
        """
        form_of(Callable).check("write", write)
        self._circuits = set(list_circuits("circuits", circuits))
        self._write = write

    def read(self) -> SwitchReading:
        """Return the circuits; all of them are tuned."""
        return SwitchReading(sort_circuits(self._circuits), self.read_statuses())

    def read_circuits(self) -> tuple[CrossConnect, ...]:
        """Return the circuits."""
        return sort_circuits(self._circuits)

    def read_statuses(self) -> dict[str, str]:
        """Return ``tuned`` for each side of a circuit."""
        return {side: "tuned" for circuit in self._circuits for side in circuit}

    def apply(self, difference: Difference) -> None:
        """Rehearse a change: print each circuit that is removed or added, and remember it.

        Parameters
        ----------
        difference
            The circuits (from the A side of a port to the B side of one) to remove and to add.

        Raises
        ------
        SwitchError
            If two circuits would share a side afterwards; nothing is printed or changed then.
        """
        check_difference(difference)
        after = (self._circuits - set(difference.removals)) | set(difference.additions)
        with refused_by(self.name):
            check_sides(after)
        for circuit in difference.removals:
            self._write(f"remove {circuit.name}")
        for circuit in difference.additions:
            self._write(f"add {circuit.name}")
        self._circuits = after

    def wait(self, circuits: Sequence[CrossConnect], time_limit_s: float) -> Tuning:
        """Return at once: circuits that are there are tuned."""
        expected = list_circuits("circuits", circuits)
        absent = {circuit: "absent" for circuit in expected if circuit not in self._circuits}
        return Tuning(0.0, absent)

    def claim(self, owner: str) -> None:
        """Do nothing: nobody else knows this switch."""

    def release(self, owner: str) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
