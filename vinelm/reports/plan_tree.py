"""Converts a plan to a tree of its steps, with the share of the requests that reaches each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from vinelm.reports.budgets import PlanNode, PlanTree

MOST_NODES = 22
"""How many steps a tree shows: those that most requests take."""
_LEAST = 1e-3
_Key = tuple[Any, ...]


def plan_tree(decision: Any) -> PlanTree:
    """Return a plan as a tree of its steps, without its rarest steps if it has many.

    ``decision`` is a fixed plan, or what the planner has decided at the start of a request.
    """
    roots = _grouped([_node(step, 1.0) for step in decision.steps])
    shares = sorted((node.share for node in _walk(roots)), reverse=True)
    least = max(shares[min(MOST_NODES, len(shares)) - 1], _LEAST) if shares else 0.0
    kept = _above(roots, least)
    return PlanTree(roots=kept, left_out=len(shares) - sum(1 for _ in _walk(kept)))


def _node(step: Mapping[str, Any], reach: float) -> PlanNode:
    """Return a step, given as one of the nested dicts of :attr:`Plan.steps`, as a node with the steps after it as children.

    ``reach`` is the share of all requests that reach the previous step. If some requests end after this step although
    others continue, a child for the end is added.
    """
    share, model = reach * float(step["probability"]), step["model"]
    stage, _, seen = step["stage"].partition(" [")  # in a trie of outcomes, the name of a stage contains what was seen
    labels = (seen.removesuffix("]"),) if seen else ()
    if model is None:
        return PlanNode(stage="", model=None, when="", seen=labels, share=share)
    children = [_node(child, share) for child in step["steps"]]
    left = share - sum(child.share for child in children)
    if children and left > _LEAST * share:
        children.append(PlanNode(stage="", model=None, when="", seen=(), share=left))
    return PlanNode(stage=stage, model=model, when="", seen=labels, share=share, children=tuple(children))


def _grouped(nodes: Sequence[PlanNode]) -> tuple[PlanNode, ...]:
    """Return the nodes, those with the largest share of requests first and the end of the request last.

    Nodes with the same stage, model and later steps are merged. If all nodes end the request, the result is empty.
    """
    groups: dict[_Key, list[PlanNode]] = {}
    for node in nodes:
        groups.setdefault(_key(node), []).append(node)
    if len(groups) == 1 and nodes[0].model is None:
        return ()
    seen = {key: tuple(dict.fromkeys(label for one in alike for label in one.seen)) for key, alike in groups.items()}
    merged = [
        replace(
            alike[0],
            when=_when(seen[key], [seen[other] for other in groups if other != key and _are_rivals(key, other)]),
            # Requests that end by the application's own rule have shown nothing that the plan could use.
            seen=seen[key] if all(one.seen for one in alike) else (),
            share=sum(one.share for one in alike),
            children=_grouped([child for one in alike for child in one.children]),
        )
        for key, alike in groups.items()
    ]
    return tuple(sorted(merged, key=lambda node: (node.model is None, -node.share)))


def _are_rivals(one: _Key, other: _Key) -> bool:
    """Return whether two nodes need a condition to tell them apart: both have the same stage, or one ends the request.

    ``one`` and ``other`` are the nodes' keys (stage, model, keys of the later steps).
    """
    return one[0] == other[0] or one[1] is None or other[1] is None


def _when(seen: tuple[str, ...], others: Sequence[tuple[str, ...]]) -> str:
    """Return a short condition for a step that follows after the outcomes ``seen``, and not after the outcomes ``others``.

    An outcome is a text of words separated by commas, such as ``failed, empty``. The condition has the fewest words
    that every outcome in ``seen`` has, and no outcome in ``others`` has completely. If there are no such words, it is the
    first outcome in ``seen`` and the number of the other outcomes in ``seen``. It is empty if ``seen`` or ``others`` has no
    outcomes.
    """
    if not seen or not any(others):
        return ""
    words = [set(label.split(", ")) for label in seen]
    shared = [word for word in seen[0].split(", ") if all(word in each for each in words)]
    rest = [set(label.split(", ")) for labels in others for label in labels]
    for count in range(1, len(shared) + 1):
        for some in combinations(shared, count):
            if not any(set(some) <= each for each in rest):
                return ", ".join(some)
    return seen[0] if len(seen) == 1 else f"{seen[0]} and {len(seen) - 1} more"


def _key(node: PlanNode) -> _Key:
    later = frozenset(_key(child) for child in node.children if child.model is not None)
    return node.stage, node.model, later


def _walk(nodes: Sequence[PlanNode]) -> Iterator[PlanNode]:
    for node in nodes:
        yield node
        yield from _walk(node.children)


def _above(nodes: Sequence[PlanNode], least: float) -> tuple[PlanNode, ...]:
    return tuple(replace(one, children=_above(one.children, least)) for one in nodes if one.share >= least)
