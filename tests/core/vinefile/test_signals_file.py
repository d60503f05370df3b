"""``.vine`` files with what requests show."""

import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from core.vinefile.test_branching import branching_trie
from core.vinefile.test_file import assert_same, make_trie
from core.vinefile.test_structure import rewritten
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.worlds.outcomes import random_outcome_trie

from vinelm.controller import Planner
from vinelm.errors import TrieFileError, VineLMError
from vinelm.objective import Objective
from vinelm.signals import Label
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import NODE_ARRAYS
from vinelm.trie.difficulty import ARM_ARRAYS
from vinelm.trie.outcomes import OUTCOME_ARRAYS
from vinelm.trie.trie import ARRAYS
from vinelm.vinefile import load_trie, save_trie


def with_signals(seed=0, **wanted):
    wanted = {"n_labels": 3, "fits": 3, **wanted}
    found, _, path = random_outcome_trie(np.random.default_rng(seed), **wanted)
    return replace(path, signals=replace(found, meta={"goes_on": True}), meta={"simulated": True})


def with_array(annotated, name, values):
    """The same with another array of outcomes, of the trie of outcomes, or of its annotations."""
    signals = annotated.signals
    if name in OUTCOME_ARRAYS:
        return replace(annotated, signals=replace(signals, outcomes=replace(signals.outcomes, **{name: values})))
    if name not in ARRAYS:
        return replace(annotated, signals=replace(signals, **{name: values}))
    arrays = {key: getattr(signals.trie, key) for key in ARRAYS} | {name: values}
    trie = Trie(stages=signals.trie.stages, models=signals.trie.models, **arrays)
    return replace(annotated, signals=replace(signals, trie=trie))


def written_and_read(path, annotated, name, values):
    save_trie(path, with_array(annotated, name, values))
    return load_trie(path)


def assert_same_signals(left, right):
    assert_same(left, right)
    assert_same(left.signals, right.signals)
    one, other = left.signals.outcomes, right.signals.outcomes
    assert (one.labels, one.stages, one.goes_on) == (other.labels, other.stages, other.goes_on)
    for name in OUTCOME_ARRAYS:
        values = getattr(one, name)
        assert values.dtype == getattr(other, name).dtype, name
        np.testing.assert_array_equal(values, getattr(other, name), err_msg=name)


def manifest(path):
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("manifest.json"))


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("wanted", [{}, {"depth": 3, "goes_on": False}, {"depth": 1}, {"fits": 1, "follows": True}])
def test_it_comes_back_whole(tmp_path, wanted, mmap):
    annotated = with_signals(**wanted)
    save_trie(tmp_path / "a.vine", annotated)
    loaded = load_trie(tmp_path / "a.vine", mmap=mmap)
    assert_same_signals(loaded, annotated)
    assert loaded.signals.outcomes.returns_earlier
    assert not loaded.signals.outcomes.spread.flags.writeable
    save_trie(tmp_path / "b.vine", loaded)
    assert (tmp_path / "a.vine").read_bytes() == (tmp_path / "b.vine").read_bytes()


@pytest.mark.parametrize("make", [make_trie, branching_trie])
def test_a_trie_without_signals_has_none_in_its_file(tmp_path, make):
    save_trie(tmp_path / "a.vine", make())
    with zipfile.ZipFile(tmp_path / "a.vine") as archive:
        names = archive.namelist()
    assert "signals" not in manifest(tmp_path / "a.vine")
    assert not [name for name in names if name.startswith(("signals.", "outcomes."))]
    assert load_trie(tmp_path / "a.vine").signals is None


def test_the_path_trie_is_written_the_same_with_and_without_signals(tmp_path):
    annotated = with_signals()
    save_trie(tmp_path / "a.vine", annotated)
    save_trie(tmp_path / "b.vine", replace(annotated, signals=None))
    with zipfile.ZipFile(tmp_path / "a.vine") as a, zipfile.ZipFile(tmp_path / "b.vine") as b:
        for name in b.namelist():
            assert name == "manifest.json" or a.read(name) == b.read(name)


def test_a_trie_of_outcomes_is_saved_with_its_path_trie(tmp_path):
    annotated = with_signals()
    with pytest.raises(TrieFileError, match="has no file of its own: save the path trie"):
        save_trie(tmp_path / "a.vine", annotated.signals)
    with pytest.raises(TrieFileError, match="save it as it was estimated"):
        save_trie(tmp_path / "a.vine", replace(annotated, signals=annotated.signals.returning_last()))
    assert list(tmp_path.iterdir()) == []


