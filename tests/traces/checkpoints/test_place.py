"""Contents of checkpoints outside the store: in a folder, or in fsspec's file system in memory."""

import hashlib
import os
import uuid
import zlib

import fsspec
import pytest

from vinelm.errors import ConfigError, StoreError
from vinelm.traces import CheckpointPlace, ObservationStore, check_store, contents_of, merge_stores
from vinelm.traces.testing import a_row, an_identity

STATE = bytes(range(256)) * 9


@pytest.fixture(params=["folder", "file", "memory"])
def url(request, tmp_path):
    where = {
        "folder": str(tmp_path / "kept"),
        "file": f"file://{tmp_path}/kept",
        "memory": f"memory://{uuid.uuid4().hex}/kept",
    }
    return where[request.param]


def path_of(url, content):
    digest = hashlib.sha256(content).hexdigest()
    return f"{url}/{digest[:2]}/{digest}"


def damage_of(path):
    return [finding.what for finding in check_store(path).findings if finding.is_damage]


def new_store(folder, url, name="s.db"):
    store = ObservationStore.create(folder / name, an_identity())
    store.keep_checkpoints_under(CheckpointPlace(url))
    store.register_digests({"q1": "d1", "q2": "d2", "old": "d3"})
    return store


def test_contents_go_there_and_come_back_in_another_process_too(tmp_path, url):
    with new_store(tmp_path, url) as store:
        store.add(a_row("q1"), STATE)
        store.add(a_row("q2"), STATE)
        facts = contents_of(store)
        assert (facts.checkpoints, facts.checkpoint_bytes) == (2, 0)
        assert facts.checkpoint_url.endswith("/kept")
        assert "://" in facts.checkpoint_url
    with fsspec.open(path_of(url, STATE)) as file:
        assert zlib.decompress(file.read()) == STATE
    with ObservationStore.open(tmp_path / "s.db") as store:
        assert store.checkpoint("q1", ("small",)) == store.checkpoint("q2", ("small",)) == STATE
        assert store.checkpoint("q3", ("small",)) is None
    assert damage_of(tmp_path / "s.db") == []


def test_those_that_are_in_the_store_stay_there(tmp_path, url):
    with ObservationStore.create(tmp_path / "s.db", an_identity()) as store:
        store.add(a_row("old"), b"before")
        store.keep_checkpoints_under(CheckpointPlace(url))
        store.add(a_row("q1"), STATE)
        assert store.checkpoint("old", ("small",)) == b"before"
        assert store.checkpoint("q1", ("small",)) == STATE
        store.keep_checkpoints_under(CheckpointPlace(f"{url}/"))  # the same
        with pytest.raises(StoreError, match=r"its checkpoints are kept under .*/kept, not .*/other: give that"):
            store.keep_checkpoints_under(CheckpointPlace(url.replace("kept", "other")))


def test_a_merged_store_holds_them_itself(tmp_path, url):
    with new_store(tmp_path, url, "a.db") as a, ObservationStore.create(tmp_path / "b.db", an_identity()) as b:
        a.add(a_row("q1"), STATE)
        b.register_digests({"q2": "d2"})
        b.add(a_row("q2"), b"in the store")
    merge_stores([tmp_path / "a.db", tmp_path / "b.db"], tmp_path / "c.db")
    with ObservationStore.open(tmp_path / "c.db") as merged:
        assert merged.checkpoint_place is None
        assert merged.checkpoint("q1", ("small",)) == STATE
        assert merged.checkpoint("q2", ("small",)) == b"in the store"


@pytest.mark.parametrize("damage", ["gone", "other", "not packed"])
def test_a_content_that_is_lost_or_damaged_is_one_line(tmp_path, url, damage):
    with new_store(tmp_path, url) as store:
        store.add(a_row("q1"), STATE)
    files, path = fsspec.core.url_to_fs(path_of(url, STATE))
    if damage == "gone":
        files.rm(path)
    else:
        files.pipe_file(path, zlib.compress(b"another") if damage == "other" else b"?")
    with ObservationStore.open(tmp_path / "s.db") as store:
        with pytest.raises(StoreError, match=r"is not there: copy it back|the checkpoint is damaged") as caught:
            store.checkpoint("q1", ("small",))
        assert "\n" not in str(caught.value)
        assert caught.value.code == "store-damaged"
    assert damage_of(tmp_path / "s.db") == ["checkpoints that are missing or do not match their digest"]


def test_a_row_that_is_refused_leaves_at_most_a_content_without_a_row(tmp_path, url):
    with new_store(tmp_path, url) as store:
        store.add(a_row("q1"), STATE)
        with pytest.raises(StoreError, match="has a row already"):
            store.add(a_row("q1"), b"later")
        assert store.checkpoint("q1", ("small",)) == STATE


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "the place of the checkpoints is empty"),
        ("nosuch://x/y", "Protocol not known: nosuch"),
        ("ftp://ann:secret@host/kept", "holds a password, and the store would keep it"),
    ],
)
def test_addresses_that_cannot_be_used_are_one_line(url, words):
    with pytest.raises(ConfigError, match=words) as caught:
        CheckpointPlace(url)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_place_that_cannot_be_written_is_one_line_before_anything_is_paid_for(tmp_path):
    (tmp_path / "file").write_text("no folder")
    words = r"cannot write checkpoints: .*: repair it and run the same line again"
    with pytest.raises(StoreError, match=words), new_store(tmp_path, str(tmp_path / "file" / "kept")):
        pass
    with ObservationStore.open(tmp_path / "s.db") as store:
        assert store.checkpoint_place is None


def test_what_was_used_last_is_not_read_again_and_the_rest_is_dropped(monkeypatch):
    from vinelm.traces.store import checkpoints as module

    monkeypatch.setattr(module, "_HELD_BYTES", 300)
    place = CheckpointPlace(f"memory://{uuid.uuid4().hex}")
    files = place._files
    contents = [os.urandom(100) for _ in range(4)]
    digests = [place.write(content) for content in contents]
    reads = []
    real = files.cat_file
    monkeypatch.setattr(files, "cat_file", lambda path, **more: reads.append(path) or real(path, **more))
    assert [zlib.decompress(place.read(digest)) for digest in reversed(digests)] == contents[::-1]
    assert 1 <= len(reads) <= 2


def test_reading_a_content_counts_as_using_it(monkeypatch):
    from vinelm.traces.store import checkpoints as module

    monkeypatch.setattr(module, "_HELD_BYTES", 300)
    place = CheckpointPlace(f"memory://held-{uuid.uuid4().hex}")
    one, two = (place.write(os.urandom(120)) for _ in range(2))
    place.read(one)
    place.write(os.urandom(120))  # there is room for two
    place._files.rm(place._root, recursive=True)
    assert place.read(one)
    with pytest.raises(StoreError, match="is not there"):
        place.read(two)
