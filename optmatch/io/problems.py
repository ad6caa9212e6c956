"""Problems, devices and solutions as JSON objects, and the digest that ties a solution to one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.io.fields import check_format, check_keys, choose, from_object, shorten, to_object
from optmatch.io.text import (
    canonical,
    digest,
    layout,
    parse_json,
    plain,
    pointer,
    read_bytes,
)
from optmatch.model import (
    Device,
    FormatError,
    Index,
    InputError,
    Problem,
    Range,
    Schedule,
    Solution,
    Value,
    check_fields,
    naming,
)
from optmatch.model.declarations import forms_of
from optmatch.model.errors import place_in
from optmatch.model.files import path_name
from optmatch.problems import (
    PROBLEMS,
    BlockProof,
    ConfigurationProof,
    CountProof,
    CutProof,
    LoadProof,
    RoutingProof,
    SupplyProof,
)

PROBLEM_FORMAT = "optmatch/problem/1"


def problem_to_tree(problem: Problem, *, arrays: bool = False) -> dict[str, Any]:
    """Return the JSON object of a problem, with every default written out.

    With `arrays`, matrices stay arrays, to be laid beside the text; else they become lists.
    """
    cls = PROBLEMS.get(problem.kind)
    if cls is not type(problem):
        raise InputError(f"{type(problem).__name__} has no file format")
    return {
        "format": PROBLEM_FORMAT,
        "kind": problem.kind,
        **to_object(problem, keep_ndim=2 if arrays else None),
    }


def problem_from_tree(tree: Any, where: str = "") -> Problem:
    """Build a problem from its JSON object, whose ``kind`` names its class."""
    check_format(tree, where, PROBLEM_FORMAT)
    cls: Callable[..., Problem] = choose(tree, "kind", PROBLEMS, where)
    return from_object(cls, tree, where, tags=("format", "kind"))


def problem_digest(problem: Problem) -> str:
    """Return the SHA-256 of the canonical JSON of a problem, in hexadecimal.

    Equal problems have equal digests, whatever layout their files have and defaults they omit.
    Fields that a class once had count as null, so that digests of former files hold.

    Examples
    --------
    >>> from optmatch.fabrics import HexMesh
    >>> from optmatch.problems import AllToAll
    >>> problem_digest(AllToAll(HexMesh(2, 2, ports=4)))[:16]
    'c244a11e29db85c4'
    """
    tree = problem_to_tree(problem)
    _add_removed_fields(problem, tree)
    return digest(canonical(tree))


def _add_removed_fields(value: Any, tree: dict[str, Any]) -> None:
    """Add the fields that classes once had to the tree of a data class, as null."""
    tree.update(dict.fromkeys(getattr(value, "removed_fields", ())))
    for part in fields(value):
        entry: Any = getattr(value, part.name)
        if is_dataclass(entry) and isinstance(tree.get(part.name), dict):
            _add_removed_fields(entry, tree[part.name])


DEVICE_FORMAT = "optmatch/device/1"


def read_device(path: str | os.PathLike[str]) -> Device:
    """Read a device file.

    Parameters
    ----------
    path
        JSON with ``"format": "optmatch/device/1"`` and the fields of `Device`; those that are
        absent have their defaults.

    Raises
    ------
    FormatError
        If the file cannot be read, is no JSON, or breaks the format.
    InputError
        If a value breaks a rule of `Device`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from optmatch.model import DEVICES
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "chip.json")
    ...     _ = file.write_text(write_device(DEVICES["smartlight"]))
    ...     read_device(file) == DEVICES["smartlight"]
    True
    """
    name = path_name(path)
    tree: Any = parse_json(read_bytes(path), name)
    with naming(name):
        check_format(tree, "", DEVICE_FORMAT)
        return from_object(Device, tree, "", tags=["format"])


def write_device(device: Device) -> str:
    """Return the text of a device file, with all fields."""
    return layout({"format": DEVICE_FORMAT, **to_object(device)}) + "\n"


CERTIFICATES: dict[str, type[Value]] = {
    "block": BlockProof,
    "configuration": ConfigurationProof,
    "count": CountProof,
    "cut": CutProof,
    "load": LoadProof,
    "supply": SupplyProof,
}
"""Certificates by the name that files use; a `RoutingProof` has a form of its own."""


def _certificate_to_tree(certificate: Any) -> Any:
    """Return the JSON form of a certificate: a proof, a sequence of proofs and None, or None.

    A proof has its kind as ``"proof"``, except those of routings; arrays stay arrays.
    """
    if certificate is None:
        return None
    if isinstance(certificate, RoutingProof):
        return to_object(
            certificate,
            keep_ndim=1,
            prices=lambda dense: to_object(Prices.of(dense), keep_ndim=1),
        )
    for name, proof_class in CERTIFICATES.items():
        if isinstance(certificate, proof_class):
            return {"proof": name, **to_object(certificate, keep_ndim=1)}
    if isinstance(certificate, tuple | list):
        return [_certificate_to_tree(proof) for proof in certificate]
    raise InputError(f"a certificate of type {type(certificate).__name__} has no file format")


def _certificate_from_tree(tree: Any, where: str, fabric: Fabric | None) -> Any:
    """Build a certificate from its JSON form; a list becomes a tuple.

    Prices in proofs are those of the links of the fabric, None if there is no switch.
    """
    if tree is None:
        return None
    links = 0 if fabric is None or fabric.graph is None else fabric.graph.links.count
    if isinstance(tree, list) and not where.rpartition("/")[2].isdigit():  # none within a list
        return tuple(
            _certificate_from_tree(entry, pointer(where, k), fabric)
            for k, entry in enumerate(tree)
        )
    if isinstance(tree, dict) and "proof" in tree:
        return from_object(
            choose(tree, "proof", CERTIFICATES, where), tree, where, tags=("proof",)
        )

    def prices(part: Any, place: str) -> NDArray[np.int64]:
        """Build ``price[node, link]`` from a JSON object; another number of links is refused."""
        if isinstance(part, dict) and part.get("links", links) != links:
            raise FormatError(
                f"links = {shorten(part['links'])}: the fabric has {links}",
                where=pointer(place, "links"),
            )
        return from_object(Prices, part, place).dense()

    return from_object(RoutingProof, tree, where, prices=prices)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prices(Value):
    """Prices that are not 0: those of node k stand from starts[k] to starts[k + 1]."""

    links: Index
    starts: Annotated[NDArray[np.int64], Range(0)]
    link: Annotated[NDArray[np.int64], Range(0)]
    price: Annotated[NDArray[np.int64], Range(0)]

    def __post_init__(self) -> None:
        """Check the prices of a proof by node: a sparse matrix in compressed rows.

        The prices of node k are the entries ``starts[k]`` to ``starts[k + 1]`` of ``link`` and
        ``price``, in the order of links.
        """
        check_fields(self)
        count = len(self.link)
        steps = np.diff(self.starts, prepend=0, append=count)
        if len(self.starts) < 1 or steps[0] or steps[-1] or (steps < 0).any():
            raise InputError(
                f"starts ascend from 0 to the number of prices, {count}", where="starts"
            )
        if len(self.price) != count:
            raise InputError(f"{len(self.price)} prices for {count} links", where="price")
        # An entry whose link is not above that of the entry before it, within the same node.
        falling = np.append(False, (np.diff(self.link) <= 0) & (np.diff(self._node()) == 0))
        for index in np.flatnonzero((self.link >= self.links) | falling)[:1]:
            raise InputError(
                f"link[{index}] = {self.link[index]}: links of a node ascend within 0 .."
                f" {self.links - 1}",
                where=f"link[{index}]",
            )

    @classmethod
    def of(cls, dense: NDArray[np.int64]) -> Prices:
        """Return ``prices[node, link]``, of which most are 0, in compressed rows."""
        node, link = np.nonzero(dense)
        starts = np.searchsorted(node, np.arange(len(dense) + 1))
        return cls(links=dense.shape[1], starts=starts, link=link, price=dense[node, link])

    def _node(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def dense(self) -> NDArray[np.int64]:
        """Return ``prices[node, link]``."""
        dense = np.zeros((len(self.starts) - 1, self.links), dtype=np.int64)
        dense[self._node(), self.link] = self.price
        return dense


SCHEDULE_FORMAT = "optmatch/schedule/1"


def solution_to_tree(solution: Solution) -> dict[str, Any]:
    """Return the JSON object of a solution, with its problem; large arrays stay arrays.

    The digest of the problem ties the solution to it: a reader refuses another one.
    """
    # The answer, where a schedule is not all of it.
    answer = solution.answer
    entry = {}
    if answer is not None:
        if not isinstance(answer, solution.problem.answer_class or ()):
            raise InputError(
                f"an answer of type {type(answer).__name__} has no file format for"
                f" {solution.problem.kind}"
            )

        # Files may hold a shorter form of it, and leave out what is empty.
        if hasattr(answer, "for_file"):
            answer = answer.for_file(solution.problem)
        fields_of_answer = to_object(answer, keep_ndim=1)
        for name in getattr(answer, "left_out_if_empty", ()):
            if not len(fields_of_answer[name]):
                del fields_of_answer[name]
        entry["answer"] = fields_of_answer
    schedule = solution.schedule and to_object(solution.schedule, keep_ndim=1)
    return {
        "format": SCHEDULE_FORMAT,
        "problem": problem_to_tree(solution.problem, arrays=True),
        "problem_sha256": problem_digest(solution.problem),
        "status": solution.status.value,
        "limit": solution.limit and solution.limit.value,
        "objective": plain(solution.objective),
        "lower_bound": plain(solution.lower_bound),
        "method": solution.method,
        "seed": solution.seed,
        "time_s": plain(solution.time_s),
        "stats": plain(solution.stats),
        "proof": solution.proof,
        "schedule": schedule,
        **entry,
        "certificate": _certificate_to_tree(solution.certificate),
    }


def solution_from_tree(tree: Any) -> Solution:
    """Build a solution from its JSON object, with the problem in it and the problem's digest.

    Another digest, or parts that contradict each other, are an `InputError`.
    """
    check_format(tree, "", SCHEDULE_FORMAT)
    tags = ("format", "problem_sha256")
    needed = ("problem", "problem_sha256", "status", "method")
    check_keys(tree, "", allowed=(*tags, *forms_of(Solution)), required=needed)
    problem = problem_from_tree(tree["problem"], "/problem")
    stated_digest = tree["problem_sha256"]
    digest = problem_digest(problem)
    if not isinstance(stated_digest, str) or stated_digest != digest:  # it may be an array
        raise InputError(
            f"problem_sha256 = {shorten(stated_digest, 66)}, but the problem in this file has"
            f" {digest}",
            where="/problem_sha256",
        )
    fabric = getattr(problem, "broken_fabric", problem.fabric)  # the problem that proofs speak of
    return from_object(
        Solution,
        tree,
        "",
        tags=tags,
        problem=lambda _tree, _where: problem,
        schedule=lambda part, where: _schedule_from_tree(part, where, problem),
        answer=lambda part, where: _answer_from_tree(part, where, problem),
        certificate=lambda part, where: _certificate_from_tree(part, where, fabric),
    )


def _check_fits(problem: Problem, answer: Any, where: str) -> Any:
    """Refuse an answer of another problem, which nothing behind the reader expects.

    Returns it; an answer that files hold in a shorter form (`for_file`) has its whole one again.
    """
    try:
        if hasattr(answer, "from_file"):
            answer = answer.from_file(problem)
        answer.check_fits(problem)
        return answer
    except InputError as exc:
        names = frozenset(field.name for field in fields(answer))
        exc.where = place_in(exc.where, exc.message, names, where)
        raise


def _schedule_from_tree(tree: Any, where: str, problem: Problem) -> Schedule | None:
    """Build a schedule from its JSON form, None for none, and check that it fits the problem."""
    if tree is None:
        return None
    if problem.fabric is None:
        raise FormatError(f"{problem.kind} has no switch, and no schedule", where=where)
    if isinstance(tree, dict):  # JSON does not tell how many columns no rows have
        columns = {"matchings": problem.fabric.n_ports, "cell_states": problem.fabric.n_cells}
        empty = [name for name in columns if isinstance(tree.get(name), list) and not tree[name]]
        tree = tree | {name: np.empty((0, columns[name])) for name in empty}
    schedule = from_object(Schedule, tree, where)
    _check_fits(problem, schedule, where)
    return schedule


def _answer_from_tree(tree: Any, where: str, problem: Problem) -> Any:
    """Build an answer that is no schedule, None for none, and check that it fits the problem."""
    if tree is None:
        return None
    if problem.answer_class is None:
        raise FormatError(f"a schedule is the whole answer to {problem.kind}", where=where)

    def schedules(parts: Any, place: str) -> Any:
        """Build the schedules of several planes from a list of objects."""
        if not isinstance(parts, list):
            raise FormatError(f"{shorten(parts)}: a list is expected here", where=place)
        return [
            _schedule_from_tree(part, pointer(place, k), problem) for k, part in enumerate(parts)
        ]

    answer = from_object(problem.answer_class, tree, where, schedules=schedules)
    return _check_fits(problem, answer, where)