def at(index, value):
    def change(values):
        values = values.copy()
        values[index] = value
        return values

    return change


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("node", at(0, 0), "outcomes.node is out of range"),
        ("node", at(-1, 999), "outcomes.node is out of range"),
        ("node", lambda v: v[::-1], "outcomes.node is not sorted"),
        ("node", lambda v: v.astype(float), "does not hold whole numbers"),
        ("label", at(0, 3), "outcomes.label is out of range"),
        ("answer_class", at(0, 2), "outcomes.answer_class is out of range"),
        ("returned", at(0, -2), "outcomes.returned is out of range"),
        ("arm", at(0, 99), "outcomes.arm is out of range"),
        ("arm", at(0, -1), "the outcomes that go on are not the arms"),
        ("arm", at(1, 1), "two outcomes of a node go on by one arm|are not the arms"),
        ("chance", at(0, 1.5), "outcomes.chance is not within"),
        ("chance", at(0, np.nan), "outcomes.chance is not within"),
        ("chance", lambda v: v * 0.9, "outcomes.right is larger|do not sum to 1"),
        ("right", lambda v: v + 0.5, "outcomes.right is"),
        ("right_last", lambda v: v + 0.5, "outcomes.right_last is"),
        ("spread", lambda v: -v, "outcomes.spread is not within"),
        ("spread", lambda v: v[:, 0], "need arrays of one dimension, and of two for spread"),
        ("spread", lambda v: v[:-1], "differ in length"),
        ("parent", at(3, 2), "trie.parent does not fit"),
        ("stage", at(3, 99), "signals.trie.stage is out of range"),
        ("model", at(1, 7), "signals.trie.model is out of range"),
        ("arm_success", lambda v: v + 1.0, "arm_success is"),
        ("cost_usd", at(3, -1.0), "cost_usd is negative"),
    ],
)  # fmt: skip
def test_a_wrong_array_is_named(tmp_path, name, change, problem):
    annotated = with_signals()
    signals = annotated.signals
    own = signals.outcomes if name in OUTCOME_ARRAYS else signals.trie if name in ARRAYS else signals
    with pytest.raises(VineLMError, match=problem) as error:  # some are refused where they are made
        written_and_read(tmp_path / "a.vine", annotated, name, change(getattr(own, name)))
    assert "\n" not in str(error.value)


def test_two_labels_or_arms_of_one_name_are_refused(tmp_path):
    annotated = with_signals()
    outcomes = replace(annotated.signals.outcomes, labels=(Label(False, None),) * 3)
    save_trie(tmp_path / "a.vine", replace(annotated, signals=replace(annotated.signals, outcomes=outcomes)))
    with pytest.raises(TrieFileError, match="two labels are equal"):
        load_trie(tmp_path / "a.vine")
    save_trie(tmp_path / "a.vine", annotated)
    rewritten(tmp_path / "a.vine", lambda m: m["signals"]["arms"].__setitem__(1, m["signals"]["arms"][2]))
    with pytest.raises(TrieFileError, match="two arms have one name"):
        load_trie(tmp_path / "a.vine")


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.pop("signals") and m.update(signals={}),
        lambda m: m["signals"].pop("arms"),
        lambda m: m["signals"].pop("labels"),
        lambda m: m["signals"]["arms"].pop(),
        lambda m: m["signals"].update(stages=[0]),
        lambda m: m["signals"].update(stages=[0] * 5 + ["x"]),
        lambda m: m["signals"]["stages"].__setitem__(1, 9),
        lambda m: m["signals"].update(labels=[]),
        lambda m: m["signals"].update(labels=[[True]]),
        lambda m: m["signals"].update(labels=7),
    ],
)
def test_a_wrong_manifest_is_one_line(tmp_path, change):
    path = tmp_path / "a.vine"
    save_trie(path, with_signals())
    rewritten(path, change)
    with pytest.raises(TrieFileError, match=r"^\S*a\.vine: [^\n]*$"):
        load_trie(path)


@pytest.mark.parametrize("name", ["outcomes.spread.npy", "outcomes.arm.npy", "signals.success.npy", "signals.trie.end.npy"])
def test_a_missing_array_is_one_line(tmp_path, name):
    path = tmp_path / "a.vine"
    save_trie(path, with_signals())
    with zipfile.ZipFile(path) as old:
        members = {entry: old.read(entry) for entry in old.namelist() if entry != name}
    with zipfile.ZipFile(path, "w") as new:
        for entry, content in members.items():
            new.writestr(entry, content)
    with pytest.raises(TrieFileError, match=r"^\S*a\.vine: [^\n]*$"):
        load_trie(path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "a.vine"
    save_trie(path, with_signals())
    return path.read_bytes()


@settings(max_examples=100)
@given(data=st.data())
def test_a_flipped_bit_is_refused_or_harmless(tmp_path_factory, saved, data):
    raw = bytearray(saved)
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.getbasetemp() / "flip-signals.vine"
    path.write_bytes(raw)
    try:
        loaded = load_trie(path)
    except TrieFileError:
        return
    assert_same_signals(loaded, with_signals())


@settings(max_examples=50)
@given(cut=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(tmp_path_factory, saved, cut):
    path = tmp_path_factory.getbasetemp() / "cut-signals.vine"
    path.write_bytes(saved[: int(cut * len(saved))])
    with pytest.raises(TrieFileError):
        load_trie(path)


@settings(max_examples=40)
@given(data=st.data())
def test_whatever_loads_can_be_planned_over(tmp_path_factory, data):
    """Shuffled values with good checksums are refused, or every use of the trie is sound."""
    annotated = with_signals()
    name = data.draw(st.sampled_from([*ARRAYS, *NODE_ARRAYS, *ARM_ARRAYS, *OUTCOME_ARRAYS]))
    signals = annotated.signals
    own = signals.outcomes if name in OUTCOME_ARRAYS else signals.trie if name in ARRAYS else signals
    values = getattr(own, name).copy()
    for _ in range(data.draw(st.integers(1, 4))):
        i, j = (data.draw(st.integers(0, len(values) - 1)) for _ in range(2))
        values[[i, j]] = values[[j, i]]
    path = tmp_path_factory.getbasetemp() / "shuffled-signals.vine"
    try:
        loaded = written_and_read(path, annotated, name, values)
    except TrieFileError:
        return
    for trie in (loaded.signals, loaded.signals.returning_last()):
        decision = Planner(trie).plan(Objective(maximize="accuracy", max_cost_usd=1.5))
        assert 0.0 <= decision.accuracy <= 1.0 + 1e-6
        assert decision.plan.standard_error >= 0.0
