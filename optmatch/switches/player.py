"""Playing a plan on real switches: slot after slot, each tuned before its time counts.

Each line of the journal of a player is a JSON object. The first says what is played; ``claim``
under which name the switches are claimed, so that whoever goes on may take over the claim of a run
that was killed. ``before`` has the circuits that were there; ``applying`` is on disk before a
change is sent; ``tuned`` has the measured delay.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Literal, NamedTuple

import numpy as np

from optmatch.entrances import verify
from optmatch.io.files import dumps
from optmatch.io.switches.circuits import (
    CrossConnect,
    Difference,
    circuit_named,
    difference_between,
)
from optmatch.io.switches.plans import NamedSwitch, name_switches
from optmatch.io.text import digest, read_bytes
from optmatch.model import (
    FormatError,
    InputError,
    Solution,
    VerificationError,
    check_fields,
    integer,
    naming,
)
from optmatch.model.declarations import Amount, Index, form_of
from optmatch.model.files import file_path, lock_at_once, path_name
from optmatch.switches.protocol import (
    CLAIM_EVERY_S,
    Switch,
    SwitchError,
    match_switches,
    own_circuits,
    run_in_thread,
    run_side_by_side,
)

_JOURNAL_FORMAT = "optmatch/play/1"


_PLACE = {"round": form_of(Index), "moment": form_of(Index)}

_FIELDS_OF_EVENT = {
    "before": {"switch": form_of(str), "circuits": form_of(Sequence[str])},
    "claim": {"owner": form_of(str)},
    "applying": _PLACE,
    "tuned": {**_PLACE, "n_changed": form_of(Index), "delay_s": form_of(Amount)},
}
"""The fields that lines of a journal need, by their event; others say nothing that is read."""


class PlayJournal:
    """A journal that a player writes.

    Parameters
    ----------
    path
        The file; it is begun anew, or with `resume` continued.
    header
        What is played: the digest of the plan, the names of the switches.
    resume
        Whether a former run goes on. The file then has to be about the same plan.

    Raises
    ------
    InputError
        If the file is there already, without `resume`, or is of another plan.
    """

    def __init__(
        self, path: str | os.PathLike[str], header: Mapping[str, Any], *, resume: bool
    ) -> None:
        """Open the journal of a player: a file with a line of JSON for each thing that it does.

        A new journal begins with a line that says what is played: the digest of the plan and the
        names of the switches. With `resume`, the lines of a former run, which must have had the
        same header, are read first, and new ones are added behind them. A file that is there
        already without `resume`, is of another plan, or is being written by another player is
        refused.
        """
        self.path = file_path(path)
        self.before: dict[str, list[str]] = {}
        """Names of the circuits that each switch had before the first change."""
        self.round: int = 0
        """Which time the plan was played by the former run, from 0."""
        self.moment: int = 0
        """Which moment of the plan came last in it, from 0."""
        self.owner: str = ""
        """Under which name the former run claimed its switches; empty for a new journal."""

        name = path_name(path)
        if not name:
            raise InputError("journal = '': the name of a file is expected", where="journal")
        self._file = self._open(name, resume=resume)
        try:
            # The lock is held as long as the file is open, so that only one player writes it.
            # Nothing is read before: another player might write the file after that and end.
            if not lock_at_once(self._file):
                raise InputError("another player is writing this journal", path=name)
            if resume:
                entries = list(read_entries(self.path))
                if not entries:
                    raise InputError("is empty: there is nothing to go on with", path=name)
                for key, value in header.items():
                    if entries[0].get(key) != value:
                        raise InputError(
                            f"{key} = {str(entries[0].get(key))[:80]!r}: the journal is of another"
                            f" plan or another switch, not {str(value)[:80]!r}",
                            path=name,
                        )

                # The last entry of a kind counts: a moment is noted as ``applying`` before it is
                # sent, and as ``tuned`` once all of its circuits carry light.
                for entry in entries:
                    event = entry.get("event")
                    if event == "claim":
                        self.owner = str(entry["owner"])
                    elif event == "before":
                        self.before[str(entry["switch"])] = list(map(str, entry["circuits"]))
                    elif event in ("applying", "tuned"):
                        self.round = int(entry["round"])
                        self.moment = int(entry["moment"])

                # A last line that a crash has cut off is removed: the next one would continue
                # it, and nobody could read the two.
                end_of_lines = read_bytes(self.path).rfind(b"\n") + 1
                self._file.seek(end_of_lines)
                self._file.truncate()
            else:
                self.write(sync=True, format=_JOURNAL_FORMAT, **header)
        except BaseException:
            self._file.close()
            raise

    def _open(self, name: str, *, resume: bool) -> IO[str]:
        """Open the file of a former run, or create a new one, for writing.

        `name` is the file's name in messages.
        """
        if resume:
            try:
                return self.path.open("r+", encoding="utf-8")
            except OSError as error:
                raise FormatError(f"cannot be read: {error.strerror}", path=name) from error
        try:
            return self.path.open("x", encoding="utf-8")
        except FileExistsError:
            raise InputError(
                "is there already: --resume goes on with it, another name begins anew", path=name
            ) from None
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", path=name) from error

    def write(self, *, sync: bool = False, **entry: Any) -> None:
        """Add a line with the fields of an event.

        With `sync` it is on disk when this returns, otherwise a crash of the machine may lose it.
        """
        self._file.write(json.dumps(entry, allow_nan=False) + "\n")
        self._file.flush()
        if sync:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_entries(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yield the fields of each line of a journal, checked by its event (`_FIELDS_OF_EVENT`).

    A last line that was cut off by a crash is left out. A `FormatError` names a line that is
    broken or lacks a field.
    """
    name = path_name(path)

    # A crash can cut off the last line alone: each line is written at once, with its line feed.
    lines = read_bytes(path).decode("utf-8", "replace").split("\n")
    for number, line in enumerate(lines[:-1], 1):
        if not line:
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):  # the latter of lists in lists in lists ...
            raise FormatError("not JSON", path=name, where=f"line {number}") from None

        if not isinstance(entry, dict) or (number == 1 and entry.get("format") != _JOURNAL_FORMAT):
            raise FormatError(
                f"a journal of `optmatch play` begins with its format, {_JOURNAL_FORMAT}",
                path=name,
                where=f"line {number}",
            )

        # Fields of the event are there, and of their types; events that nothing reads need none.
        event = entry.get("event")
        fields = _FIELDS_OF_EVENT.get(event, {}) if isinstance(event, str) else {}
        for field, form in fields.items():
            try:
                form.check(field, entry.get(field))
            except InputError as error:
                raise FormatError(str(error), path=name, where=f"line {number}") from None

        yield entry


