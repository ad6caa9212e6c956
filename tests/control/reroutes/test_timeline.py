"""The timeline of a recovery adds up, and has a stage for each round of steps."""

import pytest

import optmatch as om
from optmatch.solvers.reroutes.states import fill_rack, hold_matching


def test_the_stages_of_a_rack() -> None:
    """Switches are programmed at once; what was published for a prototype is an example."""
    controller = om.Rerouter(fill_rack(om.RackFabric()))
    proposal = controller.fail(chip=7)
    stages = proposal.timeline(program_s=1e-3, cell_s=1e-6, lock_s=2e-3, restart_s=1.1)
    count = len(proposal.transition.changed)
    names = ["detect", "decide", "program switches", f"raise circuits ({count})", "restart"]
    assert [stage.name for stage in stages] == names
    assert stages[1].end_s == proposal.decided_s > 0
    assert [stage.start_s for stage in stages[1:]] == [stage.end_s for stage in stages[:-1]]
    assert stages[-1].end_s == pytest.approx(proposal.decided_s + 1e-3 + 1e-6 + 2e-3 + 1.1)
    with pytest.raises(om.InputError, match="lock_s = -1"):
        proposal.timeline(lock_s=-1)


def test_the_rounds_of_a_mesh() -> None:
    state = hold_matching(om.HexMesh(5, 5, ports=12), [1, 0, 4, 6, 2, 8, 3, 9, 5, 7, -1, -1])
    proposal = om.Rerouter(state).fail(port=4)
    kinds = [kind for kind, _, _ in proposal.transition.steps.tolist()]
    rounds = [kind for k, kind in enumerate(kinds) if k == 0 or kinds[k - 1] != kind]
    stages = proposal.timeline(decide_s=0, program_s=1, cell_s=2, lock_s=10)
    assert stages[-1].end_s == 3 * rounds.count(1) + 10 * rounds.count(2)
    assert rounds.count(1) and rounds.count(2)
