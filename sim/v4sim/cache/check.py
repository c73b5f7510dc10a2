"""The laws of a span tree, checked node by node. For tests and `--check`: slow, reads everything."""

from __future__ import annotations

from v4sim.cache.node import SpanNode
from v4sim.cache.tree import SpanTree
from v4sim.errors import LawError


def resident(tree: SpanTree) -> list[SpanNode]:
    """Every resident node, children before parents within a span."""
    found: dict[int, SpanNode] = {}
    for lowest in tree.lowest():
        node: SpanNode | None = lowest
        while node is not None and id(node) not in found:
            found[id(node)] = node
            node = node.parent
    return list(found.values())


def check_tree(tree: SpanTree) -> None:
    """Raise LawError if a stored total disagrees with the nodes, or a node hangs in the air."""
    nodes = resident(tree)
    totals = {
        "kv_tokens": sum(n.tokens for n in nodes),
        "protected_tokens": sum(n.tokens for n in nodes if n.locks),
        "swa_tokens": sum(n.swa_tokens for n in nodes),
        "swa_evictable_tokens": sum(
            n.swa_tokens - (tree.windows.read_tokens(n) if n.swa_locks else 0) for n in nodes
        ),
    }
    for name, expected in totals.items():
        if getattr(tree, name) != expected:
            raise LawError(f"cache tree: {name} is {getattr(tree, name)}, its nodes add up to {expected}")
    for node in nodes:
        parent = node.parent
        begin = parent.end if parent is not None else 0
        if not node.alive or node.start != begin or node.end <= node.start:
            raise LawError(f"cache tree: {node!r} does not continue its parent {parent!r}")
        if not node.start <= node.swa_start <= node.end:
            raise LawError(f"cache tree: {node!r} holds a window outside itself")
    linked = sorted(id(node) for node in tree.windows)
    if linked != sorted(id(node) for node in nodes if node.swa_tokens):
        raise LawError("cache tree: the nodes that hold a window are not the ones linked to lose it")
