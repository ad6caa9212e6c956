"""Certificates as JSON: one proof, or one for each slot; prices without their many zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from optmatch.fabrics import Fabric
from optmatch.io.fields import (
    check_keys,
    check_numbers,
    check_object,
    choose,
    from_object,
    shorten,
    to_object,
)
from optmatch.io.text import pointer
from optmatch.model import FormatError, InputError, Value, frozen
from optmatch.problems import (
    BlockProof,
    ConfigurationProof,
    CountProof,
    CutProof,
    LineProof,
    LoadProof,
    OddSetProof,
    RoutingProof,
    SupplyProof,
)

_SMALL = ("circuit", "terminal", "one_way", "children", "infeasible")
_PRICES = ("links", "starts", "link", "price")

CERTIFICATES: dict[str, type[Value]] = {
    "block": BlockProof,
    "configuration": ConfigurationProof,
    "count": CountProof,
    "cut": CutProof,
    "line": LineProof,
    "load": LoadProof,
    "odd-set": OddSetProof,
    "supply": SupplyProof,
}
"""Certificates by the name that files use; a `RoutingProof` has a form of its own."""


def certificate_to_tree(certificate: Any) -> Any:
    """Return the JSON form of a proof, of a sequence of them and None, or of None."""
    if certificate is None:
        return None
    if isinstance(certificate, RoutingProof):
        return _proof_to_tree(certificate)
    for name, proof_class in CERTIFICATES.items():
        if isinstance(certificate, proof_class):
            return {"proof": name, **to_object(certificate, keep_ndim=1)}
    if isinstance(certificate, tuple | list):
        return [certificate_to_tree(proof) for proof in certificate]
    raise InputError(f"a certificate of type {type(certificate).__name__} has no file format")


def certificate_from_tree(tree: Any, where: str, fabric: Fabric | None) -> Any:
    """Build a certificate from its JSON form; a list becomes a tuple.

    Parameters
    ----------
    tree
        The JSON form.
    where
        Its JSON pointer.
    fabric
        The switch whose links have the prices; None if there is none.
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
    return _proof_from_tree(tree, where, links)


def _proof_to_tree(proof: RoutingProof) -> dict[str, Any]:
    node, link = np.nonzero(proof.prices)
    return {
        **{name: getattr(proof, name) for name in _SMALL},
        "prices": {
            "links": proof.prices.shape[1],
            "starts": np.searchsorted(node, np.arange(len(proof.prices) + 1)),
            "link": link,
            "price": proof.prices[node, link],
        },
    }


def _proof_from_tree(tree: Any, where: str, links: int) -> RoutingProof:
    def prices(sparse: Any, place: str) -> Any:
        check_object(sparse, place)
        check_keys(sparse, place, known=_PRICES, needed=_PRICES)
        return _dense(sparse, place, links)

    return from_object(RoutingProof, tree, where, prices=prices)


def _dense(sparse: dict[str, Any], where: str, links: int) -> Any:
    if type(sparse["links"]) is not int or sparse["links"] != links:
        raise FormatError(
            f"links = {shorten(sparse['links'])}: the fabric has {links}",
            where=pointer(where, "links"),
        )
    arrays = []
    for name in _PRICES[1:]:
        check_numbers(sparse[name], pointer(where, name))
        try:
            arrays.append(frozen(name, sparse[name], 1, np.int64))
        except InputError as exc:
            exc.where = pointer(where, name)
            raise
    starts, link, price = arrays
    if len(starts) < 1 or starts[0] != 0 or starts[-1] != len(link) or (np.diff(starts) < 0).any():
        raise FormatError(
            f"starts ascend from 0 to the number of prices, {len(link)}",
            where=pointer(where, "starts"),
        )
    if len(price) != len(link):
        raise FormatError(
            f"{len(price)} prices for {len(link)} links", where=pointer(where, "price")
        )
    for index in np.flatnonzero(price < 0)[:1]:
        place = pointer(where, "price", int(index))
        raise FormatError(f"price[{index}] = {price[index]}: must be >= 0", where=place)
    node = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    falling = (np.diff(link) <= 0) & (np.diff(node) == 0)
    for index in np.flatnonzero((link < 0) | (link >= links) | np.append(False, falling)):
        raise FormatError(
            f"link[{index}] = {link[index]}: links of a node ascend within 0 .. {links - 1}",
            where=pointer(where, "link", int(index)),
        )
    dense = np.zeros((len(starts) - 1, links), dtype=np.int64)
    dense[node, link] = price
    return dense
