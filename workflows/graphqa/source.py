"""A read-only graph in memory for agents to query, made from a database, from tables, or from lists of nodes and edges."""

from __future__ import annotations

import csv
import difflib
import gzip
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from vinelm.errors import DatasetError, VineLMError
from vinelm.io.reading import json_objects
from vinelm.workflows.graphqa.node import MOST_CHARS, Node, plain
from vinelm.workflows.graphqa.retrieval import Embed, Names
from vinelm.workflows.graphqa.sqlite_graph import read_sqlite

MOST_NODES = 1_000_000
MOST_EDGES = 5_000_000
MOST_RETURNED = 200_000
"""The maximum number of ids or values that a function returns; more is an error that tells the model to ask for less."""
CHUNK_NEIGHBOURS = 10
"""The maximum number of neighbours of each edge type that :meth:`GraphSource.info` lists, and of nodes that it describes."""
_LOG = logging.getLogger(__name__)

Ids: TypeAlias = str | Sequence[str]


class GraphError(VineLMError):
    """Raised for a call that the graph cannot answer, such as an unknown id, name, feature or edge type.

    The message is one line for the model.
    """

    default_code = "graph"


class GraphSource:
    """A graph of nodes and typed edges. Look-ups ignore an edge's direction: each end is a neighbour of the other.

    Answers depend only on the content, not on its order. Thread-safe; nothing is ever written.

    Args:
        nodes: All nodes; ids must be unique.
        edges: ``(source id, type, target id)`` of each edge; equal edges count once.
        embed: Converts each text to a vector (rows of a matrix), to find similar names; None means trigrams of characters.
        origin: The origin of the graph, for messages.

    Raises:
        DatasetError: There is no node or no edge, an id repeats, an edge names an unknown node, or there are more than
            ``MOST_NODES`` nodes or ``MOST_EDGES`` edges.
    """

    def __init__(
        self, nodes: Iterable[Node], edges: Iterable[tuple[str, str, str]], *, embed: Embed | None = None, origin: str = "graph"
    ) -> None:
        self.origin = origin
        self._nodes: dict[str, Node] = {}
        for node in nodes:
            if node.id in self._nodes:
                raise DatasetError(f"{origin}: the node id {node.id!r} repeats: ids must be unique")
            self._nodes[node.id] = node
            if len(self._nodes) > MOST_NODES:
                raise DatasetError(f"{origin}: more than {MOST_NODES:,} nodes: leave tables or kinds out")
        self._counts: Counter[str] = Counter()
        self._ends: dict[str, set[tuple[str, str]]] = {}
        self._beside = self._sorted(self._read(edges))
        if not self._nodes or not self._beside:
            raise DatasetError(f"{origin}: the graph has {len(self._nodes)} nodes and no edges: give it at least one edge")
        order = sorted(self._nodes, key=self._rank)
        self._of_kind: dict[str, list[Node]] = {}
        features: dict[str, set[str]] = {}
        for node in (self._nodes[key] for key in order):
            self._of_kind.setdefault(node.kind, []).append(node)
            features.setdefault(node.kind, {"name"}).update(node.features)
        self._features = {kind: sorted(names) for kind, names in features.items()}
        self._names = Names([(self._nodes[item].name, item) for item in order], embed)
        if self._names.repeated:
            _LOG.info("%s: %d names repeat: each stands for its most connected node", origin, self._names.repeated)

    @classmethod
    def from_sqlite(cls, path: str | Path, *, embed: Embed | None = None) -> GraphSource:
        """Return the graph of a database: a row is a node, its table the node's kind, and a foreign key an edge.

        The type of an edge is ``table-column-target``. A node's name is taken from the first of these that the table has:
        columns for first and last name, a column for a name or title, a text column with unique values, the row's key.

        Raises:
            DatasetError: The file is missing or not SQLite, or has no foreign keys.
        """
        nodes, edges = read_sqlite(Path(path))
        return cls(nodes, edges, embed=embed, origin=str(path))

    @classmethod
    def from_tables(cls, nodes: str | Path, edges: str | Path, *, embed: Embed | None = None) -> GraphSource:
        """Return the graph that two tables describe: one of nodes, and one of edges.

        The table of nodes has the columns ``id``, ``kind`` and ``name``; further columns are features. The table of edges has
        the columns ``source``, ``type`` and ``target``. Both tables are CSV, TSV (``.tsv``) or JSON lines (``.jsonl``), plain
        or gzipped (``.gz``).

        Raises:
            DatasetError: A file cannot be read, or a row is invalid; names file and line.
        """
        known = [_node(row, where) for row, where in _rows(Path(nodes), ("id", "kind", "name"))]
        linked = [(row["source"], row["type"], row["target"]) for row, _ in _rows(Path(edges), ("source", "type", "target"))]
        return cls(known, linked, embed=embed, origin=str(edges))

    @classmethod
    def from_networkx(cls, graph: Any, *, embed: Embed | None = None) -> GraphSource:
        """Return the graph with the nodes and edges of a networkx graph.

        Its nodes have the attributes ``kind`` and ``name`` (by default the id), its edges the attribute ``type``.
        """
        nodes = [
            Node(str(key), str(data.get("kind", "node")), str(data.get("name", key)), _features(data, ("kind", "name")))
            for key, data in graph.nodes(data=True)
        ]
        edges = [(str(one), str(data.get("type", "edge")), str(other)) for one, other, data in graph.edges(data=True)]
        return cls(nodes, edges, embed=embed, origin="networkx graph")

    @property
    def edge_types(self) -> tuple[str, ...]:
        """The types of edges, sorted."""
        return tuple(sorted(self._beside))

    def ends(self, edge_type: str) -> list[tuple[str, str]]:
        """Return the pairs (kind of the source, kind of the target) that edges of this type connect, sorted."""
        return sorted(self._ends[edge_type])

    def nodes_of(self, kind: str) -> list[Node]:
        """Return the nodes of a kind, the most connected first."""
        return list(self._of_kind.get(kind, ()))

    def schema(self, edges: Iterable[str] | None = None) -> str:
        """Return a text with the kinds of nodes and their features, and the edge types with the kinds that they connect.

        It has one line per kind of node and per edge type; equal graphs give equal texts.

        Args:
            edges: The types of edges to list, with the kinds of nodes that they connect; None lists all.
        """
        chosen = sorted(set(self._beside) if edges is None else set(edges) & set(self._beside))
        kinds = {kind for name in chosen for pair in self._ends[name] for kind in pair}
        kinds |= set(self._of_kind) if edges is None else set()
        lines = [f"{kind} ({', '.join(self._features[kind])})" for kind in sorted(kinds)]
        links = [f"{name}: {'; '.join(' - '.join(pair) for pair in self.ends(name))}" for name in chosen]
        return "Kinds of nodes (features):\n" + "\n".join(lines) + "\nTypes of edges:\n" + "\n".join(links)

    def digest(self) -> str:
        """Return the SHA-256 of all nodes and edges, in hex."""
        found = hashlib.sha256()
        for key in sorted(self._nodes):
            node = self._nodes[key]
            found.update(json.dumps([key, node.kind, node.name, dict(node.features)], sort_keys=True, default=str).encode())
        for name in sorted(self._beside):
            found.update(json.dumps([name, sorted(self._beside[name].items())]).encode())
        return found.hexdigest()

    def retrieve(self, text: str) -> str:
        """Return the id of the node with the name ``text``, or with the most similar name.

        Raises:
            GraphError: No name is similar; the message has the three nearest names.
        """
        if not isinstance(text, str):
            raise GraphError(f"{_short(text)} is no name: give RetrieveNode one text")
        found = self._names.find(text)
        if found is None:
            raise GraphError(self.unknown(text))
        return found

    def is_named(self, text: str) -> bool:
        """Return whether a node has the name ``text``, ignoring case."""
        return self._names.exact(text) is not None

    def unknown(self, text: str) -> str:
        """Return an error message that says that no node has the name ``text``, and lists the three most similar names."""
        nearest = ", ".join(map(repr, self._names.nearest(text, 3)))
        return f"no node is called {_short(text)}: the nearest names are {nearest}"

    def feature(self, ids: Ids, feature: str) -> Any:
        """Return a feature (``name``, ``kind`` or another) of the node with the given id; for a list of ids, a list of values.

        Raises:
            GraphError: An id or the feature is unknown.
        """
        return self._each(ids, lambda key: self._feature(key, str(feature)))

    def degree(self, ids: Ids, edge_type: str) -> Any:
        """Return how many neighbours a node has by edges of the given type; for a list of ids, a list of numbers.

        Raises:
            GraphError: An id or the type is unknown.
        """
        beside = self._by_type(edge_type)
        return self._each(ids, lambda key: len(beside.get(self._known(key).id, ())))

    def neighbours(self, ids: Ids, edge_type: str) -> list[str]:
        """Return the ids of the neighbours that a node has by edges of the given type, the most connected first.

        For a list of ids, return the neighbours of the first node, then those of the second, and so on. A neighbour of two
        nodes appears twice, so that it can be counted.

        Raises:
            GraphError: An id or the type is unknown, or there are more than ``MOST_RETURNED`` neighbours.
        """
        beside = self._by_type(edge_type)
        found: list[str] = []
        for key in _listed(ids):
            found += beside.get(self._known(key).id, ())
            if len(found) > MOST_RETURNED:
                raise GraphError(f"more than {MOST_RETURNED:,} neighbours by {edge_type}: ask for fewer ids at once")
        return found

    def info(self, ids: Ids) -> str:
        """Return a JSON line for each of the first 10 nodes, with its features and its neighbours.

        For each edge type, the line has the number of neighbours and the names of the 10 most connected ones.

        The same nodes always give the same text, whatever was asked before, so that prompts that contain it can be cached.
        """
        return "\n".join(self._chunk(self._known(key)) for key in _listed(ids)[:CHUNK_NEIGHBOURS])

    def functions(self, edges: Iterable[str] | None = None) -> dict[str, Callable[..., Any]]:
        """Return the functions that snippets may call, by name.

        They follow only edges of the types in ``edges``; None means all types.
        """
        allowed = None if edges is None else frozenset(edges)

        def shown(edge_type: str) -> str:
            if allowed is not None and isinstance(edge_type, str) and edge_type in set(self._beside) - allowed:
                raise GraphError(f"the edge type {edge_type} is not among those of the plan: {', '.join(sorted(allowed))}")
            return edge_type

        return {
            "RetrieveNode": self.retrieve,
            "NodeFeature": self.feature,
            "NodeDegree": lambda ids, edge_type: self.degree(ids, shown(edge_type)),
            "NeighbourCheck": lambda ids, edge_type: self.neighbours(ids, shown(edge_type)),
            "NodeInfo": self.info,
        }

    def _read(self, edges: Iterable[tuple[str, str, str]]) -> dict[str, dict[str, set[str]]]:
        beside: dict[str, dict[str, set[str]]] = {}
        total = 0
        for one, name, other in sorted(edges):  # the schema must not depend on their order
            for end in (one, other):
                if end not in self._nodes:
                    raise DatasetError(f"{self.origin}: an edge {name!r} names the unknown node {end!r}: add it to the nodes")
            by_node = beside.setdefault(name, {})
            if other in by_node.get(one, ()):
                continue
            by_node.setdefault(one, set()).add(other)
            by_node.setdefault(other, set()).add(one)
            self._counts.update((one, other))
            self._ends.setdefault(name, set()).add((self._nodes[one].kind, self._nodes[other].kind))
            total += 1
            if total > MOST_EDGES:
                raise DatasetError(f"{self.origin}: more than {MOST_EDGES:,} edges: leave edge types out")
        return beside

    def _sorted(self, beside: dict[str, dict[str, set[str]]]) -> dict[str, dict[str, tuple[str, ...]]]:
        return {
            name: {key: tuple(sorted(others, key=self._rank)) for key, others in by_node.items()}
            for name, by_node in beside.items()
        }

    def _rank(self, key: str) -> tuple[int, str]:
        return -self._counts[key], key

    def _known(self, key: object) -> Node:
        node = self._nodes.get(key) if isinstance(key, str) else None
        if node is None:
            raise GraphError(f"no node has the id {_short(key)}: take ids from RetrieveNode or NeighbourCheck")
        return node

    def _by_type(self, edge_type: object) -> dict[str, tuple[str, ...]]:
        if not isinstance(edge_type, str) or edge_type not in self._beside:
            near = difflib.get_close_matches(str(edge_type)[:MOST_CHARS], self.edge_types, 3, 0.0)
            raise GraphError(f"no edge type {_short(edge_type)}: the nearest are {', '.join(near)}")
        return self._beside[edge_type]

    def _feature(self, key: str, name: str) -> Any:
        node = self._known(key)
        if name in ("name", "kind", "id"):
            return getattr(node, name)
        if name not in self._features[node.kind]:
            raise GraphError(f"{node.kind} has no feature {_short(name)}: it has {', '.join(self._features[node.kind])}")
        return node.features.get(name)

    def _each(self, ids: Ids, of: Callable[[str], Any]) -> Any:
        if isinstance(ids, str):
            return of(ids)
        listed = _listed(ids)
        if len(listed) > MOST_RETURNED:
            raise GraphError(f"more than {MOST_RETURNED:,} ids: ask for fewer at once")
        return [of(key) for key in listed]

    def _chunk(self, node: Node) -> str:
        beside: dict[str, Any] = {}
        for name in self.edge_types:
            others = self._beside[name].get(node.id, ())
            if others:
                shown = [self._nodes[other].name for other in others[:CHUNK_NEIGHBOURS]]
                beside[name] = {"count": len(others), "first": shown}
        chunk = {"id": node.id, "kind": node.kind, "name": node.name, "features": dict(node.features), "edges": beside}
        return json.dumps(chunk, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)