class MeasuredDelays(NamedTuple):
    """How long reconfigurations of a switch took, from the change to the last tuned circuit."""

    n_changes: int
    p50_s: float
    p99_s: float
    longest_s: float
    is_rehearsal: bool = False
    """Whether a switch was a `DrySwitch`, whose delays are those of no real one."""


def measured_delays(path: str | os.PathLike[str]) -> MeasuredDelays:
    """Return percentiles of the delays that a journal has.

    A delay goes from the first change of a moment that is sent to its last tuned circuit.

    Parameters
    ----------
    path
        The journal of a player.

    Returns
    -------
    MeasuredDelays
        The number of changes, and the 50th and 99th percentile and the longest of their delays, in
        seconds; and whether it is the journal of a rehearsal.

    Raises
    ------
    FormatError
        If the file is no journal.
    InputError
        If it has no measured delay.
    """
    # A moment without a changed circuit has no delay to measure.
    entries = list(read_entries(path))
    delays_s = [
        float(entry["delay_s"])
        for entry in entries
        if entry.get("event") == "tuned" and entry["n_changed"] > 0
    ]
    if not delays_s:
        raise InputError("no change of circuits was measured", path=path_name(path))

    # The first line has the names of the switches, and that of each `DrySwitch` is ``dry``.
    switches = entries[0].get("switches")
    return MeasuredDelays(
        n_changes=len(delays_s),
        p50_s=float(np.percentile(delays_s, 50)),
        p99_s=float(np.percentile(delays_s, 99)),
        longest_s=max(delays_s),
        is_rehearsal=isinstance(switches, list) and "dry" in switches,
    )


