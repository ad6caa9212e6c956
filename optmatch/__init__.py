"""Optical circuit matchings: schedules and switch states for machine-learning clusters.

Questions:
    AllToAll, Collective, Demand, PortSharing, RailJob, Reroute, Routing, SliceAllocation;
    Parallelism, RailNetwork, TransformerModel, Workload
Switches and chips:
    Benes, Clements, Crossbar, DilatedBenes, Fabric, Faulty, HexMesh, IdealSwitch, Netlist, Piloss,
    RackFabric, Reck, SpankeBenes, SquareMesh, SwitchAndSelect, TriangularMesh; fill_rack,
    read_netlist
Answers and errors:
    solve, verify, load, save, explore; Limit, Limits, Report, Schedule, Solution, Status,
    Violation; Allocation, CollectivePlan, PlaneSchedules, RailPlan, Transition; FormatError,
    InfeasibleError, InputError, LimitReached, OptMatchError, SolverError, SolverUnavailable,
    VerificationError
Light and time:
    measure_optics, simulate, simulate_rails; Budget, Device, Optics
Many problems:
    compare_fabrics, compare_methods, study_yield, sweep, vary; Task
Schedulers and controllers:
    decompose, play, schedule, settle_free_cells, warm_up; Call, Proposal, Rerouter,
    RollingSchedule, Routed, Router, Slot

The packages `io`, `plotting`, `rails` and `switches` have what belongs to one thing alone, as do
`control`, `fabrics`, `model`, `problems`, `solvers`, `studies`, `sweeps`, `testing` and `verify`.
"""

# The handler of Ctrl-C comes before imports that take time.
try:
    from optmatch import startup as _startup
except KeyboardInterrupt:
    # Ctrl-C came while the module that handles it was loaded. A program ends as after it.
    from optmatch import startup as _startup

    _startup.end_program()
    raise
from pathlib import Path as _Path

import lazy_loader

_HERE = _Path(__file__).resolve().parent
if not (_HERE / "solvers").is_dir():  # a copy of the checkout without its link, as from a zip
    if not (_HERE.parent / "solvers" / "method.py").is_file():
        raise ImportError(f"{_HERE}: no solvers are there; run `pip install optmatch`")
    __path__.append(str(_HERE.parent))

# These two names are imported at once: a package of the same name would else hide them.
from optmatch.entrances import solve, verify  # noqa: E402, F401 - listed in the stub

__version__ = "0.9.0"

# The names stand in `__init__.pyi`, where editors and type checkers read them too.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
