import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinelm.catalog import Catalog
from vinelm.errors import TrieFileError
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import NODE_ARRAYS, OPTIONAL_ARRAYS, AnnotatedTrie
from vinelm.vinefile import file as vinefile
from vinelm.vinefile import load_trie, save_trie

OLD = Path(__file__).parents[1] / "data" / "v1.vine"


def make_trie(seed: int = 0) -> AnnotatedTrie:
    price = {"input": 1.0, "output": 2.0, "source": "a test", "as_of": "2025-06-01"}
    catalog = Catalog.from_dict(
        {"model": [{"name": name, "provider": "simulated", "model": name, "price": price} for name in ("small", "large")]}
    )
    template = Template((Stage("generate"), Loop((Stage("repair", default="large"),), times=2))).bind(tuple(catalog))
    trie = Trie.from_template(template)
    rng = np.random.default_rng(seed)
    arrays = {name: rng.random(len(trie)) for name in NODE_ARRAYS}
    return AnnotatedTrie(
        trie=trie,
        template=template,
        catalog=catalog,
        **arrays,
        accuracy_se=rng.random(len(trie)),
        count=rng.integers(0, 9, len(trie)),
        meta={"estimator": "by hand", "seed": seed, "simulated": True, "coverage": 0.02},
    )


def assert_same(left: AnnotatedTrie, right: AnnotatedTrie) -> None:
    assert left.trie == right.trie
    assert left.template == right.template
    assert left.catalog.to_dict() == right.catalog.to_dict()
    assert left.meta == right.meta
    for name in (*NODE_ARRAYS, *OPTIONAL_ARRAYS):
        one, other = getattr(left, name), getattr(right, name)
        assert (one is None) == (other is None), name
        if one is not None:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("mmap", [True, False])
def test_a_saved_trie_comes_back_whole(tmp_path: Path, mmap: bool) -> None:
    annotated = make_trie()
    annotated = replace(annotated, cost_size_var=annotated.cost_var / 2, latency_size_var=annotated.latency_var / 3)
    save_trie(tmp_path / "a.vine", annotated)
    loaded = load_trie(tmp_path / "a.vine", mmap=mmap)
    assert_same(loaded, annotated)
    np.testing.assert_array_equal(loaded.accuracy, annotated.accuracy)
    assert not loaded.success.flags.writeable


def test_the_same_trie_gives_the_same_bytes(tmp_path: Path) -> None:
    save_trie(tmp_path / "a.vine", make_trie())
    save_trie(tmp_path / "b.vine", make_trie())
    assert (tmp_path / "a.vine").read_bytes() == (tmp_path / "b.vine").read_bytes()


def test_numpy_and_zip_tools_read_it_and_the_arrays_are_aligned(tmp_path: Path) -> None:
    path = tmp_path / "a.vine"
    annotated = make_trie()
    save_trie(path, annotated)
    raw = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert json.loads(archive.read("manifest.json"))["catalog"]["model"][0]["price"]["as_of"] == "2025-06-01"
        for entry in archive.infolist():
            if entry.filename.endswith(".npy"):
                content = archive.read(entry)
                values = np.load(io.BytesIO(content), allow_pickle=False)
                assert raw.index(content) % vinefile.ALIGNMENT == 0
                assert values.shape == (len(annotated.trie),)


def test_the_arrays_of_a_mapped_file_are_not_copies(tmp_path: Path) -> None:
    save_trie(tmp_path / "a.vine", make_trie())
    loaded = load_trie(tmp_path / "a.vine")
    assert loaded.success.base is not None
    assert loaded.trie.parent.base is not None


def test_a_file_of_the_first_format_keeps_opening() -> None:
    assert_same(load_trie(OLD), make_trie())


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(TrieFileError, match=r"a\.vine: no such trie file.*vinelm estimate"):
        load_trie(tmp_path / "a.vine")


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x05\x06" + bytes(18)])
def test_another_file_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.vine").write_bytes(content)
    with pytest.raises(TrieFileError) as caught:
        load_trie(tmp_path / "a.vine")
    assert "\n" not in str(caught.value)
    assert "a.vine" in str(caught.value)


def test_a_newer_file_asks_for_an_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vinefile, "VERSION", 99)
    save_trie(tmp_path / "a.vine", make_trie())
    monkeypatch.undo()
    with pytest.raises(TrieFileError, match=r"format 99, written by a newer VineLM.*upgrade"):
        load_trie(tmp_path / "a.vine")


@given(cut=st.integers(0, OLD.stat().st_size - 1))
def test_a_truncated_file_is_refused(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.vine"
    path.write_bytes(OLD.read_bytes()[:cut])
    with pytest.raises(TrieFileError):
        load_trie(path)


@given(at=st.integers(0, OLD.stat().st_size - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused_or_harmless(tmp_path_factory: pytest.TempPathFactory, at: int, bit: int) -> None:
    raw = bytearray(OLD.read_bytes())
    raw[at] ^= 1 << bit
    path = tmp_path_factory.getbasetemp() / "flip.vine"
    path.write_bytes(raw)
    try:
        loaded = load_trie(path)
    except TrieFileError:
        return
    assert_same(loaded, make_trie())


def test_a_flipped_bit_inside_an_array_is_noticed(tmp_path: Path) -> None:
    raw = bytearray(OLD.read_bytes())
    raw[raw.index(make_trie().success.tobytes()) + 3] ^= 1
    (tmp_path / "a.vine").write_bytes(raw)
    with pytest.raises(TrieFileError, match="checksum of success"):
        load_trie(tmp_path / "a.vine")


def test_meta_must_be_plain_json_and_nothing_is_written_otherwise(tmp_path: Path) -> None:
    for bad in ({"when": object()}, {"mae": float("nan")}):
        with pytest.raises(TrieFileError, match="plain JSON"):
            save_trie(tmp_path / "a.vine", replace(make_trie(), meta=bad))
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.vine"
    save_trie(path, make_trie(0))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(vinefile, "_write", full)
    with pytest.raises(TrieFileError, match="No space left"):
        save_trie(path, make_trie(1))
    assert_same(load_trie(path), make_trie(0))
    assert [item.name for item in tmp_path.iterdir()] == ["a.vine"]


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrieFileError, match="cannot write the trie"):
        save_trie(tmp_path / "no" / "a.vine", make_trie())
