"""Repairs report their changes: the slots that changed, the proof, and its faults."""

import itertools

import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics import Fault, FaultKind, Faulty
from optmatch.model import FREE
from optmatch.solvers.all_to_all.repair import Repair
from optmatch.solvers.routing.columns import bound_jointly
from optmatch.solvers.routing.router import CellRouter

STATE: dict[FaultKind, int] = {"stuck-bar": 0, "stuck-cross": 1, "dead-cell": 2}


@pytest.mark.parametrize(
    "mesh", [om.HexMesh(3, 4, ports=9), om.HexMesh(4, 4, tx=6, rx=6)], ids=["ports", "tx-rx"]
)
def test_a_verdict_is_what_it_says(mesh: om.HexMesh) -> None:
    problem = om.AllToAll(mesh)
    schedule = om.solve(problem, seed=0, limits=om.Limits(iterations=50)).schedule
    assert schedule is not None and schedule.cell_states is not None
    rng, repair, seen = np.random.default_rng(0), Repair(problem, schedule), set[str]()
    faults: list[tuple[Fault, ...]] = [
        (Fault(kind, cell),) for kind, cell in itertools.product(STATE, range(0, 40, 3))
    ]
    for _ in range(40):
        cells = sorted(rng.choice(mesh.n_cells, 2, replace=False).tolist())
        faults.append(tuple(Fault([*STATE][rng.integers(3)], cell) for cell in cells))
    for broken in faults:
        verdict = repair.judge(broken)
        seen.add(verdict.how)
        held = schedule.cell_states[:, [fault.place for fault in broken]]
        hit = ((held != FREE) & (held != [STATE[fault.kind] for fault in broken])).any(axis=1)
        assert (verdict.how == "untouched") == (not hit.any())
        if verdict.outcome == "failed":
            assert set(verdict.causes) <= set(broken)
            assert repair.judge(tuple(verdict.causes)).outcome == "failed"
            dead = Faulty.of(mesh, verdict.causes).dead_pairs()
            assert (verdict.how == "dead pair") == bool(dead)
            if verdict.how == "prices":
                short = om.AllToAll(Faulty.of(mesh, broken))
                clock = om.Limits().start()
                assert bound_jointly(short, CellRouter(short.fabric), np.inf, clock)[0] == np.inf
            continue
        assert verdict.matchings is not None and verdict.states is not None
        repaired = om.Schedule(
            matchings=verdict.matchings,
            durations_s=np.ones(len(verdict.matchings)),
            cell_states=verdict.states,
        )
        assert om.verify(om.AllToAll(Faulty.of(mesh, broken)), repaired).ok
        if verdict.how in ("untouched", "rerouted"):
            assert np.array_equal(verdict.matchings, schedule.matchings)
            assert np.array_equal(verdict.states[~hit], schedule.cell_states[~hit])
        else:
            assert not np.array_equal(verdict.matchings, schedule.matchings)
    assert {"untouched", "rerouted", "dead pair", "prices"} <= seen
    assert "exchanged" in seen or not mesh.bidirectional
