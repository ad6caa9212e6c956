"""States for free cells, chosen after the circuits are routed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Device, Problem, Schedule, Solution


def settle_free_cells(
    problem: Problem, subject: Schedule | Solution, device: Device | str
) -> NDArray[np.int8]:
    """Choose a state for every free cell, such that circuits disturb each other least.

    Parameters
    ----------
    problem
        The problem, of which only the fabric matters.
    subject
        A schedule with cell states, or a solution that has one.
    device
        What cells do to light, or the name of a preset.

    Returns
    -------
    NDArray
        ``states[slot, cell]``: 0 bar, 1 cross, int8; as given where a cell is not free. It is what
        `measure_optics` takes as `idle`.

    Raises
    ------
    InputError
        If the fabric has no cells, or there are no cell states.

    Notes
    -----
    Descents from all in cross, all in bar and a few random states, in a model that adds powers:
    each round flips the free cells that promise to lower the sum of the fourth powers of all
    crosstalk-to-signal ratios, which the worst one dominates, or half of them, or a quarter, until
    the sum falls. It ends near the sum that free cells would leave if they swallowed all light,
    which is a lower bound. No choice changes what leaks from one lit way into another in one cell:
    where circuits share cells, as on meshes, the gain is small. A round takes two sparse solutions
    for each circuit of a slot.

    Examples
    --------
    >>> import optmatch as om
    >>> problem = om.Routing(om.SwitchAndSelect(8), [4, 5, 6, 7, 0, 1, 2, 3])
    >>> solution = om.solve(problem, "negotiated", seed=0)
    >>> settled = om.settle_free_cells(problem, solution, "smartlight")
    >>> for idle in ("cross", settled):
    ...     optics = om.measure_optics(problem, solution, "smartlight", idle=idle)
    ...     print(f"{optics.figures['worst_signal_to_crosstalk_db']:.0f} dB")
    65 dB
    77 dB
    """
    from optmatch.solvers.routing.idle import settle

    return settle(problem, subject, device)
