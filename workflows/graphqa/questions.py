"""The bundled questions: drawn from templates over the demo databases, with programs that compute their labels."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeAlias

from vinelm.requests.workflow import Request
from vinelm.workflows.graphqa.node import Node
from vinelm.workflows.graphqa.source import GraphSource

FROM_EACH = 8
"""The number of questions that are drawn from each template for each graph."""
MOST_NAMES = 30
"""The maximum number of names in an answer; questions with more are left out."""
_TRIES = 60
Walks: TypeAlias = dict[str, list[tuple[str, str]]]
_LIST = "print(', '.join(sorted(set(NodeFeature({ids}, 'name')))))"
_MOST = """count = {{}}
for n in {ids}:
    count[n] = count.get(n, 0) + 1
best = max(count.values())
print(', '.join(sorted(set(NodeFeature([n for n in count if count[n] == best], 'name')))))"""


def drawn(sources: Mapping[str, GraphSource]) -> tuple[Request, ...]:
    """Return questions about each graph, with their answers, made from templates.

    The templates ask for counts, and for nodes one or two edges away. They also ask for nodes that two paths lead to, and for
    the node that most paths lead to. The same graphs give the same questions. The result alternates between the
    templates and between the graphs.
    """
    rows: list[tuple[tuple[int, int, str], dict[str, Any]]] = []
    for graph in sorted(sources):
        walks = _walks(sources[graph])
        for place, template in enumerate(_TEMPLATES):
            rng = random.Random(f"{graph}/{place}")
            seen: set[str] = set()
            for _ in range(_TRIES):
                row = template(sources[graph], walks, rng)
                if row is not None and row["question"] not in seen and len(seen) < FROM_EACH:
                    rows.append(((len(seen), place, graph), row | {"graph": graph}))
                    seen.add(row["question"])
    rows.sort(key=lambda item: item[0])
    return tuple(Request(f"{row['graph']}-{place}-{number}", row) for (number, place, _), row in rows)


def _walks(source: GraphSource) -> Walks:
    """Return, for each kind of node, the (type of edge, kind at the other end) pairs that start there.

    Edges between nodes of the same kind are left out.
    """
    found: Walks = {}
    for name in source.edge_types:
        for one, other in source.ends(name):
            if one != other:
                found.setdefault(one, []).append((name, other))
                found.setdefault(other, []).append((name, one))
    return found


def _count(source: GraphSource, walks: Walks, rng: random.Random) -> dict[str, Any] | None:
    start, ((edge, kind),) = _path(source, walks, rng, 1)
    degree = source.degree(start.id, edge)
    program = f"print(NodeDegree(RetrieveNode({start.name!r}), {edge!r}))"
    if degree < 2:
        return None
    question = f"How many nodes of kind {kind} are linked to the {start.kind} {start.name} by {_way(edge)}?"
    return _row(question, str(degree), program, "direct", start)


def _one_hop(source: GraphSource, walks: Walks, rng: random.Random) -> dict[str, Any] | None:
    start, ((edge, kind),) = _path(source, walks, rng, 1)
    program = _LIST.format(ids=f"NeighbourCheck(RetrieveNode({start.name!r}), {edge!r})")
    answer = _names(source, source.neighbours(start.id, edge))
    question = f"Which {kind} is linked to the {start.kind} {start.name} by {_way(edge)}?"
    return answer and _row(question, answer, program, "direct", start)


def _two_hops(source: GraphSource, walks: Walks, rng: random.Random) -> dict[str, Any] | None:
    start, ((first, middle), (second, kind)) = _path(source, walks, rng, 2)
    by = f"{_way(first)}, {_way(second)}"
    program = _LIST.format(ids=f"NeighbourCheck(NeighbourCheck(RetrieveNode({start.name!r}), {first!r}), {second!r})")
    answer = _names(source, source.neighbours(source.neighbours(start.id, first), second))
    question = f"Which {kind} is linked with the {start.kind} {start.name} through a {middle} ({by})?"
    return answer and _row(question, answer, program, "multi_hop", start)


def _both(source: GraphSource, walks: Walks, rng: random.Random) -> dict[str, Any] | None:
    start, ((first, middle), (second, kind)) = _path(source, walks, rng, 2)
    by = f"{_way(first)}, {_way(second)}"
    beside = [node for node in _named(source, start.kind) if node is not start]
    if not beside:
        return None
    other = rng.choice(beside)
    ids = [source.neighbours(source.neighbours(node.id, first), second) for node in (start, other)]
    walk = "NeighbourCheck(NeighbourCheck(RetrieveNode({!r}), {!r}), {!r})"
    one, two = (walk.format(node.name, first, second) for node in (start, other))
    answer = _names(source, sorted(set(ids[0]) & set(ids[1])))
    question = f"Which {kind} is linked, each time through a {middle}, with both {start.name} and {other.name} ({by})?"
    return answer and _row(question, answer, _LIST.format(ids=f"list(set({one}) & set({two}))"), "multi_hop", start, other)


def _most(source: GraphSource, walks: Walks, rng: random.Random) -> dict[str, Any] | None:
    start, ((first, middle), (second, kind)) = _path(source, walks, rng, 2)
    by = f"{_way(first)}, {_way(second)}"
    count = Counter(source.neighbours(source.neighbours(start.id, first), second))
    if not count or max(count.values()) < 2:
        return None
    answer = _names(source, [key for key in count if count[key] == max(count.values())])
    program = _MOST.format(ids=f"NeighbourCheck(NeighbourCheck(RetrieveNode({start.name!r}), {first!r}), {second!r})")
    question = f"With which {kind} is the {start.kind} {start.name} linked through the most nodes of kind {middle} ({by})?"
    return answer and _row(question, answer, program, "multi_hop", start) | {"any_of": True}


def _path(source: GraphSource, walks: Walks, rng: random.Random, hops: int) -> tuple[Node, list[tuple[str, str]]]:
    """Return a random node that can be found by its name, and a random sequence of ``hops`` steps from that node's kind.

    Each step is a pair: an edge's type, and the kind of the nodes to which the edge leads. If possible, no step has the same
    type of edge as the step before.
    """
    kind = rng.choice([kind for kind in sorted(walks) if _named(source, kind)])
    start = rng.choice(_named(source, kind))
    way: list[tuple[str, str]] = []
    for _ in range(hops):
        onward = [step for step in walks[kind] if not way or step[0] != way[-1][0]] or walks[kind]
        way.append(rng.choice(onward))
        kind = way[-1][1]
    return start, way


def _named(source: GraphSource, kind: str) -> list[Node]:
    """Return those of the 12 most connected nodes of a kind that can be looked up by a name other than their id."""
    return [node for node in source.nodes_of(kind)[:12] if node.name != node.id and source.retrieve(node.name) == node.id]


def _names(source: GraphSource, ids: list[str]) -> Any:
    """Return the names of these nodes, joined by commas.

    None if there are no names or too many, or if a name contains a comma.
    """
    names = sorted(set(source.feature(ids, "name")))
    return ", ".join(names) if 0 < len(names) <= MOST_NAMES and not any("," in name for name in names) else None


def _row(question: str, answer: str, program: str, arm: str, *about: Node) -> dict[str, Any]:
    return {"question": question, "answer": answer, "program": program, "arm": arm, "entities": [node.name for node in about]}


def _way(edge: str) -> str:
    return edge.split("-")[1].removesuffix("_id").replace("_", " ")


_TEMPLATES = (_count, _two_hops, _one_hop, _most, _both)
