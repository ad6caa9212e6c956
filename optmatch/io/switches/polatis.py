"""Commands of Polatis switches (SCPI over TCP), written and read.

Inputs are ports 1 to N, outputs N + 1 to 2 N. The spelling follows two public drivers,
devicecontrol-polatis and tcdona: ``:oxc:swit:conn:add``, ``sub`` and ``stat?`` with lists of
inputs and outputs as ``(@1,2),(@33,34)``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from optmatch.io.switches.circuits import SIDE_NAME, CrossConnect, Difference
from optmatch.model import InputError

READ_CIRCUITS = ":oxc:swit:conn:stat?"
READ_SIZE = ":oxc:swit:size?"

_LISTS = re.compile(r"\(@([\d,\s]*)\)\s*,\s*\(@([\d,\s]*)\)", re.ASCII)

_MOST_DIGITS = 7
"""The digits of the number of a port; Python refuses to read numbers of thousands of digits."""


def command_lines(difference: Difference, n_ports: int) -> list[str]:
    """Return a difference as commands: one that removes, then one that adds.

    Sides have no modules; output k of a switch of N inputs is port N + k.

    Examples
    --------
    >>> command_lines(Difference((CrossConnect("1A", "2B"),), (CrossConnect("1A", "3B"),)), 4)
    [':oxc:swit:conn:sub (@1),(@6)', ':oxc:swit:conn:add (@1),(@7)']
    """
    changes = (("sub", difference.removals), ("add", difference.additions))
    return [
        f":oxc:swit:conn:{verb} {write_lists(circuits, n_ports)}"
        for verb, circuits in changes
        if circuits
    ]


def write_lists(circuits: Sequence[CrossConnect], n_ports: int) -> str:
    """Write circuits as a list of inputs and a list of outputs."""
    inputs = ",".join(str(_number_of(circuit.a_side, n_ports)) for circuit in circuits)
    outputs = ",".join(str(_number_of(circuit.b_side, n_ports) + n_ports) for circuit in circuits)
    return f"(@{inputs}),(@{outputs})"


def read_lists(answer: str, n_ports: int) -> tuple[CrossConnect, ...]:
    """Return the circuits of an answer of a Polatis switch to `READ_CIRCUITS`, in its order.

    The answer has two lists of equal length, of inputs and of outputs, in quotation marks or
    without. Inputs are 1 .. ports, outputs are counted on from there.

    Examples
    --------
    >>> [circuit.name for circuit in read_lists("(@1,2),(@6,5)", 4)]
    ['1A-2B', '2A-1B']
    """
    match = _LISTS.fullmatch(answer.strip().strip('"'))
    if match is None:
        raise InputError(f"answer {answer[:80]!r}: two lists as (@1,2),(@33,34) are expected")
    numbers = [
        [word.strip() for word in text.split(",") if word.strip()] for text in match.groups()
    ]
    if any(not word.isdecimal() or len(word) > _MOST_DIGITS for row in numbers for word in row):
        raise InputError(f"answer {answer[:80]!r}: numbers with commas between them are expected")
    inputs, outputs = ([int(word) for word in row] for row in numbers)
    if len(inputs) != len(outputs):
        raise InputError(f"answer {answer[:80]!r}: {len(inputs)} inputs, {len(outputs)} outputs")
    circuits = []
    # Numbers of outputs go on behind those of inputs: with 4 ports output 5 is 1B.
    for entry, exit_ in zip(inputs, outputs, strict=True):
        if not 1 <= entry <= n_ports < exit_ <= 2 * n_ports:
            raise InputError(
                f"answer {answer[:80]!r}: {entry} to {exit_}, but inputs are 1 .. {n_ports}"
                f" and outputs {n_ports + 1} .. {2 * n_ports}"
            )
        circuits.append(CrossConnect(f"{entry}A", f"{exit_ - n_ports}B"))
    return tuple(circuits)


def _number_of(side: str, n_ports: int) -> int:
    """Return the number of a side; those of modules have no place among the ports."""
    match = SIDE_NAME.fullmatch(side)
    if match is None or match["module"] is not None or not 1 <= int(match["number"]) <= n_ports:
        raise InputError(
            f"side {side}: this switch has sides 1 .. {n_ports}, without modules; a table of ports"
            " lists all ports of the switch, as outputs are counted on behind its inputs"
        )
    return int(match["number"])
