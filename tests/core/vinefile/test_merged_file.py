"""The ``.vine`` file of a merged trie: whole after a round trip, and refused where its arrays are not those of its template."""

import json
import zipfile
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from core.vinefile.test_file import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.templates import agent, branching
from kit.tries import random_merged

from vinelm.errors import TrieFileError
from vinelm.trie import MergedTrie
from vinelm.trie.annotated_trie import NODE_ARRAYS
from vinelm.trie.difficulty import ARM_ARRAYS, DIFFICULTY_ARRAYS, DifficultyRates
from vinelm.vinefile import load_trie, save_trie


@pytest.mark.parametrize(
    "template", [agent(2, 6, memory=2), agent(2, 5, order="ignored"), branching(3, memory=2), branching(2, order="ignored")]
)
@pytest.mark.parametrize("mmap", [True, False])
def test_a_saved_merged_trie_comes_back_whole(tmp_path, template, mmap):
    annotated = random_merged(template, 1, with_difficulty=True)
    save_trie(tmp_path / "a.vine", annotated)
    loaded = load_trie(tmp_path / "a.vine", mmap=mmap)
    assert_same(loaded, annotated)
    assert isinstance(loaded.trie, MergedTrie)
    for name in DIFFICULTY_ARRAYS:
        np.testing.assert_array_equal(getattr(loaded.difficulty, name), getattr(annotated.difficulty, name))
    save_trie(tmp_path / "b.vine", loaded)
    assert (tmp_path / "b.vine").read_bytes() == (tmp_path / "a.vine").read_bytes()
    manifest = json.loads(zipfile.ZipFile(tmp_path / "a.vine").read("manifest.json"))
    assert manifest["version"] == 4


def test_another_memory_than_the_templates_is_refused(tmp_path):
    annotated = random_merged(agent(2, 6, memory=2), 1)
    save_trie(tmp_path / "a.vine", replace(annotated, template=agent(2, 6, memory=3)))
    with pytest.raises(TrieFileError, match=r"22 merged nodes where its template \(memory=3\) has 38: .*vinelm estimate"):
        load_trie(tmp_path / "a.vine")
    save_trie(tmp_path / "b.vine", replace(random_merged(agent(2, 3, order="ignored"), 1), template=agent(2, 6, memory=1)))
    with pytest.raises(TrieFileError, match=r"its merged nodes are not those of its template \(memory=1\)"):
        load_trie(tmp_path / "b.vine")


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_whatever_loads_is_the_merged_trie_of_its_template(tmp_path_factory, data):
    annotated = random_merged(branching(2, memory=1), 2, with_difficulty=True)
    groups = {
        "trie": (annotated.trie, MergedTrie.array_names),
        "node": (annotated, (*NODE_ARRAYS, *ARM_ARRAYS)),
        "difficulty": (annotated.difficulty, DIFFICULTY_ARRAYS),
    }
    group = data.draw(st.sampled_from(sorted(groups)))
    holder, names = groups[group]
    name = data.draw(st.sampled_from([name for name in names if getattr(holder, name) is not None]))
    values = getattr(holder, name).copy()
    flat = values.reshape(-1)
    for _ in range(data.draw(st.integers(1, 3))):
        i, j = (data.draw(st.integers(0, len(flat) - 1)) for _ in range(2))
        flat[i] = data.draw(st.sampled_from([flat[j], flat[0], 0, 1, 99, -1])) if flat.dtype != np.bool_ else flat[j]
    path = tmp_path_factory.mktemp("fuzz") / "a.vine"
    with suppress(Exception):  # some wrong arrays cannot even be held
        save_trie(path, changed(annotated, group, name, values))
    if not path.exists():
        return
    try:
        loaded = load_trie(path)
    except TrieFileError:
        return
    own = MergedTrie.of(annotated.template)
    assert loaded.trie.with_answerable(own.answerable) == own
    assert not np.any(loaded.trie.answerable & ~own.answerable)
    for name in ("success", "stop", "stop_success", "arm", "arm_success"):
        assert np.all((getattr(loaded, name) >= -1e-6) & (getattr(loaded, name) <= 1.0 + 1e-6))


def changed(annotated, group, name, values):
    if group == "node":
        return replace(annotated, **{name: values})
    if group == "difficulty":
        arrays = {key: getattr(annotated.difficulty, key) for key in DIFFICULTY_ARRAYS} | {name: values}
        return replace(annotated, difficulty=DifficultyRates(**arrays))
    arrays = {key: getattr(annotated.trie, key) for key in MergedTrie.array_names} | {name: values}
    trie = MergedTrie(stages=annotated.trie.stages, models=annotated.trie.models, **arrays)
    return replace(annotated, trie=trie)
