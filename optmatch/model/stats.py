"""The further figures of solutions: one table of names, types, meanings and units."""

from __future__ import annotations

from typing import TypedDict


class Stats(TypedDict, total=False):
    """What `Solution.stats` may hold beside objective and bound.

    A method writes what it has. Plugins may add names of their own.

    See Also
    --------
    optmatch.model.Solution : The outcome that these figures belong to.

    Examples
    --------
    >>> from optmatch.model import Stats
    >>> sorted(Stats.__annotations__)[:2]
    ['algorithm', 'alike_bound_s']
    """

    # What is proved, and why.
    reason: str
    """Why there is no answer."""
    bound_by: str
    """The search that an uncertified bound is from: ``"search"`` or ``"cp-sat"``."""
    bound_name: str
    """What the bound of a collective counts: bytes, reach, distance, late or steps."""
    dead_pairs: list[list[int]]
    """Pairs of ports that no state of the cells connects."""
    cut_circuits: list[list[int]]
    """Circuits that must pass links which are too few for them."""
    cut_links: list[str]
    """These links."""
    causes: list[str]
    """Faults that alone forbid the answer, or fewer slots."""
    causes_minimal: bool
    """Whether each of these faults is needed."""
    alike_bound_s: float
    """A bound of rail plans in which ranks that are alike behave alike, in seconds."""
    family: str
    """The plans of a collective among which circuits and routes are searched."""
    family_bound_s: float
    """No plan of the family is faster, in seconds."""
    fewest_rounds_late: int
    """The fewest rounds of an all-reduce after its one late rank is ready."""

    # Size of the answer.
    slots: int
    """Slots, of all planes together."""
    slots_lower_bound: int
    """No schedule has fewer."""
    fewest_slots: str
    """What is known of schedules with as many slots as the bound, where the answer has more."""
    slots_routed: int
    """Slots that were routed before the limit."""
    worst_route_cells: int
    """Cells of the longest route."""
    toggles: int
    """Cells that are driven to the other state between slots."""
    toggles_unordered: int
    """Toggles of the slots as they were found."""
    toggles_ordered: int
    """Toggles after the slots were put in order."""
    reconfigurations: int
    """Of rail plans: changes of the state of a switch, of all rails. Of collectives: changes of
    circuits between rounds."""
    rounds: int
    """The number of rounds of sends of a collective."""
    rounds_late: int
    """The number of rounds that start when the last late rank is ready, or later."""
    algorithm: str
    """The algorithm that the rounds of a collective come from."""
    runners_up: list[str]
    """Other methods of a collective with their times, the fastest first: ``"ring 3.8e-05 s"``."""
    servers: int
    """Servers of a slice."""
    racks: int
    """Racks of a slice that spans joined racks."""
    fibres: int
    """Fibres that the circuits of a slice use."""
    longest_route_hops: int
    """Fibres of the longest route of a slice."""

    # Levels of the objective of a reroute.
    disturbed: int
    """Circuits of others that lose their light."""
    changed: int
    """Circuits that change."""
    cells_set: int
    """Cells that are set."""
    worst_loss_centidb: int
    """Largest loss of a changed circuit, in hundredths of a dB."""
    length: int
    """Cells or fibres of all changed circuits."""

    # Effort.
    compile_s: float
    """Seconds in which kernels were compiled or loaded, which are not in `time_s`."""
    decompositions: int
    """Random decompositions that were drawn."""
    plans: int
    """Plans that were tried."""
    cases: int
    """Cases of a branch and price."""
    nodes: int
    """Nodes of a search."""
    orders: int
    """Orders of circuits that were tried."""