_PREPARE_S = 0.03
"""How long before the end of a slot the next one is compared and noted. At 320 ports that takes 5
to 20 ms, most of it for the disk; what somebody else changes after it is not seen before the next
slot, so it is no longer than that."""

Pace = Literal["times", "told"]


@dataclass(frozen=True, kw_only=True)
class PlayOptions:
    """How a plan is played.

    Parameters
    ----------
    pace
        ``"times"``: each slot is held for its duration once its circuits are tuned. ``"told"``:
        until `next_slot` returns.
    next_slot
        Is called before each slot but the first when the pace is ``"told"``.
    rounds
        How many times the plan is played; None: until it is stopped.
    own_delay_s
        A delay that the switches need, such as the p99 of a former journal. Slots that are shorter
        are refused, or with `stretch` held for as long.
    stretch
        Whether slots shorter than `own_delay_s` are held for as long instead.
    take_over
        Whether circuits of others on ports of the plan are removed. By default they are an error.
    only_ports
        Ports that may be touched; None for all ports of the plan.
    time_limit_s
        How long circuits may take until they are tuned.
    journal
        A file that is written, and that `resume` needs; None for none.
    resume
        Go on where the run of the journal stood.
    restore
        Put back at the end what was there before the first change.
    """

    pace: Pace = "times"
    next_slot: Callable[[], object] | None = None
    rounds: Index | None = 1
    own_delay_s: Amount = 0.0
    stretch: bool = False
    take_over: bool = False
    only_ports: Set[int] | None = None
    time_limit_s: Amount = 10.0
    journal: str | os.PathLike[str] | None = None
    resume: bool = False
    restore: bool = False

    def __post_init__(self) -> None:
        """Refuse options of another type or out of range."""
        check_fields(self)
        for port in self.only_ports or ():
            integer("only_ports", port, at_least=0)


class PlayedMoment(NamedTuple):
    """One moment of a plan after it was played."""

    round: int
    """Which time the plan was played, from 0."""
    moment: int
    """Its number in the plan, from 0."""
    n_changed: int
    """Circuits that were removed or added."""
    planned_delay_s: float
    """How long the plan gives the switches until all is tuned."""
    delay_s: float
    """From the change to the last tuned circuit."""
    own_time_s: float
    """Time that the player itself needed beside that."""


@dataclass(frozen=True)
class PlayReport:
    """What was played, and how late it was.

    Parameters
    ----------
    moments
        The moments in the order of time.
    is_whole
        Whether the plan was played to its end.
    """

    moments: tuple[PlayedMoment, ...]
    is_whole: bool

    def figures(self) -> dict[str, float]:
        """Return percentiles of what was measured, by name, in seconds.

        A moment is a time at which switches change together. Its delay goes from the first change
        that is sent to the last tuned circuit, its own time is what the player took beside that,
        and its lateness is delay and own time less the planned delay. Moments at which no circuit
        changed do not count.

        Returns
        -------
        dict
            The numbers of ``moments`` and of ``changes`` (moments with a changed circuit); if
            there are changes, also ``delay_p50_s``, ``delay_p99_s``, and the same of ``own`` and
            ``lateness``.
        """
        changed = [moment for moment in self.moments if moment.n_changed]
        figures: dict[str, float] = {"moments": len(self.moments), "changes": len(changed)}
        if not changed:
            return figures
        delays_s = np.array([moment.delay_s for moment in changed])
        own_s = np.array([moment.own_time_s for moment in changed])
        lateness_s = delays_s + own_s - [moment.planned_delay_s for moment in changed]
        for name, values_s in (("delay", delays_s), ("own", own_s), ("lateness", lateness_s)):
            for percent in (50, 99):
                figures[f"{name}_p{percent}_s"] = float(np.percentile(values_s, percent))
        return figures


class _Moment(NamedTuple):
    """A point in time at which one or more switches change; times are those of the plan."""

    state_of_switch: dict[int, int]
    """``state_of_switch[switch]``: the state to which each switch goes on."""
    planned_delay_s: float
    """From the start until the last of them is tuned."""
    hold_s: float
    """How long the circuits carry data until the next moment begins."""


