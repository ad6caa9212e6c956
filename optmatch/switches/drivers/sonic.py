"""SONiC switches, driven through their Redis database.

Circuits are set in CONFIG_DB (database 4); an agent on the switch carries them out and reports in
STATE_DB (database 6). Names after the design document of SONiC for optical circuit switches
(``doc/ocs/ocs_hld.md``, revision 0.5); tables of the state that end in ``_TABLE``, as on the
virtual switch, are read too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from optmatch.io.switches.circuits import (
    CrossConnect,
    Difference,
    check_difference,
    circuit_named,
    list_circuits,
    sort_circuits,
)
from optmatch.io.switches.sonic import (
    CIRCUIT_TABLE,
    LOSS_TABLE,
    PORT_TABLE,
    LossRows,
    circuit_of_row,
    state_of_port,
)
from optmatch.model import InputError, SolverUnavailable
from optmatch.model.declarations import Amount, form_of
from optmatch.switches.protocol import (
    SwitchError,
    SwitchReading,
    Tuning,
    refused_by,
    split_address,
)

CONFIG_DB = 4
STATE_DB = 6

_STATE_SPELLINGS = ("", "_TABLE")
"""The endings of the names of tables in STATE_DB."""

_CLAIM_KEY = "OPTMATCH_PLAYER|claim"
"""A hash in STATE_DB that says who plays on the switch; it expires by itself."""

_CLAIM_S = 30
"""How long a claim lasts unless it is renewed."""

_WHOLE_READING_S = 5.0
"""How long the list of ports of a switch may be out of date for those who watch it."""

PATIENCE_S = 10.0
"""How long a lost connection is tried again."""

_REMOVAL_S = 1.0
"""How long removed circuits may be reported before others are set in their place."""

_POLL_S = 0.002
_POLL_MOST_S = 0.005
"""The first and the longest pause between two looks at a circuit that is waited for."""

_WHOLE_LOOK_S = 0.25
"""How often all circuits that are waited for are looked at, instead of the first one alone."""

_FIRST_RETRY_S = 0.05
_LONGEST_RETRY_S = 1.0
"""The first and the longest pause before a lost connection is tried again."""

_READ_ROWS = """
local rows = {}
for number, key in ipairs(KEYS) do
  rows[number] = redis.call('HMGET', key, unpack(ARGV))
