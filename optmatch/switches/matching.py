"""Which switch is meant for which switch of a plan, and which of its circuits are ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from optmatch.io.switches.circuits import CrossConnect, with_a_side_of
from optmatch.io.switches.exports import NamedSwitch
from optmatch.model import InputError
from optmatch.switches.protocol import Switch


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


def match_all_switches(
    plans: Sequence[NamedSwitch], switch: Switch | Mapping[str, Switch]
) -> tuple[Switch, ...]:
    """Assign a real switch to each switch of a plan, none of which may go without."""
    matched = match_switches(plans, switch)
    return tuple(each_switch for each_switch in matched if each_switch is not None)


def own_circuits(switch: Switch, sides: Set[str]) -> frozenset[CrossConnect]:
    """Read the circuits of a switch, and return those that have one of our sides at either end."""
    return with_a_side_of(switch.read_circuits(), sides)
