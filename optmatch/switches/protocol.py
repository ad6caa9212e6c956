"""The protocol of drivers, addresses of switches, and work that Ctrl-C does not end halfway."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable
from urllib.parse import SplitResult, parse_qs, urlsplit

from optmatch.io.switches.circuits import (
    CrossConnect as CrossConnect,
    Difference as Difference,
    PortTable as PortTable,
    difference_between as difference_between,
    read_port_tables as read_port_tables,
    with_a_side_of,
)
from optmatch.io.switches.plans import NamedSwitch
from optmatch.model import InputError, OptMatchError
from optmatch.model.limits import start_in_thread

Outcome = TypeVar("Outcome")

CLAIM_EVERY_S = 5.0
"""How often the claim on a switch is renewed by those who play or watch. A claim of SONiC's driver
lasts for 30 s, so that several renewals may fail before it ends."""


class SwitchError(OptMatchError):
    """A switch cannot be reached, refuses, or holds something else than it should.

    Examples
    --------
    >>> import optmatch as om
    >>> issubclass(SwitchError, om.OptMatchError)
    True
    """


@contextmanager
def refused_by(name: str) -> Iterator[None]:
    """Raise what is wrong with circuits or answers as an error of the switch of this name."""
    try:
        yield
    except InputError as error:
        raise SwitchError(f"{name}: {error}") from None


class SwitchReading(NamedTuple):
    """The circuits and ports of a switch at one moment."""

    circuits: tuple[CrossConnect, ...]
    """The circuits that it is told to hold, its own and those of others."""
    status_of_side: Mapping[str, str]
    """``tuned``, ``tuning``, ``failed`` or ``blocked``, by the names of sides; empty for a switch
    that says nothing about its ports."""


class Tuning(NamedTuple):
    """The outcome of waiting for circuits."""

    delay_s: float
    """From the call to the moment when the last circuit was tuned, or the wait was over."""
    status_of_untuned: Mapping[CrossConnect, str]
    """The state of each circuit that is not tuned: ``tuning``, ``failed``, ``absent``."""


@runtime_checkable
class Switch(Protocol):
    """A switch that circuits can be read from and set on.

    All methods raise `SwitchError` where the switch cannot be reached or refuses.
    """

    @property
    def name(self) -> str:
        """The name of the switch in messages and journals, without any password."""

    def read(self) -> SwitchReading:
        """Return all circuits and what is known of the ports."""

    def read_circuits(self) -> tuple[CrossConnect, ...]:
        """Return all circuits, in as short a time as the switch allows."""

    def read_statuses(self) -> Mapping[str, str]:
        """Return the status of each side, as `read`, in as short a time as the switch allows."""

    def apply(self, difference: Difference) -> None:
        """Remove and add circuits; as a whole, or removals first where a side moves.

        Applying a difference twice has the effect of applying it once.
        """

    def wait(self, circuits: Sequence[CrossConnect], time_limit_s: float) -> Tuning:
        """Wait until these circuits carry light, one of them has failed, or the time is over."""

    def claim(self, owner: str) -> None:
        """Claim the switch for one player for some seconds, or claim it anew; others are refused.

        Drivers of switches that know no such claim do nothing.
        """

    def release(self, owner: str) -> None:
        """Give up a claim."""

    def close(self) -> None:
        """Close connections."""


def match_switches(
    plans: Sequence[NamedSwitch], switch: Switch | Mapping[str, Switch], *, partial: bool = False
) -> tuple[Switch | None, ...]:
    """Assign real switches, which can be driven, to the switches that a plan or a state has.

    Parameters
    ----------
    plans
        The planned switches: for each its circuits over time (``plan.plan``) and the names of its
        ports.
    switch
        The real switch if one is planned, or real switches by the names of planned ones
        (``rail 0``), or of the files that are written for them (``rail-0``).
    partial
        Whether planned switches may go without a real one; they have None then.

    Returns
    -------
    tuple
        The real switch of each planned one, in the order of `plans`; None for one without.

    Raises
    ------
    InputError
        If a name is unknown, or a planned switch goes without a real one and may not.
    """
    if not isinstance(switch, Mapping):
        if len(plans) != 1:
            names = ", ".join(plan.plan.name for plan in plans[:4])
            raise InputError(
                f"the plan has {len(plans)} switches ({names} ...): name a switch for each",
                where="switch",
            )
        if not partial and not isinstance(switch, Switch):
            raise InputError(f"switch = {switch!r:.60}: a switch is expected", where="switch")
        return (switch,)

    # A planned switch is looked for by its own name, then by that of its file.
    matched = []
    known_names: set[str] = set()
    for plan in plans:
        name = plan.plan.name
        file_name = plan.plan.file_name
        known_names.update((name, file_name))
        matched.append(switch.get(name, switch.get(file_name)))
        if matched[-1] is None and not partial:
            raise InputError(f"no switch is given for {name!r}", where="switch")

    # A name that is none of the plan is a slip.
    unknown = sorted(set(switch) - known_names)
    if unknown:
        raise InputError(f"the plan has no switch {unknown[0]!r}", where="switch")
    return tuple(matched)


def own_circuits(switch: Switch, sides: Set[str]) -> frozenset[CrossConnect]:
    """Read the circuits of a switch, and return those that have one of our sides at either end."""
    return with_a_side_of(switch.read_circuits(), sides)


_EXPECTED = "an address such as redis://127.0.0.1:6379, scpi://HOST or dry: is expected"

_DATABASE_SCHEMES = ("redis", "rediss", "unix")
_HOST_SCHEMES = ("redis", "rediss", "scpi")


def split_address(url: str) -> SplitResult:
    """Split the address of a switch into the parts of `urllib.parse`.

    Refused are hosts and ports that are none, passwords with letters that end the name of a host,
    and Redis addresses without a host or with a database. The message has no part that could
    belong to a password.

    Examples
    --------
    >>> split_address("scpi://[::1]:5025").hostname
    '::1'
    """
    # A slash, a question mark or a hash in a password ends the host for every reader of addresses,
    # and the rest of the password, up to the @ before the true host, becomes a path.
    scheme, _, behind_scheme = url.partition("://")
    authority = re.split(r"[/?#]", behind_scheme, maxsplit=1)[0]
    is_socket = scheme.lower() == "unix"
    if is_socket and authority and "@" not in authority:
        raise InputError("switch: a socket has three slashes, as unix:///FILE", where="switch")
    if scheme.lower() in _HOST_SCHEMES and "@" in behind_scheme[len(authority) :]:
        raise InputError(
            "switch: there is an @ behind the host; in a password / is written as %2F, ? as %3F"
            " and # as %23",
            where="switch",
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InputError(
            "switch: no host or no port can be read, which is a number below 65536; in a password"
            " [ is written as %5B and ] as %5D",
            where="switch",
        ) from None

    if parts.scheme in _DATABASE_SCHEMES:
        has_place = bool(parts.path) if is_socket else bool(parts.hostname)
        if not has_place or port == 0:
            raise InputError(f"switch: {_EXPECTED}", where="switch")
        has_number = not is_socket and parts.path.strip("/") != ""
        if has_number or "db" in parse_qs(parts.query):
            raise InputError(
                "switch: the address names a database; those of SONiC have the numbers 4"
                " (CONFIG_DB) and 6 (STATE_DB), which the address leaves out",
                where="switch",
            )
    return parts


def refuse_address(parts: SplitResult) -> InputError:
    """Return the error for an address that no driver takes, without its password."""
    url = parts.geturl()
    if "@" in url:
        url = f"{parts.scheme}://..."
    return InputError(f"switch {url[:80]!r}: {_EXPECTED}", where="switch")


def run_in_thread(run: Callable[[], Outcome], stop: threading.Event) -> Outcome:
    """Run a function in a thread of its own, so that Ctrl-C does not end it halfway.

    A KeyboardInterrupt in the calling thread sets `stop`, at which the function looks from time to
    time; it ends what it has begun. Its result is returned, or its error raised again.
    """
    running = start_in_thread(run, "optmatch player")
    while True:
        try:
            running.exception()  # waits for the end, and does not raise the error
            break
        except KeyboardInterrupt:
            stop.set()
    return running.result()


def run_side_by_side(calls: Sequence[Callable[[], object]]) -> None:
    """Run some calls, each in a thread of its own, and return when all of them have ended.

    The error of the first call that has raised one is raised again. A single call runs in the
    calling thread.
    """
    if len(calls) <= 1:
        for call in calls:
            call()
        return
    with ThreadPoolExecutor(max_workers=len(calls), thread_name_prefix="optmatch switch") as pool:
        running = [pool.submit(call) for call in calls]
    for ended in running:
        ended.result()