end
return rows
"""
"""A script of the database: the fields ARGV of the rows KEYS. Hundreds of answers of a pipeline
take the client 20 us each; the one answer of a script takes 1 ms. SONiC uses scripts itself."""

Outcome = TypeVar("Outcome")


class SonicSwitch:
    """A switch that runs SONiC, through its database.

    Parameters
    ----------
    url
        Such as ``redis://127.0.0.1:6379``, with a password ``redis://:secret@host:6379``, with TLS
        ``rediss://host``, or ``unix:///var/run/redis/redis.sock``. In a password, / ? # [ ] and %
        are percent-encoded, as ``%2F``. It names no database.
    one_transaction
        Whether removals and additions go into one transaction even where a side moves from one
        circuit to another. The agent of today creates circuits before it removes others, so by
        default such changes are two transactions, removals first.
    patience_s
        How long a lost connection is tried again before `SwitchError` is raised; None for
        `PATIENCE_S`. Changes may be sent twice then, which has the effect of once.

    Raises
    ------
    SolverUnavailable
        Without the package redis: ``pip install 'optmatch[switches]'``.
    SwitchError
        If the database cannot be reached or refuses the password.
    InputError
        If the address is none of a Redis database.
    """

    def __init__(
        self, url: str, *, one_transaction: bool = False, patience_s: float | None = None
    ) -> None:
        """Make the two connections to the Redis database of a SONiC optical switch.

        One is to CONFIG_DB, which says what circuits the switch is to hold, the other to STATE_DB,
        which says what it holds. Nothing is asked yet, so that a wrong address shows at first use.
        """
        url = form_of(str).check("url", url)
        patience_s = form_of(Amount | None).check("patience_s", patience_s)
        form_of(bool).check("one_transaction", one_transaction)
        try:
            import redis
        except ImportError as error:
            raise SolverUnavailable(
                "driving SONiC switches needs redis: pip install 'optmatch[switches]'"
            ) from error
        self._errors = redis.exceptions
        self._one_transaction = one_transaction
        self._patience_s = PATIENCE_S if patience_s is None else patience_s

        # The name stands in messages and journals: it has the host, and never the password.
        parts = split_address(url)
        self.name: str = parts.netloc.rpartition("@")[2]
        if parts.scheme == "unix":
            self.name = parts.path

        # Both connections give up on an answer after some seconds; `_persist` then tries again.
        settings: dict[str, Any] = {
            "decode_responses": True,
            "encoding_errors": "replace",  # labels of ports may be in any encoding
            "socket_timeout": 5.0,
            "socket_connect_timeout": 5.0,
        }
        try:
            self._config = redis.Redis.from_url(url, db=CONFIG_DB, **settings)
            self._state = redis.Redis.from_url(url, db=STATE_DB, **settings)
        except ValueError as error:
            raise InputError(f"switch {self.name!r}: {error}", where="url") from None
        # Tables of the state have the names of those of the configuration with an ending. Which
        # ending this switch uses, and which ports it has, is known from the first whole reading
        # on, that is one of all tables.
        self._spellings: tuple[str, ...] = _STATE_SPELLINGS
        self._sides: tuple[str, ...] = ()
        """All sides of the last whole reading, with those of which the state says nothing yet."""
        self._blocked_sides: tuple[str, ...] = ()
        """The sides that the configuration blocked at the last whole reading."""
        self._next_whole_reading_s = 0.0
        self._may_use_scripts = True
        """Whether the database has not refused a script so far."""

    def read(self) -> SwitchReading:
        """Return all circuits of CONFIG_DB, and the status of all ports of STATE_DB.

        Ports that the configuration blocks are ``blocked``.
        """
        return self._persist(self._read)

    def _read(self) -> SwitchReading:
        """Read the circuits of CONFIG_DB, and the status of each side by STATE_DB.

        A side is ``tuned``, ``tuning``, ``failed``, or ``blocked`` where the configuration blocks
        it. The spelling of the state's circuits is remembered. A switch without these tables is an
        error, and so is a row of a circuit that contradicts its key.
        """
        circuit_rows = _rows(self._config, CIRCUIT_TABLE)
        port_rows = _rows(self._config, PORT_TABLE)

        # The state may be in tables of either spelling; later questions ask for those that exist.
        statuses: dict[str, str] = {}
        spellings = []
        for spelling in _STATE_SPELLINGS:
            state_rows = _rows(self._state, PORT_TABLE + spelling)
            circuit_state_rows = _rows(self._state, CIRCUIT_TABLE + spelling)
            if state_rows or circuit_state_rows:
                spellings.append(spelling)
            statuses |= {side: str(row.get("status", "")) for side, row in state_rows.items()}
        self._spellings = tuple(spellings) or _STATE_SPELLINGS
        self._sides = tuple(dict.fromkeys([*statuses, *port_rows]))
        if not circuit_rows and not port_rows and not spellings:
            raise SwitchError(
                f"{self.name}: neither {PORT_TABLE} nor {CIRCUIT_TABLE} is in database"
                f" {CONFIG_DB}: not the database of a SONiC optical switch"
            )

        # Sides that the configuration blocks are blocked, whatever the state still says.
        self._blocked_sides = tuple(
            side for side, row in port_rows.items() if state_of_port(row) == "force_blocked"
        )
        statuses |= dict.fromkeys(self._blocked_sides, "blocked")

        with refused_by(self.name):
            circuits = [
                circuit_of_row(key, row, f"{CIRCUIT_TABLE}|{key}")
                for key, row in circuit_rows.items()
            ]
        return SwitchReading(sort_circuits(circuits), statuses)

    def read_circuits(self) -> tuple[CrossConnect, ...]:
        """Return all circuits by their keys in CONFIG_DB, without a look at their rows.

        Raises
        ------
        SwitchError
            If the database cannot be reached, or a key is no name of a circuit.
        """
        # Keys are such as ``OCS_CROSS_CONNECT|1A-2B``; a scan may find one twice.
        pattern = f"{CIRCUIT_TABLE}|*"
        keys = self._persist(lambda: set(self._config.scan_iter(match=pattern, count=1000)))
        with refused_by(self.name):
            return tuple(circuit_named(key.partition("|")[2]) for key in keys)

    def read_statuses(self) -> dict[str, str]:
        """Return the status of all sides that the last whole reading found, in one round trip.

        A whole reading is made first, and again after `_WHOLE_READING_S`. Sides that are
        configured are asked for even if the state had no row of them then: the first thing that a
        switch says of a dark port may be that it has failed.

        Returns
        -------
        dict
            ``tuned``, ``tuning``, ``failed`` or ``blocked``, by the name of a side; sides of which
            the state says nothing are left out.
        """
        if time.monotonic() >= self._next_whole_reading_s:
            # A reading that fails is due again at once: without one there are no sides to ask for.
            reading = self.read()
            self._next_whole_reading_s = time.monotonic() + _WHOLE_READING_S
            return dict(reading.status_of_side)
        keys = [f"{PORT_TABLE}{self._spellings[0]}|{side}" for side in self._sides]
        rows = self._persist(lambda: self._read_fields(keys, "status"))
        statuses = {
            side: status
            for side, (status,) in zip(self._sides, rows, strict=True)
            if status is not None
        }
        return statuses | dict.fromkeys(self._blocked_sides, "blocked")

    def read_losses(self) -> LossRows:
        """Return the measured losses of STATE_DB: the fields of each row, by its key.

        `optmatch.switches.read_losses` makes a matrix of them.
        """
        return self._persist(lambda: _rows(self._state, LOSS_TABLE))

    def apply(self, difference: Difference) -> None:
        """Change circuits in one transaction, or in two, removals first, where a side moves.

        A side moves if it is freed by a removal and used by an addition. The agent of the switch
        may carry out the rows of one transaction in another order, and would refuse the addition
        then.

        Parameters
        ----------
        difference
            The circuits to remove and to add.

        Raises
        ------
        SwitchError
            If the database cannot be reached, or refuses.
        """
        check_difference(difference)
        if difference.moves_a_side and not self._one_transaction:
            self._persist(lambda: self._transact(difference.removals, ()))

            # The agent may take both transactions as one bulk, of which it carries out the
            # additions first. Rows of removed circuits are therefore waited for, for a while.
            keys = [
                f"{CIRCUIT_TABLE}{spelling}|{circuit.name}"
                for circuit in difference.removals
                for spelling in self._spellings
            ]
            give_up_s = time.monotonic() + _REMOVAL_S
            while (
                self._persist(lambda: self._state.exists(*keys)) and time.monotonic() < give_up_s
            ):
                time.sleep(_POLL_S)

            self._persist(lambda: self._transact((), difference.additions))
        elif not difference.is_empty:
            self._persist(lambda: self._transact(difference.removals, difference.additions))

    def _transact(
        self, removals: Iterable[CrossConnect], additions: Iterable[CrossConnect]
    ) -> None:
        """Send a change as one transaction of Redis, between the commands MULTI and EXEC.

        Rows of removed circuits are deleted from CONFIG_DB, added ones get a row with their two
        sides.

        The database carries out all commands of a transaction together, or none if it refuses to
        take one of them. A command that fails only while it is carried out, such as one for a key
        that holds something else than a row, does not undo the others.
        """
        commands: list[tuple[str, ...]] = []
        removed_keys = [f"{CIRCUIT_TABLE}|{circuit.name}" for circuit in removals]
        if removed_keys:
            commands.append(("DEL", *removed_keys))
        for circuit in additions:
            key = f"{CIRCUIT_TABLE}|{circuit.name}"
            commands.append(("HSET", key, "a_side", circuit.a_side, "b_side", circuit.b_side))

        # A pipeline of the client takes 30 us for each command, and this 10 us: for the hundreds
        # of circuits of a slot that is the greater part of what a player needs.
        pool = self._config.connection_pool
        connection = pool.get_connection()
        try:
            packed = connection.pack_commands([("MULTI",), *commands, ("EXEC",)])
            connection.send_packed_command(packed)
            # An answer for each command, and for MULTI and EXEC around them.
            answer: Any = None
            for _command in range(len(commands) + 2):
                answer = connection.read_response()
        except BaseException:
            connection.disconnect()  # answers that nobody reads are on their way
            raise
        finally:
            pool.release(connection)

        # The last answer is that of EXEC: the result of each command. The client raises an error
        # that is an answer by itself, and leaves those inside of a list to its caller.
        for result in answer:
            if isinstance(result, self._errors.ResponseError):
                raise result

    def _read_fields(self, keys: Sequence[str], *fields: str) -> list[list[str | None]]:
        """Read fields of some rows of the state, ``[row][field]``, in one round trip.

        A script of the database reads them, or where scripts are forbidden a pipeline of commands;
        None stands for what is not there.
        """
        rows: list[list[str | None]]
        if not keys:
            return []
        if self._may_use_scripts:
            try:
                rows = self._state.eval(_READ_ROWS, len(keys), *keys, *fields)
                return rows
            except self._errors.ResponseError:
                self._may_use_scripts = False

        # A user who may read without scripts is answered row by row.
        with self._state.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hmget(key, *fields)
            rows = pipeline.execute()
        return rows

    def wait(self, circuits: Sequence[CrossConnect], time_limit_s: float) -> Tuning:
        """Wait until STATE_DB says of both sides of each circuit that they are tuned.

        The row of a circuit decides. Where the switch has no such rows, those of its two ports do,
        if they name each other as targets: a port may still say ``tuned`` of its last circuit. The
        wait ends early as soon as a circuit is known to have failed.

        Parameters
        ----------
        circuits
            The circuits to wait for.
        time_limit_s
            The longest wait, in seconds; with 0 the state is read once.

        Returns
        -------
        Tuning
            How long the wait took, in seconds, and the status of each circuit that is not tuned at
            its end: ``tuning``, ``failed``, ``blocked`` or ``absent``.
        """
        circuits = list_circuits("circuits", circuits)
        started_s = time.monotonic()
        waiting = list(circuits)
        statuses: dict[CrossConnect, str] = {}
        next_whole_look_s = _WHOLE_LOOK_S
        pause_s = _POLL_S
        while waiting:
            # One circuit is asked for again and again, the others once it is tuned: hundreds of
            # rows at every look would keep the database from the agent. A failure of another one
            # is seen at the next whole look.
            elapsed_s = time.monotonic() - started_s
            is_over = elapsed_s >= time_limit_s
            first = waiting[:1]
            statuses |= self._persist(partial(self._circuit_statuses, first))

            has_ended = statuses[first[0]] in ("tuned", "failed")
            if has_ended or is_over or elapsed_s >= next_whole_look_s:
                statuses |= self._persist(partial(self._circuit_statuses, waiting))
                waiting = [circuit for circuit in waiting if statuses[circuit] != "tuned"]
                next_whole_look_s = elapsed_s + _WHOLE_LOOK_S
            if is_over or "failed" in statuses.values():
                break

            # The pause grows: most switches need either a millisecond or some tens of them.
            if waiting:
                time.sleep(min(pause_s, max(0.0, time_limit_s - elapsed_s)))
                pause_s = min(1.5 * pause_s, _POLL_MOST_S)
        untuned = {circuit: statuses[circuit] for circuit in waiting}
        return Tuning(time.monotonic() - started_s, untuned)

    def _circuit_statuses(self, circuits: Sequence[CrossConnect]) -> dict[CrossConnect, str]:
        """Return the status of some circuits by STATE_DB, the worse one of both sides.

        It is ``absent`` if the state knows neither the circuit nor its ports as joined. The first
        round trip asks for the rows of the circuits; those without a row are asked for a second
        time by the rows of their ports.
        """
        statuses = dict.fromkeys(circuits, "absent")
        # The row of a circuit may be in a table of either spelling, so each is asked for.
        queries = [
            (circuit, f"{CIRCUIT_TABLE}{spelling}|{circuit.name}")
            for circuit in circuits
            for spelling in self._spellings
        ]
        rows = self._read_fields(
            [key for _circuit, key in queries], "a_side_status", "b_side_status"
        )
        for (circuit, _key), (a_status, b_status) in zip(queries, rows, strict=True):
            if a_status is not None and b_status is not None:
                statuses[circuit] = _joint_status(a_status, b_status)
        unknown = [circuit for circuit in circuits if statuses[circuit] == "absent"]
        return statuses | self._statuses_by_ports(unknown)

    def _statuses_by_ports(self, circuits: Sequence[CrossConnect]) -> dict[CrossConnect, str]:
        """Return the status of circuits whose two ports name each other as targets.

        The row of a port has its status and its target, the side that light goes to or comes from.
        A status counts if the target is the other side of the circuit; ``failed`` always counts,
        as a port that has failed may name no target. The worst one of both sides is returned;
        other circuits are left out.
        """
        # Each side of a circuit, and the side that it has to be joined to, in each table.
        keys = []
        asked = []
        for circuit in circuits:
            a_side, b_side = circuit
            for side, target in ((a_side, b_side), (b_side, a_side)):
                for spelling in self._spellings:
                    keys.append(f"{PORT_TABLE}{spelling}|{side}")
                    asked.append((circuit, target))
        rows = self._read_fields(keys, "status", "target_simplex_port_id")

        # A side may have a row in each table, so sides that confirm are counted, and not rows.
        statuses_of_circuit: dict[CrossConnect, list[str]] = {}
        confirmed = set[tuple[CrossConnect, str]]()
        for (circuit, target), (status, told_target) in zip(asked, rows, strict=True):
            if status is not None and (told_target == target or status == "failed"):
                statuses_of_circuit.setdefault(circuit, []).append(status)
                confirmed.add((circuit, target))
        # Both sides have to confirm the circuit, but one that has failed is enough to fail it.
        return {
            circuit: _joint_status(*statuses)
            for circuit, statuses in statuses_of_circuit.items()
            if confirmed >= {(circuit, side) for side in circuit} or "failed" in statuses
        }

    def claim(self, owner: str) -> None:
        """Claim the switch for `_CLAIM_S` seconds, or renew an own claim.

        A claim is a row of STATE_DB that expires by itself, so that a player that dies does not
        keep the switch.

        Parameters
        ----------
        owner
            Under which name the switch is claimed.

        Raises
        ------
        SwitchError
            If another player has claimed the switch.
        """

        def take() -> str | None:
            """Write the claim if there is none, and return whose claim there is.

            A claim of our own is renewed; one of others is left as it is.
            """
            with self._state.pipeline(transaction=True) as pipeline:
                pipeline.hsetnx(_CLAIM_KEY, "owner", owner)
                pipeline.hget(_CLAIM_KEY, "owner")
                holder: str | None = pipeline.execute()[1]
            # A claim without a time is of a player that died before it could set one.
            if holder == owner or self._state.ttl(_CLAIM_KEY) == -1:
                self._state.expire(_CLAIM_KEY, _CLAIM_S)
            return holder

        holder = self._persist(take)
        if holder != owner:
            raise SwitchError(
                f"{self.name}: {holder} plays on this switch; its claim ends {_CLAIM_S} s after"
                " its last sign of life"
            )

    def release(self, owner: str) -> None:
        """Give up an own claim, so that the next player need not wait until it expires.

        Parameters
        ----------
        owner
            The name under which the switch was claimed; a claim under another name is left as it
            is.
        """

        def give_up() -> None:
            """Delete the row of the claim if it is ours."""
            if self._state.hget(_CLAIM_KEY, "owner") == owner:
                self._state.delete(_CLAIM_KEY)

        self._persist(give_up)

    def close(self) -> None:
        """Close both connections."""
        self._config.close()
        self._state.close()

    def _persist(self, ask: Callable[[], Outcome]) -> Outcome:
        """Ask the database, again and again while it cannot be reached and patience lasts.

        `ask` may be called several times until it is answered.

        Pauses between two attempts double, from `_FIRST_RETRY_S` to `_LONGEST_RETRY_S` seconds. A
        refused password, a missing right and a refused command are not tried again.
        """
        give_up_s = time.monotonic() + self._patience_s
        pause_s = _FIRST_RETRY_S
        while True:
            try:
                return ask()
            except self._errors.AuthenticationError as error:
                raise SwitchError(f"{self.name}: the password is refused: {error}") from None
            except (self._errors.ConnectionError, self._errors.TimeoutError) as error:
                if time.monotonic() + pause_s >= give_up_s:
                    raise SwitchError(f"{self.name}: cannot be reached: {error}") from None
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_RETRY_S)
            except self._errors.NoPermissionError as error:
                raise SwitchError(f"{self.name}: this user may not do that: {error}") from None
            except self._errors.RedisError as error:
                raise SwitchError(f"{self.name}: refused: {error}") from None


def _rows(database: Any, table: str) -> dict[str, Mapping[str, str]]:
    """Return all rows of a table of a Redis database by their keys.

    The keys are without the name of the table, ``1A`` of ``OCS_PORT|1A``.
    """
    keys = sorted(set(database.scan_iter(match=f"{table}|*", count=1000)))
    with database.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.hgetall(key)
        rows = pipeline.execute()
    return {key.partition("|")[2]: row for key, row in zip(keys, rows, strict=True)}


def _joint_status(*statuses: str) -> str:
    """Return the worst status of the sides of a circuit.

    From the worst to the best they are ``failed``, ``blocked``, ``tuning`` and ``tuned``; if the
    switch says other words, all of them are joined by commas.
    """
    for status in ("failed", "blocked", "tuning"):
        if status in statuses:
            return status
    if set(statuses) == {"tuned"}:
        return "tuned"
    return ", ".join(statuses)
