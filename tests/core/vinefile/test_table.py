"""A trie's table holds what the trie holds, in every format."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from tests.core.vinefile.test_file import make_trie
from vinelm.errors import ConfigError, TrieFileError
from vinelm.vinefile import export_trie


def test_csv_has_a_row_per_node_and_exact_numbers(tmp_path):
    trie = make_trie()
    assert export_trie(trie, tmp_path / "t.csv") == trie.trie.n_nodes
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [tuple(json.loads(row["prefix"])) for row in rows] == [trie.trie.prefix(n) for n in range(1, len(trie.trie))]
    assert [float(row["accuracy"]) for row in rows] == trie.accuracy[1:].tolist()
    assert [float(row["path_cost_usd"]) for row in rows] == trie.path_cost_usd[1:].tolist()
    assert {row["answerable"] for row in rows} == {"1"}
    assert "path_cost_se_usd" not in rows[0]  # this trie has no error of its dollars


def test_json_also_has_provenance_and_prices(tmp_path):
    trie = make_trie()
    unknown = np.array([np.nan, *trie.accuracy_se[1:]])
    unknown[2] = np.nan
    export_trie(replace(trie, accuracy_se=unknown), tmp_path / "t.json")
    found = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert found["meta"] == dict(trie.meta)
    assert [model["name"] for model in found["catalog"]["model"]] == ["small", "large"]
    assert found["nodes"][0]["prefix"] == ["small"]
    assert found["nodes"][1]["accuracy_se"] is None
    assert found["nodes"][2]["accuracy_se"] == trie.accuracy_se[3]


def test_parquet_keeps_types(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    trie = make_trie()
    export_trie(trie, tmp_path / "t.parquet")
    table = parquet.read_table(tmp_path / "t.parquet")
    assert table.column("prefix").to_pylist()[:2] == [["small"], ["small", "small"]]
    assert table.column("count").to_pylist() == trie.count[1:].tolist()
    assert json.loads(table.schema.metadata[b"vinelm.trie"])["meta"]["estimator"] == "by hand"


@pytest.mark.parametrize("name", ["t.txt", "t.json.gz", "t"])
def test_another_extension_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="unknown table format"):
        export_trie(make_trie(), tmp_path / name)


def test_a_folder_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(TrieFileError, match="cannot write the table"):
        export_trie(make_trie(), tmp_path / "no" / "t.csv")
