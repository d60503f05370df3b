"""A graph from a database, from tables and from networkx: what it tells, its order, its limits, and what it refuses."""

import gzip
import json
import pickle
import sqlite3
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

from vinelm.errors import DatasetError
from vinelm.workflows.graphqa import Node
from vinelm.workflows.graphqa import source as module
from vinelm.workflows.graphqa.source import GraphError, GraphSource

NODES = [
    Node("d1", "Disease", "anemia", {"rare": False}),
    Node("d2", "Disease", "iron deficiency anemia"),
    Node("c1", "Compound", "Iron"),
    Node("c2", "Compound", "Zinc"),
    Node("c3", "Compound", "anemia"),
]
EDGES = [("c1", "treats", "d1"), ("c1", "treats", "d2"), ("c2", "treats", "d1"), ("d1", "resembles", "d2")]


@pytest.fixture(scope="module")
def graph():
    return GraphSource(NODES, EDGES)


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            """CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, city TEXT);
            CREATE TABLE "order" (nr INTEGER PRIMARY KEY, day TEXT, customer_id INTEGER REFERENCES customer, total REAL);
            CREATE TABLE line (
                order_nr INTEGER REFERENCES "order"(nr), place INTEGER, item TEXT, PRIMARY KEY (order_nr, place));
            INSERT INTO customer VALUES (1, 'Ada', 'Bern'), (2, 'Bob', NULL);
            INSERT INTO "order" VALUES (7, '2026-01-02', 1, 9.5), (8, '2026-01-03', 1, 2.0), (9, '2026-01-03', 99, 1.0);
            INSERT INTO line VALUES (7, 1, 'pen'), (7, 2, 'ink'), (8, 1, 'pen');"""
        )
    connection.close()
    return path


def test_look_ups_have_no_direction_and_an_order(graph):
    assert graph.neighbours("d1", "treats") == ["c1", "c2"]
    assert graph.neighbours("c1", "treats") == ["d1", "d2"]
    assert graph.neighbours(["d1", "d2"], "treats") == ["c1", "c2", "c1"]
    assert graph.degree("d1", "treats") == 2
    assert graph.degree(["d1", "c2", "c3"], "resembles") == [1, 0, 0]
    assert graph.feature(["d1", "c1"], "name") == ["anemia", "Iron"]
    assert (graph.feature("d1", "kind"), graph.feature("d2", "rare")) == ("Disease", None)


def test_it_does_not_depend_on_the_order_of_what_came(graph):
    other = GraphSource(NODES[::-1], [*EDGES[::-1], EDGES[0], ("d1", "treats", "c1")])
    assert other.digest() == graph.digest()
    assert other.schema() == graph.schema()
    assert other.info(["d1", "c1"]) == graph.info(["d1", "c1"])
    assert GraphSource(NODES, EDGES[1:]).digest() != graph.digest()


def test_a_name_is_found_exactly_or_by_likeness(graph):
    assert graph.retrieve("Iron") == "c1"
    assert graph.retrieve("IRON DEFICIENCY anemia") == "d2"
    assert graph.retrieve("iron deficency anaemia") == "d2"
    assert graph.retrieve("anemia") == "d1"  # two have the name: the most connected one
    assert graph._names.repeated == 1
    with pytest.raises(GraphError, match="no node is called 'qqq': the nearest names are '"):
        graph.retrieve("qqq")
    assert graph.unknown("irn").endswith("the nearest names are 'Iron', 'iron deficiency anemia', 'anemia'")
    again = pickle.loads(pickle.dumps(graph))  # noqa: S301 - what this test wrote
    assert again.retrieve("iron deficency anaemia") == "d2"
    assert again._names.repeated == 1


def test_the_users_embedder_takes_the_place_of_trigrams():
    def embed(texts):
        return np.array([[1.0, 0.0] if "n" in text else [0.0, 1.0] for text in texts])

    graph = GraphSource([Node("a", "k", "wolf"), Node("b", "k", "hen")], [("a", "eats", "b")], embed=embed)
    assert graph.retrieve("plane") == "b"
    assert graph.retrieve("tree") == "a"


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda graph: graph.neighbours("x9", "treats"), "no node has the id 'x9'"),
        (lambda graph: graph.neighbours(5, "treats"), "5 is no id"),
        (lambda graph: graph.neighbours([["d1"]], "treats"), "no node has the id"),
        (lambda graph: graph.degree("d1", "treat"), "no edge type 'treat': the nearest are treats, "),
        (lambda graph: graph.degree("d1", ["treats"]), "no edge type"),
        (lambda graph: graph.feature("c1", "rare"), "Compound has no feature 'rare': it has name"),
        (lambda graph: graph.functions(["treats"])["NodeDegree"]("d1", "resembles"), "not among those of the plan: treats"),
    ],
)
def test_what_it_cannot_answer_is_one_line(graph, ask, said):
    with pytest.raises(GraphError, match=said) as caught:
        ask(graph)
    assert "\n" not in str(caught.value)


def test_whatever_a_snippet_gives_is_the_snippets_mistake(graph):
    odd = (None, 5, True, 1.5, [], {}, [None], [["d1"]], {"d1": 1}, "", "x" * 5000, "\ud800", b"d1", object(), ["d1"] * 3)
    for edges in (None, ["treats"]):
        for name, fn in graph.functions(edges).items():
            rest = (
                [()] if name in ("RetrieveNode", "NodeInfo") else [(value,) for value in (*odd, "treats", "resembles", "name")]
            )
            for value in (*odd, "d1"):
                for others in rest:
                    try:
                        fn(value, *others)
                    except GraphError as error:
                        assert len(str(error)) < 1000  # noqa: PT017 - most are errors, and none is of another kind


def test_what_is_returned_has_a_limit(graph, monkeypatch):
    monkeypatch.setattr(module, "MOST_RETURNED", 3)
    assert len(graph.neighbours(["d1", "d2"], "treats")) == 3
    with pytest.raises(GraphError, match="more than 3 neighbours"):
        graph.neighbours(["d1", "d1"], "treats")
    with pytest.raises(GraphError, match="more than 3 ids"):
        graph.feature(["d1"] * 4, "name")
    assert len(graph.info(["d1"] * 50).splitlines()) == module.CHUNK_NEIGHBOURS


def test_the_schema_can_be_cut_to_edge_types(graph):
    assert graph.schema().splitlines()[-1] == "treats: Compound - Disease"
    assert "resembles" not in graph.schema(["treats", "unknown"])
    assert "Compound" not in graph.schema(["resembles"])


def test_rows_are_nodes_and_foreign_keys_edges(shop):
    before = shop.read_bytes()
    graph = GraphSource.from_sqlite(shop)
    assert graph.edge_types == ("line-order_nr-order", "order-customer_id-customer")
    assert graph.neighbours(graph.retrieve("Ada"), "order-customer_id-customer") == ["order:7", "order:8"]
    assert graph.neighbours("order:9", "order-customer_id-customer") == []  # its customer does not exist
    assert sorted(graph.feature(graph.neighbours("order:7", "line-order_nr-order"), "item")) == ["ink", "pen"]
    assert graph.feature("line:7/2", "name") == "line:7/2"  # two lines are for a pen: items name no line
    assert graph.feature("order:7", "total") == 9.5
    assert graph.feature("customer:1", "city") == "Bern"
    assert {node.id for node in graph.nodes_of("line")} == {"line:7/1", "line:7/2", "line:8/1"}
    assert shop.read_bytes() == before
    assert list(shop.parent.iterdir()) == [shop]


def test_tables_may_be_tsv_csv_or_json_lines(tmp_path):
    with gzip.open(tmp_path / "n.tsv.gz", "wt") as file:
        file.write("id\tkind\tname\tcolour\na\tk\tA\tred\nb\tk\tB\t\n")
    (tmp_path / "e.csv").write_text("source,type,target\na,likes,b\n")
    (tmp_path / "e.jsonl").write_text(json.dumps({"source": "a", "type": "likes", "target": "b"}) + "\n")
    graphs = [GraphSource.from_tables(tmp_path / "n.tsv.gz", tmp_path / name) for name in ("e.csv", "e.jsonl")]
    assert graphs[0].digest() == graphs[1].digest()
    assert graphs[0].feature("a", "colour") == "red"


def test_a_networkx_graph_is_taken_as_it_is():
    pairs = [("a", {"kind": "k", "name": "A", "x": 1}), ("b", {})]
    graph = SimpleNamespace(nodes=lambda data: pairs, edges=lambda data: [("a", "b", {"type": "likes"}), ("b", "a", {})])
    read = GraphSource.from_networkx(graph)
    assert (read.edge_types, read.feature("a", "x"), read.feature("b", "kind")) == (("edge", "likes"), 1, "node")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: GraphSource([], []), "0 nodes and no edges"),
        (lambda path: GraphSource(NODES, []), "5 nodes and no edges"),
        (lambda path: GraphSource([*NODES, NODES[0]], EDGES), "the node id 'd1' repeats"),
        (lambda path: GraphSource(NODES, [("d1", "treats", "zz")]), "names the unknown node 'zz'"),
        (lambda path: GraphSource.from_sqlite(path / "none.db"), "no such file"),
        (lambda path: GraphSource.from_sqlite(path / "text.db"), "cannot read the database"),
        (lambda path: GraphSource.from_sqlite(path / "bare.db"), "declares no foreign keys"),
        (lambda path: GraphSource.from_tables(path / "no.csv", path / "e.csv"), "cannot read the table"),
        (lambda path: GraphSource.from_tables(path / "lacks.csv", path / "e.csv"), "lacks.csv:2: no 'name'"),
        (lambda path: GraphSource.from_tables(path / "empty.csv", path / "e.csv"), "empty.csv:2: 'id', 'kind' and 'name'"),
    ],
)
def test_bad_input_is_one_line(tmp_path, make, said):
    (tmp_path / "text.db").write_text("no database, by far")
    with closing(sqlite3.connect(tmp_path / "bare.db")) as connection, connection:
        connection.execute("CREATE TABLE t (a INTEGER)")
    connection.close()
    (tmp_path / "lacks.csv").write_text("id,kind\na,k\n")
    (tmp_path / "empty.csv").write_text("id,kind,name\na,k,\n")
    with pytest.raises(DatasetError, match=said) as caught:
        make(tmp_path)
    assert "\n" not in str(caught.value)
