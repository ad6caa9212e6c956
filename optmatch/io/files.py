"""Problems, devices and solutions as JSON objects, and their files.

A digest ties a solution to its problem. Files are written whole or not at all, and never over
another one by accident; large arrays lie in an `.npz` beside them, which is bound to its file by
its name and its SHA-256.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.io.fields import (
    check_format,
    check_keys,
    check_object,
    choose,
    from_object,
    shorten,
    to_object,
)
from optmatch.io.text import (
    canonical,
    describe_tree,
    digest,
    layout,
    parse_json,
    plain,
    pointer,
    read_arrays,
    read_bytes,
    replace_entries,
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
from optmatch.model.files import (
    check_target as check_target,
    is_stream,
    locked,
    path_name,
    replace_file,
)
from optmatch.model.numbers import refuse_entries
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

    An object with the key ``"proof"`` is of the class in `CERTIFICATES` that this names, any other
    one is a `RoutingProof`, with prices of the links of the `fabric`. `where` is its JSON pointer.
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
        n_links = part.get("links", links) if isinstance(part, dict) else links
        if type(n_links) is not int or n_links != links:
            raise FormatError(
                f"links = {shorten(n_links)}: the fabric has {links}",
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
        refuse_entries(
            "link",
            (self.link >= self.links) | falling,
            lambda k: f" = {self.link[k]}: links of a node ascend within 0 .. {self.links - 1}",
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
            f" {digest}: /problem is another one than that of the answer; solve it anew",
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


MOST_BYTES = 1_000_000
"""Arrays that together take more bytes than this as JSON lie in a file of their own."""

_SMALL = 100  # arrays of up to so many entries do not count, and stay in the text
_KEYS = ("file", "sha256")
_LONGEST_NAME = 255  # bytes; file systems take no longer one


def detach(tree: dict[str, Any], name: str | None) -> tuple[dict[str, Any], bytes]:
    """Turn the arrays of a tree into lists or, if they are too large, into references.

    Returns the plain tree and the content of a NumPy archive, empty if there is none. Where an
    array was taken out stands ``{"npz": its name}``, and the entry ``"arrays"`` names the file.
    Its name begins with `name` (None keeps all arrays in the text) and contains the digest of the
    content, so a text never meets the arrays of another.
    """
    if name is None:
        return plain(tree), b""
    large: dict[str, Any] = {}

    def refer(entry: Any, where: str) -> Any:
        """Take out a large array, under its JSON pointer with points as a name."""
        if not isinstance(entry, np.ndarray) or entry.size <= _SMALL:
            return entry
        array_name = where.strip("/").replace("/", ".")
        large[array_name] = entry
        return {"npz": array_name}

    referring = replace_entries(tree, refer)

    # An entry takes two bytes at least as text, which decides most cases at once.
    n_bytes = 2 * sum(array.size for array in large.values())
    if n_bytes <= MOST_BYTES:
        texts = (json.dumps(array.tolist(), separators=(",", ":")) for array in large.values())
        n_bytes = sum(map(len, texts))
    if n_bytes <= MOST_BYTES:
        return plain(tree), b""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **large)
    content = buffer.getvalue()
    sha256 = digest(content)
    arrays = {"file": f"{name}.{sha256[:8]}.npz", "sha256": sha256}
    return {**plain(referring), "arrays": arrays}, content


def attach(tree: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """Put the arrays of the file in `folder` back where a tree refers to them.

    A tree without the entry ``"arrays"`` stays as it is. A file of arrays that is absent, changed,
    or lacks an array is a `FormatError`.
    """
    if "arrays" not in tree:
        return tree
    tree = dict(tree)
    named = tree.pop("arrays")
    check_object(named, "/arrays")
    check_keys(named, "/arrays", allowed=_KEYS, required=_KEYS)
    arrays = _read_archive(named, folder)

    def put_back(entry: Any, where: str) -> Any:
        """Return the array that a reference names, other entries as they are."""
        if not isinstance(entry, dict) or set(entry) != {"npz"} or not where:
            return entry
        name = entry["npz"]
        if not isinstance(name, str) or name not in arrays:
            raise FormatError(f"npz = {name!r}: the file of arrays has no such array", where=where)
        if arrays[name].dtype.kind not in "iuf":
            raise FormatError(f"npz = {name!r}: its entries are no numbers", where=where)
        return arrays[name]

    return replace_entries(tree, put_back)  # type: ignore[no-any-return]


def array_file(tree: Any) -> str | None:
    """Return the name of the file of arrays that a tree refers to, if it is a plain name."""
    named = tree.get("arrays") if isinstance(tree, dict) else None
    name = named.get("file") if isinstance(named, dict) else None
    if not isinstance(name, str) or len(name.encode(errors="replace")) > _LONGEST_NAME:
        return None
    return name if Path(name).name == name else None


def _read_archive(named: dict[str, Any], folder: Path | None) -> dict[str, NDArray[Any]]:
    """Read the archive of arrays that a file names, in its folder.

    `named` is ``{"file": name, "sha256": digest}``; a name that is not plain, no regular file, and
    another digest are refused.
    """
    name = array_file({"arrays": named})
    if name is None or not name.endswith(".npz"):
        raise FormatError(
            f"file = {shorten(named['file'])}: the name of an .npz file in the same folder",
            where="/arrays/file",
        )
    if folder is None:
        raise FormatError(f"{name} lies beside a file, not beside a stream", where="/arrays/file")

    # The archive has to be the one that the file was written with.
    target = folder / name
    if not target.is_file() or target.is_symlink():
        reason = "no regular file" if target.exists() else "No such file or directory"
        raise FormatError(f"{name} cannot be read: {reason}", where="/arrays/file")
    try:
        content = read_bytes(target)
        if digest(content) != named["sha256"]:
            stated = shorten(named["sha256"], 66)
            raise FormatError(f"sha256 = {stated}, but {name} has another", where="/arrays/sha256")
        return read_arrays(content, name)
    except FormatError as exc:
        # The archive is a part of the file that names it, which the caller puts into the message.
        exc.where = exc.where or "/arrays/file"
        exc.path = ""
        raise


def save(obj: Problem | Solution, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a problem file or a schedule file.

    Parameters
    ----------
    obj
        A problem, or a solution with or without a schedule; a solution brings its problem along.
    path
        The file. Large arrays go to an ``.npz`` beside it, which the file names.
    force
        Whether a file that is there may be replaced.

    Raises
    ------
    InputError
        If `obj` has no file format, or `path` cannot be written or is there already.

    Notes
    -----
    Each file is written under another name and then renamed, the arrays first: a crash leaves the
    old state or the new one.

    Examples
    --------
    >>> import tempfile
    >>> import optmatch as om
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     om.save(om.AllToAll(om.HexMesh(2, 2, ports=4)), folder + "/mesh.json")
    ...     om.load(folder + "/mesh.json").fabric
    HexMesh(rows=2, cols=2, ports=4)
    """
    if isinstance(obj, str | os.PathLike):
        raise InputError(
            f"obj = {obj!r}: a problem or a solution comes first, then the file", where="obj"
        )
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"path of type {type(path).__name__}: a path is expected", where="path")
    with naming(path):
        save_tree(_to_tree(obj), path, force=force)


