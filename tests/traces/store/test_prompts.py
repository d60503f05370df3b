"""Shapes of prompts in a store: of every row that was bought, equal where prompts are, without a word of them."""

import csv
import sqlite3
from contextlib import closing

import pytest
from kit.stores import made_store

from vinelm.cli.main import main
from vinelm.errors import StoreError
from vinelm.prompts.shape import shape_of
from vinelm.prompts.stored import packed, unpacked
from vinelm.traces import ObservationStore, export_store, import_export, merge_stores
from vinelm.traces.store.prompts import StoredPrompts, prompt_stages, prompt_tokens
from vinelm.traces.testing import a_row, an_identity

SYSTEM = "system\n" + "be brief " * 300
MODELS = ("small", "large")


@pytest.fixture
def path(tmp_path):
    return filled(tmp_path / "s.db", "abcd")


def filled(path, requests, key_of=None):
    """Two rows of each request; with the key of another store, if it is given."""
    with ObservationStore.create(path, an_identity()) as store:
        prompts = StoredPrompts(store)
        if key_of is not None:
            with ObservationStore.open(key_of) as other, closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("INSERT INTO meta VALUES ('prompt_key', ?)", (StoredPrompts(other).begin().hex(),))
        key = prompts.begin()
        assert prompts.begin() == key
        store.register_digests(dict.fromkeys(requests, "digest"))
        for request in requests:
            for prefix in (("small",), MODELS):
                store.add(a_row(request, prefix, tokens_in=2000, tokens_out=10))
                parts = [SYSTEM, f"human\nmy-secret-question of {request} " * 60]
                prompts.add(request, prefix, packed([shape_of(parts, key)] * len(prefix), key))
    return path


def read(path):
    with ObservationStore.open(path) as store:
        return store.observations(), StoredPrompts(store).read()


def test_what_is_packed_comes_back_and_only_by_its_key():
    shapes = tuple(shape_of(parts, b"k") for parts in ([], ["short"], [SYSTEM, "question " * 400]))
    data = packed(shapes, b"k")
    assert unpacked(data, b"k") == shapes
    with pytest.raises(ValueError, match="another key"):
        unpacked(data, b"other")
    with pytest.raises(ValueError, match="cut off"):
        unpacked(data[:-1], b"k")


def test_labels_follow_from_all_rows(path):
    rows, shapes = read(path)
    assert [len(shapes[row.request_id, row.prefix]) for row in rows] == [1, 2] * 4
    stages = prompt_stages(rows, shapes)
    assert [(stage.stage, stage.calls) for stage in stages] == [("generate", 4), ("repair", 8)]
    assert all(stage.tokens.static > 600 and stage.tokens.request > 200 and not stage.tokens.own for stage in stages)
    whole = stages[0].tokens.total
    static = round(2000 * stages[0].tokens.static / whole)
    assert set(prompt_tokens(rows, shapes).values()) == {(static, 0)}
    assert prompt_tokens(rows[:1], shapes) == {("a", ("small",)): (0, 0)}  # of one request nothing is static


def test_no_word_of_a_prompt_is_in_the_file(path):
    assert b"my-secret" not in path.read_bytes()
    assert b"be brief" not in path.read_bytes()


def test_shapes_of_another_key_are_refused_in_one_line(path):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'prompt_key'", ("00" * 16,))
    connection.close()
    with pytest.raises(StoreError, match="made with another key") as caught:
        read(path)
    assert "\n" not in str(caught.value)
    assert main(["store", "info", str(path)]) == 2


def test_a_merge_keeps_shapes_of_one_key_and_says_what_it_leaves(tmp_path, path, capsys):
    same = filled(tmp_path / "same.db", "ef", key_of=path)
    other = filled(tmp_path / "other.db", "gh")
    found = merge_stores([path, same, other], tmp_path / "m.db")
    assert (found.added, found.without_shapes) == ((8, 4, 4), (0, 0, 4))
    rows, shapes = read(tmp_path / "m.db")
    assert {request for request, _ in shapes} == set("abcdef")
    assert len(rows) == 16
    assert main(["store", "merge", str(path), str(other), "-o", str(tmp_path / "n.db")]) == 0
    assert "4 rows" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_an_export_has_the_columns_and_comes_back_without(tmp_path, path, name):
    with ObservationStore.open(path) as store:
        assert export_store(store, tmp_path / name) == 8
        rows = store.observations()
    if name == "t.csv":
        with open(tmp_path / name, newline="") as file:
            [static] = {row["prompt_tokens_static"] for row in csv.DictReader(file)}
        assert int(static) > 1000
    import_export(tmp_path / name, tmp_path / "back.db")
    back, shapes = read(tmp_path / "back.db")
    assert (back, shapes) == (rows, {})


def test_a_store_without_shapes_reads_and_exports_as_before(tmp_path):
    path = made_store(tmp_path / "s.db", {"small": 0.6, "large": 0.8}, {"small": 0.001, "large": 0.01}, requests=4, depth=1)
    rows, shapes = read(path)
    assert shapes == {}
    assert prompt_stages(rows, shapes) == ()
    with ObservationStore.open(path) as store:
        export_store(store, tmp_path / "t.csv")
        assert "prompt_tokens" not in (tmp_path / "t.csv").read_text()
