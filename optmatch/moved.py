"""Modules that have moved: former names, which pickles hold too, work for one more release."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "commands.options": "commands.shared.options",
    "control.free_cells": "control.routing.router",
    "control.rerouter": "control.reroutes.rerouter",
    "control.rolling": "control.demands.rolling",
    "control.router": "control.routing.router",
    "control.schedules": "control.demands.schedules",
    "fabrics.benes": "fabrics.feedforward.networks",
    "fabrics.crossbar": "fabrics.feedforward.networks",
    "fabrics.forward": "fabrics.reach",
    "fabrics.ideal": "fabrics.fabric",
    "fabrics.mesh": "fabrics.meshes.mesh",
    "fabrics.netlist": "fabrics.netlists.netlist",
    "fabrics.netlist_flaws": "fabrics.netlists.flaws",
    "fabrics.netlist_tree": "fabrics.netlists.tree",
    "fabrics.planar": "fabrics.feedforward.networks",
    "fabrics.rack": "fabrics.racks.rack",
    "fabrics.selected": "fabrics.faults",
    "io.chakra": "io.rails.chakra",
    "io.chakra.demand": "io.rails.chakra.demand",
    "io.tables": "io.exports",
    "model.events": "model.limits",
    "model.scores": "model.problem",
    "model.sizes": "model.numbers",
    "plotting.display": "plotting.files",
    "problems.all_to_all.problem": "problems.all_to_all",
    "problems.demands.matrix": "problems.demands.traffic",
    "problems.demands.proofs": "problems.demands.completion",
    "problems.rails.costs": "problems.costs",
    "problems.rails.network": "problems.rails.training.network",
    "problems.rails.parallelism": "problems.rails.training.parallelism",
    "problems.rails.phases": "problems.rails.training.phases",
    "problems.rails.plan": "problems.rails.execution.plan",
    "problems.rails.step": "problems.rails.training.step",
    "problems.rails.workload": "problems.rails.training.workload",
    "problems.reroutes.proofs": "problems.reroutes.transition",
    "problems.routing.problem": "problems.routing",
    "problems.routing.proof": "problems.routing",
    "problems.sharing.proof": "problems.sharing.problem",
    "problems.sharing.tenancy": "problems.tenancies",
    "problems.slices.load_proof": "problems.slices.problem",
    "problems.slices.rings": "problems.slices.shape",
    "simulation.demands.replay": "simulation.demands",
    "studies.collectives.delays": "studies.collectives",
    "verify.optics.budget": "verify.optics.figures",
}
"""Former and new names, within `optmatch`, of those that public names or the manual led to."""


class _Loader(Loader):
    """Fills a module of a former name with the content of the new one."""

    def exec_module(self, module: ModuleType) -> None:
        package, _, name = module.__name__.partition(".")
        new = f"{package}.{MOVED[name]}"
        warnings.warn(f"{module.__name__} is now {new}", DeprecationWarning, stacklevel=2)
        there = vars(import_module(new))
        vars(module).update({name: value for name, value in there.items() if name[:2] != "__"})


class _Finder(MetaPathFinder):
    """Finds former names, after all other finders have found nothing."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        known = package == "optmatch" and name in MOVED
        return ModuleSpec(fullname, _Loader(), is_package=True) if known else None


def find_moved() -> None:
    """Let imports find modules by their former names."""
    sys.meta_path.append(_Finder())
