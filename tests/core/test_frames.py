"""Data frames and notebook tables of tries and tables."""

import builtins
from dataclasses import replace

import numpy as np
import pytest
from kit.tables import random_table

from vinelm import ConfigError
from vinelm.io.frames import data_frame, html_table

pandas = pytest.importorskip("pandas")


def test_a_trie_has_one_row_per_node():
    annotated = random_table(0, n_requests=20, n_models=2, depth=3).annotate()
    frame = annotated.to_pandas()
    assert len(frame) == annotated.trie.n_nodes
    assert frame.index.name == "node"
    for node in (1, 7, annotated.trie.n_nodes):
        row = frame.loc[node]
        assert row["prefix"] == annotated.trie.prefix(node)
        assert (row["stage"], row["model"]) == list(annotated.trie.edges(node))[-1]
        assert row["depth"] == len(row["prefix"])
        assert row["accuracy"] == annotated.accuracy[node]
        assert row["cost_var_usd2"] == annotated.cost_var[node]
    assert "path_cost_se_usd" not in frame
    assert "path_cost_se_usd" in replace(annotated, cost_se=np.zeros(len(annotated.trie))).to_pandas()


def test_a_recorded_table_has_one_row_per_request_and_node():
    table = random_table(1, n_requests=5, n_models=2, depth=2)
    frame = table.to_pandas()
    assert len(frame) == 5 * table.trie.n_nodes
    row = frame[(frame["request_id"] == "q3") & (frame["node"] == 4)].iloc[0]
    assert row["prefix"] == table.trie.prefix(4)
    assert row["cost_usd"] == table.cost_usd[3, 4]
    assert row["success"] == table.success[3, 4]
    assert row["reached"] == table.reached[3, 4]
    assert not frame["failed"].any()


def test_without_pandas_the_error_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "pandas":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"vinelm\[pandas\]") as caught:
        data_frame({"a": [1]})
    assert "\n" not in str(caught.value)
    assert caught.value.code == "missing-extra"


def test_html_tables_escape_every_text():
    found = html_table("<script>", ("<b>",), [("<img src=x>",)])
    assert "<script" not in found
    assert "<b>" not in found
    assert "<img" not in found


def test_a_trie_shows_its_frontier_in_a_notebook():
    annotated = random_table(0, n_requests=200, n_models=3, depth=3).annotate()
    frontier = annotated.reading._frontier()
    assert frontier[0] == max(np.flatnonzero(annotated.trie.answerable), key=lambda node: annotated.accuracy[node])
    for node in frontier:  # nobody is as accurate for less
        rivals = annotated.trie.answerable & (annotated.path_cost_usd < annotated.path_cost_usd[node])
        assert not (annotated.accuracy[rivals] >= annotated.accuracy[node]).any()
    shown = annotated._repr_html_()
    assert shown.count("<tr>") == 1 + min(len(frontier), 10)
    assert " &gt; ".join(annotated.trie.prefix(frontier[0])) in shown
    assert len(shown) < 5000
