"""Which switch is meant for which switch of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optmatch.io.switches.exports import NamedSwitch
from optmatch.model import InputError
from optmatch.switches.protocol import Switch


def match_switches(
    plans: Sequence[NamedSwitch], switch: Switch | Mapping[str, Switch], *, partial: bool = False
) -> tuple[Switch | None, ...]:
    """Return the switch of each plan.

    Parameters
    ----------
    plans
        The switches of a plan or a state.
    switch
        The only switch, or switches by the names of plans, or of their files (``rail-0``).
    partial
        Whether plans may go without a switch; they have None then.

    Raises
    ------
    InputError
        If a name is unknown, or a plan goes without a switch and may not.
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

    matched = []
    known_names: set[str] = set()
    for plan in plans:
        name = plan.plan.name
        file_name = plan.plan.file_name
        known_names.update((name, file_name))
        matched.append(switch.get(name, switch.get(file_name)))
        if matched[-1] is None and not partial:
            raise InputError(f"no switch is given for {name!r}", where="switch")
    unknown = sorted(set(switch) - known_names)
    if unknown:
        raise InputError(f"the plan has no switch {unknown[0]!r}", where="switch")
    return tuple(matched)


def match_all_switches(
    plans: Sequence[NamedSwitch], switch: Switch | Mapping[str, Switch]
) -> tuple[Switch, ...]:
    """Return the switch of each plan, none of which may go without."""
    matched = match_switches(plans, switch)
    return tuple(each_switch for each_switch in matched if each_switch is not None)
