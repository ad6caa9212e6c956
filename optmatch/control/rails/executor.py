"""Many steps of a simulated job whose rails are run by controllers, each a process of its own.

The clock is simulated. The job goes on until an answer to what it has told a controller could
make a difference, hands over all messages up to then, and takes what comes back. So what happens
depends on the seed alone, and not on the machine.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.control.rails.ranks import Faults, Ranks
from optmatch.control.rails.server import LONGEST, Link
from optmatch.entrances import verify
from optmatch.io.fields import to_object
from optmatch.model import (
    Index,
    InputError,
    OnEvent,
    OptMatchError,
    Tick,
    Value,
    check_time,
    ignore,
    integer,
)
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.orders import check_triggers, list_followers, retime
from optmatch.problems.rails.execution.triggers import RailTriggers, TriggerPlan

_GONE = "the controller of a rail has gone"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Execution(Value):
    """What happened while a plan was executed.

    Parameters
    ----------
    step_s
        ``step_s[step]``: from when the last rank ended the step before to when it ended this one.
    sent_bytes, dark_bytes
        What went over circuits, and what was sent while they were dark: none, or it is a defect.
    messages, lost
        Messages between ranks and controllers, and those that were lost.
    fallbacks
        How often a rail went to its fall-back state.
    """

    step_s: NDArray[np.float64]
    sent_bytes: float
    dark_bytes: float
    messages: Index
    lost: Index
    fallbacks: Index


def execute(
    job: RailJob,
    plan: TriggerPlan,
    *,
    steps: int = 1,
    faults: Faults | None = None,
    seed: int = 0,
    processes: bool = True,
    on_event: OnEvent = ignore,
) -> Execution:
    """Play a trigger plan against a simulated job.

    `faults` says what goes wrong. With `processes` each controller is a process that is reached
    over TCP on this machine; else it is called, and does the same.
    """
    steps, seed = integer("steps", steps, at_least=1), integer("seed", seed, at_least=0)
    faults = Faults() if faults is None else faults
    graph = check_triggers(job, plan)
    for violation in verify(job, retime(job, graph, plan)).violations[:1]:
        raise InputError(f"no valid plan follows from its order: {violation}", where="place")
    ranks = Ranks(job, plan, graph, steps, faults, seed)
    setups = [make_setup(job, plan, rail) for rail in plan.rails]
    fallbacks = asyncio.run(_play(ranks, setups, on_event, processes=processes))
    return Execution(
        step_s=np.diff(ranks.end_s, prepend=0.0),
        sent_bytes=ranks.observer.sent_bytes,
        dark_bytes=ranks.observer.dark_bytes,
        messages=ranks.n_sent,
        lost=ranks.n_lost,
        fallbacks=fallbacks,
    )


def make_setup(job: RailJob, plan: TriggerPlan, rail: RailTriggers) -> dict[str, Any]:
    """Return what the controller of a rail is told first."""
    return {
        "rail": to_object(rail),
        "followers": list_followers(job, rail).tolist(),
        "delay_s": job.network.delay_s,
        "timeout_s": plan.timeout_s,
        "whole": job.network.switching == "all-stop",
        "tries": plan.tries,
    }


async def _play(
    ranks: Ranks, setups: Sequence[dict[str, Any]], on_event: OnEvent, *, processes: bool
) -> int:
    """Let ranks and controllers talk until the last step is over; return the fall-backs."""
    fallbacks = [0] * len(setups)
    asked: list[int] = list(range(len(setups)))
    messages: list[list[Any]] = [[] for _ in setups]
    async with AsyncExitStack() as stack:
        links: list[Any]
        if processes:
            links = [await stack.enter_async_context(_Far()) for _ in setups]
            for k, (link, setup) in enumerate(zip(links, setups, strict=True)):
                on_event(Tick("controllers", k, len(links)))
                await link.open(setup)
        else:
            links = [Link(setup) for setup in setups]
        while not ranks.is_over or asked:
            until_s = ranks.horizon_s
            answers = await asyncio.gather(*(links[k].exchange(messages[k]) for k in asked))
            for k, answer in zip(asked, answers, strict=True):
                ranks.observer.note_changes(k, answer["changes"])
                ranks.give(k, answer["send"])
                fallbacks[k] = answer["fallbacks"]
            ranks.observer.check(until_s)
            check_time()
            on_event(Tick("steps", int(np.count_nonzero(ranks.end_s)), len(ranks.end_s)))
            ranks.run()
            messages = [ranks.take(k) for k in range(len(links))]
            asked = [k for k, given in enumerate(messages) if given]
        ranks.observer.check(inf)
    return sum(fallbacks)


class _Far:
    """A controller in a process of its own."""

    _writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> _Far:
        command = (sys.executable, "-m", "optmatch.control.rails.server")
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # signals of a terminal are for its client, and end it
        )
        return self

    async def open(self, setup: dict[str, Any]) -> None:
        """Connect, and say what to play."""
        assert self._process.stdout is not None
        port = await self._process.stdout.readline()
        if not port:
            raise OptMatchError(_GONE)
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", int(port), limit=LONGEST
        )
        self._writer.write(json.dumps(setup).encode() + b"\n")

    async def exchange(self, messages: list[Any]) -> Any:
        """Give messages, and return what comes back."""
        assert self._writer is not None
        self._writer.write(json.dumps(messages).encode() + b"\n")
        line = b""
        with suppress(ConnectionError):
            line = await self._reader.readline()
        if not line:
            raise OptMatchError(_GONE)
        return json.loads(line)

    async def __aexit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()
        elif self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()  # it ends when its client goes