def _listed(ids: Ids) -> list[str]:
    if isinstance(ids, str):
        return [ids]
    if not isinstance(ids, Iterable):
        raise GraphError(f"{_short(ids)} is no id: give an id or a list of ids")
    return list(ids)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MOST_CHARS else text[:MOST_CHARS] + "…"


def _features(row: Mapping[str, Any], but: Sequence[str]) -> dict[str, Any]:
    return {str(key): plain(value) for key, value in row.items() if key not in but}


def _node(row: Mapping[str, Any], where: str) -> Node:
    key, kind, name = (str(row[column]) for column in ("id", "kind", "name"))
    if not key or not kind or not name:
        raise DatasetError(f"{where}: 'id', 'kind' and 'name' of a node must not be empty")
    return Node(key, kind, name, _features(row, ("id", "kind", "name")))


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield (row, its ``FILE:LINE``) for each row of a table; raise :class:`DatasetError` if one of ``columns`` is missing."""
    names = path.name.removesuffix(".gz")
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8", newline="") as lines:
            if names.endswith((".jsonl", ".json")):
                numbered: Iterable[tuple[int, dict[str, Any]]] = json_objects(lines, path)
            else:
                reader = csv.DictReader(lines, delimiter="\t" if names.endswith(".tsv") else ",")
                numbered = ((reader.line_num, row) for row in reader)
            for number, row in numbered:
                lacking = [column for column in columns if row.get(column) is None]
                if lacking:
                    raise DatasetError(f"{path}:{number}: no {lacking[0]!r}: every row needs {', '.join(columns)}")
                yield row, f"{path}:{number}"
    except (OSError, UnicodeDecodeError, EOFError, csv.Error) as error:
        raise DatasetError(f"{path}: cannot read the table: {error}") from error
