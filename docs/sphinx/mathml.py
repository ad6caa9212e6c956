"""Formulas as MathML, which browsers draw by themselves, without a network and without scripts."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def visit_inline(translator: Any, node: nodes.Element) -> None:
    """Write a formula within a line."""
    translator.body.append(convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def visit_display(translator: Any, node: nodes.Element) -> None:
    """Write a formula in a line of its own."""
    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode
