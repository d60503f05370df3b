"""`vinelm trie show`: what a file holds, as tables and as JSON."""

import json

import pytest
from science.recorded_table import RecordedTable

from vinelm.cli.main import main
from vinelm.evaluation.plans.path_plans import frontier_nodes
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.vinefile import save_trie


@pytest.fixture
def annotated(catalog) -> AnnotatedTrie:
    import numpy as np

    rng = np.random.default_rng(0)
    template = Template((Stage("generate"), Loop((Stage("repair"),), times=2))).bind(tuple(catalog))
    trie = Trie.from_template(template)
    shape = (30, len(trie))
    table = RecordedTable(
        template=template, catalog=catalog, trie=trie, request_ids=tuple(f"q{i}" for i in range(30)),
        success=rng.random(shape) < 0.5, stopped=rng.random(shape) < 0.5, cost_usd=rng.lognormal(-6, 1, shape),
        latency_s=rng.lognormal(0, 0.5, shape),
    )  # fmt: skip
    return table.annotate()


def test_the_frontier_is_what_no_path_beats(annotated):
    found = frontier_nodes(annotated, "cost")
    cost, accuracy = annotated.path_cost_usd, annotated.accuracy
    ends = [u for u in range(1, len(annotated.trie)) if annotated.trie.answerable[u]]
    for node in ends:
        beaten = any(cost[v] <= cost[node] and accuracy[v] > accuracy[node] for v in ends)
        beaten = beaten or any(cost[v] < cost[node] and accuracy[v] == accuracy[node] for v in ends)
        assert (node in found) == (not beaten)
    assert [cost[u] for u in found] == sorted(cost[u] for u in found)


def test_show_prints_provenance_prices_and_the_frontier(annotated, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    save_trie("t.vine", annotated)
    assert main(["trie", "show", "t.vine"]) == 0
    text = capsys.readouterr().out
    for words in ("t.vine: 14 paths", "exact", "2026-01-01", "Pareto frontier of accuracy and cost: ", "Paths by depth"):
        assert words in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_json_holds_the_whole_manifest(annotated, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_trie("t.vine", annotated)
    assert main(["trie", "show", "t.vine", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["meta"]["estimator"] == "exact"
    assert [d["observations"] for d in found["depths"]] == [
        int(annotated.count[level].sum()) for level in annotated.trie.levels[1:]
    ]
    best = found["frontier"][-1]
    assert best["accuracy"] == pytest.approx(float(annotated.accuracy[1:].max()))
    assert best["accuracy_half_width90"] is None
    assert best["latency_p90_s"] > best["latency_s"]
    assert [model["name"] for model in found["catalog"]["model"]] == list(annotated.catalog)


def test_a_file_that_is_no_trie_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.vine").write_bytes(b"nothing")
    assert main(["trie", "show", "t.vine"]) == 2
    assert "t.vine" in capsys.readouterr().err
    assert main(["trie", "show", "none.vine"]) == 2
