"""Pods of cubes joined by circuit switches: which circuits and slices are legal.

The seven rules of a pod in the manner of TPU v4, where cubes of n x n x n chips are wired inside
and only their faces lead to optical switches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from optmatch.fabrics.rack import AXES, RackFabric
from optmatch.model import InputError

Sign = Literal[-1, 1]


class FacePort(NamedTuple):
    """The outward port of a chip on the face of a cube.

    Examples
    --------
    >>> print(FacePort(cube=3, axis=0, sign=1, i=0, j=2))
    cube 3 +x(0, 2)
    """

    cube: int
    axis: int
    """0, 1 or 2 for x, y or z."""
    sign: Sign
    i: int
    j: int
    """Place within the face: the two other coordinates, in the order of the axes."""

    def __str__(self) -> str:
        axis = AXES[self.axis] if 0 <= self.axis < len(AXES) else f"axis {self.axis}"
        return f"cube {self.cube} {'+' if self.sign > 0 else '-'}{axis}({self.i}, {self.j})"


class CubeCircuit(NamedTuple):
    """A circuit between two face ports; light passes both ways."""

    first: FacePort
    second: FacePort


class Breach(NamedTuple):
    """A rule that does not hold: which one, of what, and why."""

    rule: str
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}: {self.why}"


def face_port(side: int, cube: int, chip: Sequence[int], axis: int, sign: Sign) -> FacePort:
    """Return the outward port of a chip.

    Parameters
    ----------
    side
        Chips along the side of a cube.
    cube
        The number of the cube.
    chip
        x, y, z of the chip inside the cube.
    axis, sign
        The direction in which the port looks.

    Raises
    ------
    InputError
        If the chip is not on that face: its link leads to a neighbour inside the cube (R2).

    Examples
    --------
    >>> print(face_port(4, 0, (3, 1, 2), axis=0, sign=1))
    cube 0 +x(1, 2)
    """
    if chip[axis] != (side - 1 if sign > 0 else 0):
        raise InputError(
            f"R2: chip {tuple(chip)} of cube {cube} is not on its"
            f" {'+' if sign > 0 else '-'}{AXES[axis]} face: its link stays inside",
            where="chip",
        )
    i, j = (at for k, at in enumerate(chip) if k != axis)
    return FacePort(cube, axis, sign, i, j)


def wrap_ring(cubes: Sequence[int], axis: int, i: int, j: int) -> list[CubeCircuit]:
    """Join cubes along an axis to a ring; the closing circuit is one like the others (R6).

    Examples
    --------
    >>> [str(c.second) for c in wrap_ring([5, 2], axis=2, i=0, j=0)]
    ['cube 2 -z(0, 0)', 'cube 5 -z(0, 0)']
    """
    return [
        CubeCircuit(FacePort(cube, axis, 1, i, j), FacePort(after, axis, -1, i, j))
        for cube, after in zip(cubes, [*cubes[1:], *cubes[:1]], strict=True)
    ]


def face_circuits(fabric: RackFabric, fibres: ArrayLike) -> list[CubeCircuit]:
    """Return what the hubs of joined cubes join.

    Parameters
    ----------
    fabric
        Joined racks that are cubes: as many servers along each axis, two or more, and one fibre
        from each to a neighbour.
    fibres
        Rows of circuit and fibre in the order they are passed, as an allocation has them.

    Returns
    -------
    list of CubeCircuit
        In ascending order. Light both ways between two face ports is one circuit.

    Raises
    ------
    InputError
        If the racks are no such cubes.

    Examples
    --------
    >>> pod = RackFabric((2, 2, 2), (1, 1, 1), fibres=1, racks=2, joined=True)
    >>> ends = pod.edges[pod.edge_of_fibre].tolist()
    >>> out, back = ends.index([1, pod.n_servers]), ends.index([pod.n_servers, 8])
    >>> [f"{first} to {second}" for first, second in face_circuits(pod, [[0, out], [0, back]])]
    ['cube 0 +x(0, 0) to cube 1 -x(0, 0)']
    """
    sides = set(fabric.server_grid)
    if not fabric.joined or fabric.fibres != 1 or len(sides) > 1 or sides == {1}:
        raise InputError(
            f"joined cubes with one fibre to a neighbour are expected, not {fabric.server_grid}"
            f" servers, {fabric.fibres} fibres, joined = {fabric.joined}",
            where="fabric",
        )
    last = sides.pop() - 1
    rows = np.asarray(fibres, dtype=np.int64).reshape(-1, 2)
    ends = fabric.edges[fabric.edge_of_fibre[rows[:, 1]]].tolist()
    found = set()
    for (tail, hub), (_, head) in pairwise(ends):
        if hub < fabric.n_servers:
            continue
        axis, i, j = fabric.hubs[hub - fabric.n_servers].tolist()
        ports = []
        for server in (tail, head):
            rack, *place = fabric.server_coordinates[server].tolist()
            ports.append(FacePort(rack, axis, 1 if place[axis] == last else -1, i, j))
        found.add(CubeCircuit(*sorted(ports, key=lambda port: (port.cube, -port.sign))))
    return sorted(found)


def check_cubes(
    side: int,
    n_cubes: int,
    circuits: Sequence[CubeCircuit],
    slices: Mapping[str, Sequence[int]] | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> list[Breach]:
    """Check the circuits and slices of a pod of cubes against the seven rules.

    R1: cubes of ``side ** 3`` chips are the atoms. R2: only face ports lead out. R3: a circuit
    joins the same place (i, j) of faces on one axis; of two cubes with any signs, of one cube only
    + with -. R4: any two cubes may be joined, wherever they stand. R5: a port has one circuit. R6:
    a ring is closed by an ordinary circuit. R7: slices are whole cubes of their own, and no
    circuit leads from one to another. R4 and R6 forbid nothing, so nothing can break them.

    Parameters
    ----------
    side
        Chips along the side of a cube.
    n_cubes
        How many cubes there are.
    circuits
        What the switches join.
    slices
        The cubes of each slice, by its name; None to leave R7 out.
    shapes
        The sides of slices in chips, by name: multiples of `side` that need as many cubes as the
        slice has.

    Returns
    -------
    list of Breach
        Empty where all is legal.

    Examples
    --------
    >>> check_cubes(4, 2, wrap_ring([0, 1], axis=0, i=0, j=0), {"a": [0, 1]})
    []
    >>> port = FacePort(0, 0, 1, 0, 0)
    >>> print(check_cubes(4, 2, [CubeCircuit(port, port._replace(i=1, cube=1))])[0])
    R3: cube 0 +x(0, 0) to cube 1 +x(1, 0): places within the faces differ
    """
    found: list[Breach] = []
    used: dict[FacePort, str] = {}
    for circuit in circuits:
        name = f"{circuit.first} to {circuit.second}"
        for port in circuit:
            found += _check_port(side, n_cubes, port, name)
        found += _check_pairing(circuit, name)
        for port in circuit:
            if port in used:
                found.append(Breach("R5", name, f"{port} is in use by {used[port]}"))
            used[port] = name
    return found + _check_slices(side, n_cubes, circuits, slices or {}, shapes or {})


def _check_port(side: int, n_cubes: int, port: FacePort, name: str) -> list[Breach]:
    found = []
    if not 0 <= port.cube < n_cubes:
        found.append(Breach("R1", name, f"cubes are 0 .. {n_cubes - 1}"))
    inside = 0 <= port.i < side and 0 <= port.j < side
    if not (inside and 0 <= port.axis < len(AXES) and port.sign in (-1, 1)):
        found.append(Breach("R2", name, f"{port} is on no face of {side} x {side} chips"))
    return found


def _check_pairing(circuit: CubeCircuit, name: str) -> list[Breach]:
    first, second = circuit
    if first.axis != second.axis:
        return [Breach("R3", name, "the axes differ")]
    if (first.i, first.j) != (second.i, second.j):
        return [Breach("R3", name, "places within the faces differ")]
    if first.cube == second.cube and first.sign == second.sign:
        return [Breach("R3", name, "within one cube only + meets -")]
    return []


def _check_slices(
    side: int,
    n_cubes: int,
    circuits: Sequence[CubeCircuit],
    slices: Mapping[str, Sequence[int]],
    shapes: Mapping[str, Sequence[int]],
) -> list[Breach]:
    found: list[Breach] = []
    owner: dict[int, str] = {}
    for name, cubes in slices.items():
        for cube in cubes:
            if not 0 <= cube < n_cubes:
                found.append(Breach("R1", f"slice {name}", f"cube {cube}: 0 .. {n_cubes - 1}"))
            if cube in owner:
                found.append(Breach("R7", f"slice {name}", f"cube {cube} is of {owner[cube]}"))
            owner[cube] = name
    for name, sides in shapes.items():
        volume = 1
        for length in sides:
            volume *= length // side
        if any(length % side for length in sides) or volume != len(slices.get(name, ())):
            text = " x ".join(map(str, sides))
            found.append(Breach("R7", f"slice {name}", f"{text} chips are not its whole cubes"))
    for first, second in circuits if slices else ():
        if owner.get(first.cube) != owner.get(second.cube):
            found.append(Breach("R7", f"{first} to {second}", "joins two slices"))
    return found
