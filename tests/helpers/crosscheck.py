"""The same light from other hands: a cell graph as a circuit of `sax`, the simulator."""

from importlib import import_module
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import TERMINAL_NAMES, CellGraph
from optmatch.model import SolverUnavailable


class SaxCircuit:
    """A cell graph, compiled once by `sax` [1]_ with its sparse back end.

    If `guided`, waveguides are instances of their own, with factors as settings; else terminals
    are joined directly, and all factors are 1. If `refined`, each solution is improved by one step
    of iterative refinement: the back end, KLU, accepts pivots a thousand times smaller than their
    neighbours, and on a mesh with leaks its rounding grows up to 1e-7.

    References
    ----------
    .. [1] Laporte et al., sax: S-parameters with Autograd and XLA.
       https://github.com/flaport/sax
    """

    def __init__(self, graph: CellGraph, *, guided: bool = True, refined: bool = True) -> None:
        try:
            self._sax, self._klujax = import_module("sax"), import_module("klujax")
            jax = import_module("jax")
        except ImportError as exc:
            raise SolverUnavailable("sax is needed: pip install 'optmatch[crosscheck]'") from exc
        jax.config.update("jax_enable_x64", True)
        self.graph, self.guided, self.refined = graph, guided, refined
        netlist = {
            "instances": {
                **{f"cell{k}": "cell" for k in range(graph.n_cells)},
                **{f"guide{link}": "guide" for link in self._joined()},
            },
            "connections": self._connect(),
            "ports": {f"t{k}": _pin(t) for k, t in enumerate(graph.perimeter.tolist())},
        }
        models = {"cell": _cell, "guide": _guide}
        self.circuit, _ = self._sax.circuit(netlist, models=models, backend="klu")

    def scatter(
        self, cells: NDArray[np.complex128], waveguides: NDArray[np.complex128]
    ) -> NDArray[np.complex128]:
        """Return ``amplitude[left at, entered at]`` between the terminals of the perimeter.

        Parameters
        ----------
        cells, waveguides
            As for `optmatch.optics.scattering.scatter`.
        """
        settings = self.settings(cells, waveguides)
        solve = self._refine if self.refined else self._klujax.solve_with_symbol
        with patch.object(self._klujax, "solve_with_symbol", solve):
            matrix, places = self._sax.sdense(self.circuit(**settings))
        order = [places[f"t{k}"] for k in range(len(self.graph.perimeter))]
        amplitude: NDArray[np.complex128] = np.asarray(matrix)[np.ix_(order, order)].T
        return amplitude  # sax has [entered at, left at]

    def settings(
        self, cells: NDArray[np.complex128], waveguides: NDArray[np.complex128]
    ) -> dict[str, Any]:
        """Return matrices and factors as arguments of ``circuit``."""
        settings: dict[str, Any] = {
            f"cell{k}": {"t11": t[0, 0], "t12": t[0, 1], "t22": t[1, 1]}
            for k, t in enumerate(cells)
        }
        return settings | {f"guide{link}": {"t": waveguides[link]} for link in self._joined()}

    @property
    def _refine(self) -> Any:
        solve, dot = self._klujax.solve_with_symbol, self._klujax.dot

        def refine(i: Any, j: Any, values: Any, right: Any, symbolic: Any) -> Any:
            x = solve(i, j, values, right, symbolic)
            return x + solve(i, j, values, right - dot(i, j, values, x), symbolic)

        return refine

    def _joined(self) -> list[int]:
        """List the links that are instances: those that lead from cell to cell."""
        if not self.guided:
            return []
        number: list[int] = np.unique(self.graph.links.of_terminal[self.graph.mate >= 0]).tolist()
        return number

    def _connect(self) -> dict[str, str]:
        joins = {}
        for terminal in np.flatnonzero(self.graph.mate > np.arange(len(self.graph.mate))).tolist():
            link, mate = self.graph.links.of_terminal[terminal], int(self.graph.mate[terminal])
            if self.guided:
                joins[_pin(terminal)] = f"guide{link},in"
                joins[f"guide{link},out"] = _pin(mate)
            else:
                joins[_pin(terminal)] = _pin(mate)
        return joins


def _pin(terminal: int) -> str:
    return f"cell{terminal // 4},{TERMINAL_NAMES[terminal % 4]}"


def _both_ways(ways: dict[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    as_array = import_module("jax.numpy").asarray
    return {key: as_array(value) for (a, b), value in ways.items() for key in ((a, b), (b, a))}


def _cell(t11: Any = 0j, t12: Any = 1j, t22: Any = 0j) -> dict[tuple[str, str], Any]:
    """Let light through a cell, from end to end."""
    return _both_ways({("a1", "b1"): t11, ("a1", "b2"): t12, ("a2", "b1"): t12, ("a2", "b2"): t22})


def _guide(t: Any = 1 + 0j) -> dict[tuple[str, str], Any]:
    """Let light through a waveguide."""
    return _both_ways({("in", "out"): t})