def _list_moments(switches: Sequence[NamedSwitch]) -> tuple[_Moment, ...]:
    """Put the states of all switches in the order of time.

    Those that begin together are one moment, and plans without times (transitions, slices) have a
    moment for each state. A moment says which switch goes to which state, the planned delay until
    the last of them is tuned, and how long their circuits are held from then on.
    """
    # The key of a moment is its time; states without times are told apart by their numbers.
    states_at: dict[tuple[float, int], dict[int, int]] = {}
    ready_at: dict[tuple[float, int], float] = {}
    end_s = 0.0
    for index, switch in enumerate(switches):
        plan = switch.plan
        is_timed = bool(plan.ends_s.any())
        for state in range(plan.n_states):
            order = 0 if is_timed else state
            key = (float(plan.starts_s[state]), order)
            states_at.setdefault(key, {})[index] = state
            ready_at[key] = max(ready_at.get(key, 0.0), float(plan.ready_s[state]))
            end_s = max(end_s, float(plan.ends_s[state]))

    # A moment is held until the next one begins, the last one until the plan ends.
    keys = sorted(states_at)
    next_starts_s = [*(start_s for start_s, _order in keys[1:]), end_s]
    return tuple(
        _Moment(
            state_of_switch=states_at[key],
            planned_delay_s=ready_at[key] - key[0],
            hold_s=max(0.0, next_start_s - ready_at[key]),
        )
        for key, next_start_s in zip(keys, next_starts_s, strict=True)
    )


def play(
    solution: Solution[Any],
    switch: Switch | Mapping[str, Switch],
    options: PlayOptions | None = None,
    *,
    ports: str | os.PathLike[str] | None = None,
    on_moment: Callable[[PlayedMoment, int], object] | None = None,
    stop: threading.Event | None = None,
) -> PlayReport:
    """Play a plan on a switch, or on several.

    Before each change the circuits on the ports of the plan are compared with what should be
    there; then the difference is applied, and all circuits are tuned before the time of the slot
    counts. Circuits on other ports are never touched. A Ctrl-C or `stop` ends it after a whole
    slot, never in the middle of a change.

    Parameters
    ----------
    solution
        A plan with circuits, which `optmatch.verify` accepts.
    switch
        The switch; of several by name (``"rail 0"``, ``"plane 1"``), as `export` names them.
    options
        How it is played.
    ports
        A table of the sides of our ports, see `optmatch.switches.read_port_tables`.
    on_moment
        Is told of each moment when its circuits are tuned, and how many there are in a round.
    stop
        Ends the play after the present slot when it is set, from any thread.

    Returns
    -------
    PlayReport
        Measured delays and lateness.

    Raises
    ------
    InputError
        If the plan and the switches do not fit, or the plan needs a port that it may not touch.
    VerificationError
        If the verifier refuses the plan; nothing is sent.
    SwitchError
        If a switch cannot be reached, a circuit fails or is not tuned in time, or circuits of
        others are on ports of the plan.

    Examples
    --------
    >>> import optmatch as om
    >>> from optmatch.switches import DrySwitch, play
    >>> solution = om.solve(om.Routing(om.IdealSwitch(2), [1, 0]), seed=0)
    >>> play(solution, DrySwitch(), PlayOptions(pace="told", next_slot=lambda: None)).is_whole
    add 1A-2B
    add 2A-1B
    True
    """
    form_of(Solution).check("solution", solution)
    form_of(PlayOptions | None).check("options", options)
    report = verify(solution.problem, solution)
    if not report.valid:
        raise VerificationError(
            f"the plan is refused, so nothing is sent: {next(iter(report.violations), '')}"
        )
    player = _Player(solution, switch, options or PlayOptions(), ports, on_moment)
    stop = stop or threading.Event()
    return run_in_thread(lambda: player.run(stop), stop)


class _PreparedMoment(NamedTuple):
    """A moment that is compared with the switches and noted, and not sent yet."""

    round: int
    """Which time the plan was played, as of `PlayedMoment`."""
    moment: int
    targets: dict[int, frozenset[CrossConnect]]
    """The circuits that each switch of the moment holds from then on."""
    differences: dict[int, Difference]
    """The change of each of them that leads there."""
    due_s: float
    """When the slot before it is over, on the monotonic clock."""

    @property
    def n_changed(self) -> int:
        """How many circuits are removed or added."""
        changes = self.differences.values()
        return sum(len(change.removals) + len(change.additions) for change in changes)


