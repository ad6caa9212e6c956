"""Certificates as JSON: one proof, or one for each slot; prices without their many zeros."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.io.fields import choose, from_object, shorten, to_object
from optmatch.io.text import pointer
from optmatch.model import FormatError, Index, InputError, Range, Value, check_fields
from optmatch.problems import (
    BlockProof,
    ConfigurationProof,
    CountProof,
    CutProof,
    LineProof,
    LoadProof,
    RoutingProof,
    SupplyProof,
)

CERTIFICATES: dict[str, type[Value]] = {
    "block": BlockProof,
    "configuration": ConfigurationProof,
    "count": CountProof,
    "cut": CutProof,
    "line": LineProof,
    "load": LoadProof,
    "supply": SupplyProof,
}
"""Certificates by the name that files use; a `RoutingProof` has a form of its own."""


def certificate_to_tree(certificate: Any) -> Any:
    """Return the JSON form of a proof, of a sequence of them and None, or of None."""
    if certificate is None:
        return None
    if isinstance(certificate, RoutingProof):
        return to_object(certificate, keep_ndim=1, prices=_prices_to_tree)
    for name, proof_class in CERTIFICATES.items():
        if isinstance(certificate, proof_class):
            return {"proof": name, **to_object(certificate, keep_ndim=1)}
    if isinstance(certificate, tuple | list):
        return [certificate_to_tree(proof) for proof in certificate]
    raise InputError(f"a certificate of type {type(certificate).__name__} has no file format")


def certificate_from_tree(tree: Any, where: str, fabric: Fabric | None) -> Any:
    """Build a certificate from its JSON form; a list becomes a tuple.

    Prices are those of the links of `fabric`; None if there is no switch.
    """
    if tree is None:
        return None
    links = 0 if fabric is None or fabric.graph is None else fabric.graph.links.count
    if isinstance(tree, list) and not where.rpartition("/")[2].isdigit():  # none within a list
        return tuple(
            certificate_from_tree(entry, pointer(where, k), fabric) for k, entry in enumerate(tree)
        )
    if isinstance(tree, dict) and "proof" in tree:
        return from_object(
            choose(tree, "proof", CERTIFICATES, where), tree, where, tags=("proof",)
        )
    return from_object(RoutingProof, tree, where, prices=partial(_prices_from_tree, links))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prices(Value):
    """Prices that are not 0: those of node k stand from starts[k] to starts[k + 1]."""

    links: Index
    starts: Annotated[NDArray[np.int64], Range(0)]
    link: Annotated[NDArray[np.int64], Range(0)]
    price: Annotated[NDArray[np.int64], Range(0)]

    def __post_init__(self) -> None:
        check_fields(self)
        count, steps = len(self.link), np.diff(self.starts, prepend=0, append=len(self.link))
        if len(self.starts) < 1 or steps[0] or steps[-1] or (steps < 0).any():
            raise InputError(
                f"starts ascend from 0 to the number of prices, {count}", where="starts"
            )
        if len(self.price) != count:
            raise InputError(f"{len(self.price)} prices for {count} links", where="price")
        falling = np.append(False, (np.diff(self.link) <= 0) & (np.diff(self._node()) == 0))
        for index in np.flatnonzero((self.link >= self.links) | falling)[:1]:
            raise InputError(
                f"link[{index}] = {self.link[index]}: links of a node ascend within 0 .."
                f" {self.links - 1}",
                where=f"link[{index}]",
            )

    def _node(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def dense(self) -> NDArray[np.int64]:
        """Return ``prices[node, link]``."""
        dense = np.zeros((len(self.starts) - 1, self.links), dtype=np.int64)
        dense[self._node(), self.link] = self.price
        return dense


def _prices_to_tree(dense: NDArray[np.int64]) -> dict[str, Any]:
    node, link = np.nonzero(dense)
    starts = np.searchsorted(node, np.arange(len(dense) + 1))
    sparse = Prices(links=dense.shape[1], starts=starts, link=link, price=dense[node, link])
    return to_object(sparse, keep_ndim=1)


def _prices_from_tree(links: int, tree: Any, where: str) -> NDArray[np.int64]:
    if isinstance(tree, dict) and tree.get("links", links) != links:
        message = f"links = {shorten(tree['links'])}: the fabric has {links}"
        raise FormatError(message, where=pointer(where, "links"))
    return from_object(Prices, tree, where).dense()