def save_tree(tree: dict[str, Any], path: str | os.PathLike[str], *, force: bool) -> list[str]:
    """Write the tree of a file and, if they are large, its arrays beside it.

    A reader finds the old file with its arrays or the new one: the new arrays are written first,
    under a name that their content determines, and the old ones are removed last. Returns the
    names of the files.
    """
    target = check_target(path, force=force)
    if is_stream(target):
        replace_file(target, (layout(detach(tree, None)[0]) + "\n").encode())
        return [path_name(path)]

    tree, arrays = detach(tree, target.name.removesuffix(".json"))
    with locked(target.parent):  # the named arrays stay while others replace the file
        former_arrays = None
        with suppress(OSError, FormatError):  # absent, or none of ours
            former_name = array_file(parse_json(target.read_bytes(), str(target))) or ""
            is_own = former_name.startswith(target.name.removesuffix(".json") + ".")
            if is_own and former_name.endswith(".npz"):
                former_arrays = target.with_name(former_name)
        array_name = array_file(tree)
        array_path = None if array_name is None else target.with_name(array_name)
        if array_path is not None:
            replace_file(array_path, arrays)
        try:
            replace_file(target, (layout(tree) + "\n").encode())
        except BaseException:
            # The old file stays, and its arrays with it.
            if array_path is not None and array_path != former_arrays:
                array_path.unlink(missing_ok=True)
            raise
        if former_arrays is not None and former_arrays != array_path:
            former_arrays.unlink(missing_ok=True)

    written = [path_name(path)]
    if array_path is not None:
        written.append(os.fspath(array_path))
    return written