class _UntunedError(SwitchError):
    """A circuit of ours has failed, or was not tuned in time."""


class _Player:
    """Plays the moments of a plan on its switches.

    Switches are numbered by their places in `plans`, which has those with something to do.
    """

    def __init__(
        self,
        solution: Solution[Any],
        switch: Switch | Mapping[str, Switch],
        options: PlayOptions,
        ports: str | os.PathLike[str] | None,
        on_moment: Callable[[PlayedMoment, int], object] | None,
    ) -> None:
        """Prepare the run of a plan on switches; nothing is sent yet.

        Without a file of `ports`, port p has the sides ``(p + 1)A`` and ``(p + 1)B``. `on_moment`
        is called with each moment that was played and the number of moments of the plan. Switches
        that do not fit the plan are refused, and so is a plan without slots, or with a moment that
        is shorter than a change of the switch takes.
        """
        # The plan, and the switches that play it.
        self.options = options
        self.on_moment = on_moment
        named = name_switches(solution, ports)
        self.plans = tuple(plan for plan in named if plan.plan.n_states)
        if not self.plans:
            raise InputError("the plan has no slots: there is nothing to play", where="solution")
        # Whoever names all switches of a plan need not know that one of them has nothing to do.
        if isinstance(switch, Mapping):
            idle = [plan.plan for plan in named if not plan.plan.n_states]
            idle_names = {name for plan in idle for name in (plan.name, plan.file_name)}
            switch = {name: driver for name, driver in switch.items() if name not in idle_names}
        matched = match_switches(self.plans, switch)
        self.switches = tuple(one for one in matched if one is not None)
        self.moments = _list_moments(self.plans)
        self.n_steps: float = math.inf
        """How many moments all rounds have together."""
        if options.rounds is not None:
            self.n_steps = options.rounds * len(self.moments)
        self.own_sides = [_own_sides(plan, options.only_ports) for plan in self.plans]
        """The sides that may be touched, for each switch."""
        # Only a plan that is played by its own times has durations to keep; moments of plans
        # without times last 0 seconds and are passed over.
        keeps_times = options.pace == "times" and not options.stretch
        for place, moment in enumerate(self.moments):
            timed = keeps_times and moment.hold_s + moment.planned_delay_s > 0
            if timed and moment.hold_s < options.own_delay_s:
                raise InputError(
                    f"slot {place} lasts {moment.hold_s:.6g} s, less than the"
                    f" {options.own_delay_s:.6g} s that the switch needs for a change:"
                    " --stretch holds it as long",
                    where=f"slot {place}",
                )

        # The marks of this run in its journal and in the claims on the switches.
        self.plan_digest = digest(dumps(solution).encode())
        self.owner = f"optmatch {uuid.uuid4().hex[:12]}"
        self.journal: PlayJournal | None = None

        self.expected: list[frozenset[CrossConnect]] = [frozenset() for _ in self.plans]
        """The circuits of ours that each switch should hold at present."""
        self.before: list[frozenset[CrossConnect]] = list(self.expected)
        """The circuits of ours that each switch held before the first change."""

    def run(self, stop: threading.Event) -> PlayReport:
        """Claim the switches, play the plan, and release them.

        `stop` ends the play after the present slot, from any thread.

        A claim keeps other players from a switch as long as it is renewed. Circuits are ours if
        they have a side on a port of the plan. A `SwitchError` is raised if a switch cannot be
        reached or is claimed by another player, somebody else has changed our circuits, or a
        circuit is not tuned. What was there before is put back where that is asked for and the
        circuits are still ours.
        """
        claimed: list[Switch] = []
        try:
            # A journal is locked by its player. A player that can open it knows that the former
            # run has ended, and takes over its claims, which may not have expired yet.
            if self.options.resume:
                self._open_journal()
            for switch in self.switches:
                switch.claim(self.owner)
                claimed.append(switch)
            self._begin()
            try:
                report = self._play_rounds(stop)
            except _UntunedError:
                # A failed port must not keep the switch from what was there before.
                if self.options.restore:
                    with suppress(SwitchError):
                        self._put_back()
                raise
            if self.options.restore:
                self._put_back()
            self._note(event="ended", is_whole=report.is_whole)
            return report

        # Whatever ends the run, the next player does not have to wait for the claim to expire.
        finally:
            if self.journal is not None:
                self.journal.close()
            for switch in claimed:
                # A claim that cannot be given up expires by itself. It hides neither the error
                # that has ended the run, nor keeps the other switches claimed.
                with suppress(SwitchError):
                    switch.release(self.owner)

    def _begin(self) -> None:
        """Open the journal, and check the circuits that the switches hold.

        The circuits before the first change are noted, or of a run that goes on read from its
        journal.

        ``expected`` and ``before`` get the circuits that each switch holds on our ports, the
        latter as they were before the first change of all.

        Raises
        ------
        SwitchError
            If a switch is none, or holds a circuit of somebody else on a port of the plan.
        InputError
            If the journal is of another plan.
        """
        for switch in self.switches:
            switch.read()  # refuses what is no such switch, and rows that contradict their keys
        if self.journal is None:
            self._open_journal()

        for index, plan in enumerate(self.plans):
            present = own_circuits(self.switches[index], self.own_sides[index])
            # Circuits on our ports that no state of the plan has are refused, or removed by the
            # first change.
            planned = {circuit for k in range(plan.plan.n_states) for circuit in plan.circuits(k)}
            foreign = sorted(set(present) - planned)
            if foreign and not self.options.take_over:
                raise SwitchError(
                    f"{self.switches[index].name}: circuit {foreign[0].name} is on a port of the"
                    f" plan and is none of its circuits ({len(foreign)} such); --take-over removes"
                    " them"
                )
            self.expected[index] = present

            names_before = None
            if self.journal is not None:
                names_before = self.journal.before.get(plan.plan.name)
            if names_before is None:
                self.before[index] = present
                names = sorted(circuit.name for circuit in present)
                self._note(sync=True, event="before", switch=plan.plan.name, circuits=names)
            else:
                with naming(path_name(self.options.journal)):
                    self.before[index] = frozenset(circuit_named(name) for name in names_before)

    def _open_journal(self) -> None:
        """Open the journal, if there is to be one, and note or read who claims the switches.

        A run that goes on takes over the name of the former run (`owner`), and with it the claims
        on the switches, which may not have expired yet. A new run notes its own name.

        Raises
        ------
        InputError
            If the journal is of another plan, or another player writes it.
        """
        if self.options.journal is None:
            return
        names = [switch.name for switch in self.switches]
        header = {"plan": self.plan_digest, "switches": names}
        self.journal = PlayJournal(self.options.journal, header, resume=self.options.resume)
        if self.journal.owner:
            self.owner = self.journal.owner
        else:
            self._note(sync=True, event="claim", owner=self.owner)

    def _play_rounds(self, stop: threading.Event) -> PlayReport:
        """Play all moments, round after round, until `stop` ends it before the next moment.

        Between two moments circuits are held as long as the options say (`pace`): for the times of
        the plan, until `next_slot` returns, or not at all.
        """
        options = self.options
        played: list[PlayedMoment] = []

        # Steps are the moments of all rounds. A run that goes on begins with the moment that was
        # being played. The first moment is prepared here, each further one while the one before it
        # is held, if it is held.
        step = 0
        if self.journal is not None:
            place = min(self.journal.moment, len(self.moments) - 1)
            step = self.journal.round * len(self.moments) + place

        prepared: _PreparedMoment | None = None
        while step < self.n_steps:
            if options.pace == "told" and played and options.next_slot is not None:
                options.next_slot()
            if stop.is_set():
                return PlayReport(tuple(played), is_whole=False)
            if prepared is None:
                prepared = self._prepare(step, time.monotonic())

            # The moment is played and told, and held while the next one is prepared.
            moment = self._play_moment(prepared)
            played.append(moment)
            if self.on_moment is not None:
                self.on_moment(moment, len(self.moments))
            prepared = self._hold(step, stop)
            step += 1
        return PlayReport(tuple(played), is_whole=not stop.is_set())

    def _prepare(self, step: int, due_s: float) -> _PreparedMoment:
        """Compare all switches of a moment with what they should hold, and note the moment.

        The journal says what comes before it is sent, so that a crash leaves no doubt. Steps count
        the moments of all rounds from 0; `due_s` is when the slot before the moment is over, on
        the monotonic clock. A circuit of ours that somebody else has changed, or has set on a port
        of ours, is an error.
        """
        round_number, place = divmod(step, len(self.moments))
        targets: dict[int, frozenset[CrossConnect]] = {}
        differences: dict[int, Difference] = {}
        for index, state in self.moments[place].state_of_switch.items():
            self.switches[index].claim(self.owner)
            present = self._compare(index)
            targets[index] = frozenset(self.plans[index].circuits(state))
            differences[index] = difference_between(present, targets[index])

        prepared = _PreparedMoment(round_number, place, targets, differences, due_s)
        is_change = prepared.n_changed > 0
        self._note(sync=is_change, event="applying", round=round_number, moment=place)
        return prepared

    def _play_moment(self, prepared: _PreparedMoment) -> PlayedMoment:
        """Bring all switches of a moment to their next states, and wait until all is tuned.

        The moment that was played has the delay from the first change that is sent to the last
        tuned circuit, and the time that the player took beside it after the moment was due.
        """
        # A driver that stands for several switches of the plan is told of one after the other.
        indices_of_driver: dict[int, list[int]] = {}
        for index in prepared.differences:
            indices_of_driver.setdefault(id(self.switches[index]), []).append(index)

        # Switches change side by side, as each may wait for its removals: all are told first, then
        # all are waited for.
        applied_s = time.monotonic()
        run_side_by_side(
            [partial(self._apply, prepared, indices) for indices in indices_of_driver.values()]
        )
        for index, target in prepared.targets.items():
            self._wait(index, target, applied_s)
        delay_s = time.monotonic() - applied_s

        self._note(
            event="tuned",
            round=prepared.round,
            moment=prepared.moment,
            n_changed=prepared.n_changed,
            delay_s=round(delay_s, 6),
        )
        # The own time of the player is all that has passed since the moment was due, less the
        # delay of the switches.
        return PlayedMoment(
            round=prepared.round,
            moment=prepared.moment,
            n_changed=prepared.n_changed,
            planned_delay_s=self.moments[prepared.moment].planned_delay_s,
            delay_s=delay_s,
            own_time_s=time.monotonic() - prepared.due_s - delay_s,
        )

    def _apply(self, prepared: _PreparedMoment, indices: Sequence[int]) -> None:
        """Send a moment to some of its switches, and expect its circuits there from then on."""
        for index in indices:
            self.switches[index].apply(prepared.differences[index])
            self.expected[index] = prepared.targets[index]

    def _compare(self, index: int) -> frozenset[CrossConnect]:
        """Read our circuits on a switch, and refuse what somebody else has changed.

        With the option `take_over` there may be more of them than the player has set.
        """
        present = own_circuits(self.switches[index], self.own_sides[index])
        expected = self.expected[index]
        if present == expected:
            return present

        name = self.switches[index].name
        # A circuit that is missing is an error even with `take_over`, which is about circuits of
        # others.
        removed = sorted(expected - present)
        added = sorted(present - expected)
        if removed:
            raise SwitchError(f"{name}: somebody else has removed circuit {removed[0].name}")
        if not self.options.take_over:
            raise SwitchError(
                f"{name}: somebody else has set circuit {added[0].name} on a port of the plan"
            )
        return present

    def _wait(self, index: int, circuits: Iterable[CrossConnect], applied_s: float) -> None:
        """Wait until circuits of a switch are tuned; one that is not is an `_UntunedError`.

        Such a circuit has failed, or the time limit is over, which counts from `applied_s` on the
        monotonic clock.
        """
        left_s = self.options.time_limit_s - (time.monotonic() - applied_s)
        tuning = self.switches[index].wait(sorted(circuits), max(0.0, left_s))
        if tuning.status_of_untuned:
            # A failure says more than a circuit that is merely late.
            by_failure = sorted(
                tuning.status_of_untuned.items(), key=lambda entry: entry[1] != "failed"
            )
            circuit, status = by_failure[0]
            self._note(event="untuned", circuit=circuit.name, status=status)
            raise _UntunedError(
                f"{self.switches[index].name}: circuit {circuit.name} is {status} after"
                f" {tuning.delay_s:.3g} s ({len(tuning.status_of_untuned)} circuits are not tuned)"
            )

    def _hold(self, step: int, stop: threading.Event) -> _PreparedMoment | None:
        """Hold the circuits for the time of the plan, and prepare the next moment meanwhile.

        Only plans that are played by their own times are held here (``pace="times"``). The moment
        of the next step is prepared `_PREPARE_S` seconds before it is due, so that reading the
        switches delays nothing; None if there is none.
        """
        if self.options.pace != "times":
            return None
        moment = self.moments[step % len(self.moments)]
        # A slot that is stretched lasts at least as long as the switch needs for a change; moments
        # of plans without times last 0 s and are not stretched.
        hold_s = moment.hold_s
        if self.options.stretch and hold_s + moment.planned_delay_s > 0:
            hold_s = max(hold_s, self.options.own_delay_s)
        end_s = time.monotonic() + hold_s
        self._pass_time(end_s - _PREPARE_S, stop)

        prepared = None
        if step + 1 < self.n_steps and not stop.is_set():
            prepared = self._prepare(step + 1, end_s)
        self._pass_time(end_s, stop)
        return prepared

    def _pass_time(self, end_s: float, stop: threading.Event) -> None:
        """Wait until a time of the monotonic clock, or until `stop` is set.

        Long slots are held in parts of `CLAIM_EVERY_S` seconds: a claim on a switch that is not
        renewed would end.
        """
        while not stop.is_set():
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return
            stop.wait(min(left_s, CLAIM_EVERY_S))
            if left_s > CLAIM_EVERY_S:
                for switch in self.switches:
                    switch.claim(self.owner)

    def _put_back(self) -> None:
        """Put back the circuits that were on our ports before the first change.

        All switches are told first, then all are waited for. A switch that fails keeps no other
        one from what was there before.

        Raises
        ------
        SwitchError
            If somebody else has changed a circuit of ours, or one is not tuned in time. If several
            switches fail, the error of the first one.
        """
        errors: list[SwitchError] = []
        changed: list[int] = []
        for index, switch in enumerate(self.switches):
            try:
                difference = difference_between(self._compare(index), self.before[index])
                switch.apply(difference)
            except SwitchError as error:
                errors.append(error)
                continue
            self.expected[index] = self.before[index]
            changed.append(index)

        applied_s = time.monotonic()
        for index in changed:
            try:
                self._wait(index, self.before[index], applied_s)
            except SwitchError as error:
                errors.append(error)
                continue
            self._note(event="restored", switch=self.plans[index].plan.name)
        if errors:
            raise errors[0]

    def _note(self, *, sync: bool = False, **entry: Any) -> None:
        """Write a line of the journal, if there is one."""
        if self.journal is not None:
            self.journal.write(sync=sync, at=round(time.time(), 6), **entry)


def _own_sides(plan: NamedSwitch, only_ports: Set[int] | None) -> frozenset[str]:
    """Return the names of the sides, such as ``1A``, that a player may touch.

    They are those of all ports, or of `only_ports`; a circuit of the plan at another port is
    refused.
    """
    n_ports = plan.plan.matchings.shape[1]
    ports: Iterable[int] = range(n_ports)
    if only_ports is not None:
        ports = sorted(only_ports)
        # A port takes part in the plan if it sends, or receives, in any state.
        state, source = np.nonzero(plan.plan.matchings >= 0)
        used = np.union1d(source, plan.plan.matchings[state, source]).tolist()
        outside = sorted(set(used) - only_ports)
        if outside:
            raise InputError(
                f"{plan.plan.name}: the plan needs port {outside[0]}, which may not be touched",
                where="only_ports",
            )
    sides = plan.ports.sides
    return frozenset(
        side
        for port in ports
        if port < len(sides)
        for side in (sides[port].a_side, sides[port].b_side)
    )
