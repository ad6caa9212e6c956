"""Tenancies: refusals by name, and how many slots a job needs."""

from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.io import dumps, loads
from optmatch.problems import Tenancy, Tenant

SWITCH, MESH = om.IdealSwitch(8), om.HexMesh(4, 4, ports=8)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_ports": 0}, "n_ports = 0: must be >= 1"),
        ({"question": "gossip"}, "question = 'gossip': one of all-to-all, demand"),
        ({"question": "demand"}, "demand_bytes: of a demand, and of nothing else"),
        ({"demand_bytes": np.zeros((2, 2))}, "demand_bytes: of a demand, and of nothing else"),
        ({"question": "demand", "demand_bytes": np.eye(2)}, "2 x 2 numbers, 0 on the diagonal"),
        ({"question": "demand", "demand_bytes": [[0, -1], [0, 0]]}, "demand_bytes[0, 1] = -1"),
        ({"question": "demand", "demand_bytes": [[0, np.nan], [0, 0]]}, "not a finite number"),
        ({"question": "all-reduce"}, "size_bytes = 0: above 0 of a collective"),
        ({"size_bytes": 3.0}, "size_bytes = 3: above 0 of a collective, and 0 otherwise"),
        ({"held": (1, 1)}, "held: 2 different ports"),
        ({"held": (1,)}, "held: 2 different ports"),
    ],
)
def test_a_job_that_is_none_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(om.InputError) as caught:
        Tenant("a", **{"n_ports": 2, **fields})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("tenants", "fields", "message"),
    [
        ((Tenant("a", 5), Tenant("b", 4)), {}, "tenants: 9 ports are needed, and 8 are alive"),
        ((Tenant("a", 2), Tenant("a", 2)), {}, "tenants[1]: a second job 'a'"),
        ((Tenant("a", 2, held=(0, 8)),), {}, "'a' holds port 8, which is not alive"),
        ((Tenant("a", 1, held=(3,)), Tenant("b", 1, held=(3,))), {}, "holds port 3, as 'a' does"),
        ((Tenant("a", 2),), {"slot_s": 0.0}, "slot_s = 0"),
        (
            (Tenant("a", 2, "demand", demand_bytes=[[0, 1e300], [0, 0]]),),  # type: ignore[arg-type]
            {"slot_s": 1e-300},
            "tenants[0]: demand_bytes: more slots than can be counted",
        ),
        ((Tenant("a", 2, "all-reduce", size_bytes=1e12),), {}, "entries: at most 100000000"),
    ],
)
def test_jobs_that_do_not_fit_are_named(
    tenants: tuple[Tenant, ...], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(om.InputError) as caught:
        Tenancy(SWITCH, tenants, **fields)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("fabric", "tenant", "slots"),
    [
        (MESH, Tenant("a", 8), 7),
        (MESH, Tenant("a", 7), 7),
        (SWITCH, Tenant("a", 7), 6),
        (MESH, Tenant("a", 1), 0),
        # three pairs of a triangle exclude each other, though no port has more than two
        (MESH, Tenant("a", 3, "demand", demand_bytes=1.0 - np.eye(3)), 3),
        (SWITCH, Tenant("a", 3, "demand", demand_bytes=1.0 - np.eye(3)), 2),
        (SWITCH, Tenant("a", 3, "demand", demand_bytes=2.5 * (1.0 - np.eye(3))), 6),
        (SWITCH, Tenant("a", 4, "all-gather", size_bytes=4.0), 3),
    ],
)
def test_a_job_alone_needs_its_slots(fabric: om.Fabric, tenant: Tenant, slots: int) -> None:
    problem = Tenancy(fabric, (Tenant("b", 1), *([tenant] if tenant.n_ports < 8 else [])))
    assert problem.fewest_slots(tenant) == slots
    if tenant.n_ports < 8:
        assert problem.lower_bound() == problem.min_slots == slots


def test_rounding_makes_no_slot_more() -> None:
    """Ten slots of 0.1 s carry one second, whatever binary fractions make of it."""
    demand = np.array([[0, 1.0], [0, 0]])
    problem = Tenancy(SWITCH, (Tenant("a", 2, "demand", demand_bytes=demand),), slot_s=0.1)
    assert problem.min_slots == 10
    little = Tenant("a", 2, "demand", demand_bytes=demand * 1e-30)
    assert problem.slots_wanted(little).tolist() == [[0, 1], [0, 0]]


def test_files_keep_all_of_it() -> None:
    tenants = (
        Tenant("a", 2, "demand", demand_bytes=np.array([[0, 1.5], [2.0, 0]]), held=(4, 1)),
        Tenant("b", 3, "all-reduce", size_bytes=12.0),
    )
    problem = Tenancy(MESH, tenants, slot_s=0.5, delay_s=0.1, rate_bytes_per_s=4.0, alpha_s=1e-3)
    assert loads(dumps(problem)) == problem