_TABLES = (".csv", ".tsv", ".txt", ".npy", ".npz", ".mtx")
_READ_TABLE = (
    "tables are read by functions of optmatch.io: read_matrix a matrix or list of traffic, for"
    " Demand.from_matrix (`optmatch generate demand --matrix`), read_flows flows with their times,"
    " for optmatch.control.replay_flows (`optmatch simulate`), read_resources and read_jobs those"
    " of a PortSharing"
)


def load(path: str | os.PathLike[str]) -> Problem | Solution:
    """Read a problem file or a schedule file.

    Parameters
    ----------
    path
        The file; its ``"format"`` says which it is.

    Returns
    -------
    Problem or Solution
        The solution as it was saved; a certificate that is a list comes back as a tuple.

    Raises
    ------
    FormatError
        If the file cannot be read, is no JSON, or breaks the format. Carries the file as ``path``
        and the place as ``where``, a JSON pointer.
    InputError
        If a value breaks a rule of the problem or schedule, or the digest of the problem differs.

    See Also
    --------
    save : Write such a file.

    Examples
    --------
    >>> import optmatch as om
    >>> om.load("instances/all-to-all/hex-4x4-8.json")
    AllToAll(fabric=HexMesh(rows=4, cols=4, ports=8))
    """
    name = path_name(path)
    folder = Path(name).parent
    with nullcontext() if is_stream(name) else locked(folder, shared=True):
        return _read(read_bytes(name), name, folder)


def dumps(obj: Problem | Solution) -> str:
    """Write a problem or a solution as one text, with all arrays in it.

    Examples
    --------
    >>> import optmatch as om
    >>> loads(dumps(om.AllToAll(om.IdealSwitch(4)))).fabric
    IdealSwitch(n=4)
    """
    return layout(detach(_to_tree(obj), None)[0])


def loads(text: str | bytes, *, path: str = "<text>") -> Problem | Solution:
    """Read a problem or a solution from a text; `path` is what messages call it."""
    if not isinstance(text, str | bytes):
        raise InputError(f"text of type {type(text).__name__}: a text is expected", where="text")
    return _read(text, path, None)


def _to_tree(obj: Problem | Solution) -> dict[str, Any]:
    """Return a problem or a solution as the tree of its file, with arrays of NumPy in it."""
    if isinstance(obj, Solution):
        return solution_to_tree(obj)
    if isinstance(obj, Problem):
        return problem_to_tree(obj, arrays=True)
    raise InputError(f"{type(obj).__name__} has no file format: a problem or a solution")


def _read(content: str | bytes, path: str, folder: Path | None) -> Problem | Solution:
    """Read a problem or a solution from the text of a file.

    Large arrays lie in `folder`, None for a stream. Anything else is refused, with what it looks
    like.
    """
    try:
        tree = parse_json(content, path)
    except FormatError as error:
        if Path(path).suffix in _TABLES:
            error.message += f"; {_READ_TABLE}"
        raise

    # Files of other programs are told by what they look like.
    with naming(path):
        description = "" if isinstance(tree, dict) and "format" in tree else describe_tree(tree)
        if description:
            raise FormatError(f"no problem and no answer, which have a format{description}")
        if check_format(tree, "", PROBLEM_FORMAT, SCHEDULE_FORMAT) == PROBLEM_FORMAT:
            return problem_from_tree(attach(tree, folder))
        return solution_from_tree(attach(tree, folder))
