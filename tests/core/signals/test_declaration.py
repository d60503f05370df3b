"""What a workflow may declare, and what labels and answers become of states."""

import datetime
import json
from collections import UserDict

import numpy as np
import pytest

from vinelm.errors import ConfigError, WorkflowError
from vinelm.signals import Signals
from vinelm.signals.declaration import Labels, canonical


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"signal": "state"}, "signal='state': give a function of the state, or \"status\""),
        ({"edges": (1.0,)}, "signal_edges has no effect"),
        ({"signal": "status", "edges": (1.0,)}, "signal_edges has no effect"),
        ({"signal": len, "edges": (1.0, 1.0)}, "they must increase"),
        ({"signal": len, "edges": tuple(range(8))}, "8 signal_edges make 9 labels: at most 8"),
        ({"agree": lambda a, b: True}, "agree needs to know what an answer is"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_one_line(declared, words):
    with pytest.raises(ConfigError, match=words) as caught:
        Signals(**declared)
    assert "\n" not in str(caught.value)


def test_nothing_declared_is_none_and_one_key_alone_must_be_a_tuple():
    assert not Signals.of(None, (), None, ())
    assert Signals.of(None, (), None, ("sql",)) == Signals(answer=("sql",))
    with pytest.raises(ConfigError, match=r'give a tuple of keys, as in answer=."sql",.'):
        Signals.of(None, (), None, "sql")


@pytest.mark.parametrize(
    ("value", "label"), [("ok", "ok"), ("", None), (None, None), (True, "yes"), (False, "no"), (3, "3"), (-1, "-1")]
)
def test_labels_are_text(value, label):
    assert Signals(lambda state: value).label({}, passed=None) == label


@pytest.mark.parametrize(("passed", "label"), [(True, "passed"), (False, "failed"), (None, None)])
def test_status_is_the_verdict(passed, label):
    assert Signals("status").label({}, passed=passed) == label


@pytest.mark.parametrize(
    ("value", "label"),
    [(-1, "< 0"), (0, "0 to 2.5"), (2.4, "0 to 2.5"), (2.5, ">= 2.5"), (100, ">= 2.5"), (True, "yes"), ("none", "none")],
)
def test_numbers_go_into_bins(value, label):
    assert Signals(lambda state: value, edges=(0, 2.5)).label({}, passed=None) == label


def test_a_signal_that_fails_is_told_without_what_it_saw():
    def fails(state):
        raise ValueError(state["secret"])

    with pytest.raises(
        WorkflowError, match=r"signal\(state\) raised ValueError: it must return a label for every state"
    ) as caught:
        Signals(fails).label({"secret": "sk-canary"}, passed=None)
    assert "canary" not in str(caught.value)
    with pytest.raises(WorkflowError, match="returned a float: return text, a bool or an int, or give signal_edges"):
        Signals(lambda state: 0.5).label({}, passed=None)
    with pytest.raises(
        WorkflowError, match=r"signal\(state\) returned NaN: return a number, or None"
    ):  # it was in the last bin
        Signals(lambda state: float("nan"), edges=(1.0,)).label({}, passed=None)


def test_an_answer_is_one_value_or_a_dict_as_json_gives_it_back():
    state = {"sql": "SELECT 1", "rows": ((1, "a"), (2, None)), "other": object()}
    assert Signals(answer=("sql",)).answer_of(state) == "SELECT 1"
    assert Signals(answer=("sql", "rows")).answer_of(state) == {"sql": "SELECT 1", "rows": [[1, "a"], [2, None]]}
    assert Signals(answer=("sql",)).answer_of({}) is None
    assert Signals(answer=("sql", "rows")).answer_of({"sql": None, "rows": None}) is None
    assert Signals(answer=("sql", "rows")).answer_of({"sql": None, "rows": []}) == {"sql": None, "rows": []}
    with pytest.raises(WorkflowError, match="answer: the state has no key 'row': it has other, rows, sql"):
        Signals(answer=("sql", "row")).answer_of(state)
    assert Signals(answer=("sql", "row")).answer_of(state, is_partial=True) is None
    assert Signals(answer=("sql",)).answer_of(state, is_partial=True) == "SELECT 1"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": (1, 2)}, '{"a":[1,2],"b":1}'),
        ({"q", "b", "a"}, '["a","b","q"]'),
        (b"\x00\xff", '"00ff"'),
        (datetime.date(2026, 1, 2), '"2026-01-02"'),
        (np.array([1, 2]), "[1,2]"),
        (np.int64(4), "4"),
        ("ü", '"ü"'),
        ("\ud800", '"\\ud800"'),
    ],
)
def test_canonical_json_is_the_same_everywhere(value, text):
    assert canonical(value) == text
    assert canonical(json.loads(text)) == text


@pytest.mark.parametrize("value", [object(), {"a": [object()]}, UserDict(), {(1, 2): 3}, {1: 2, "a": 3}])
def test_what_is_no_plain_value_is_refused_by_type(value):
    if isinstance(value, UserDict):  # its text is that of a dict
        assert canonical(value) == '"{}"'
        return
    with pytest.raises(WorkflowError, match="answer= must name keys with plain values") as caught:
        canonical(value)
    assert "0x" not in str(caught.value)


def first_letter(one, other):
    return one[0] == other[0] != "-"


def test_the_class_is_the_first_whose_first_answer_is_equal():
    signals = Signals(agree=first_letter, answer=("text",))
    assert signals.class_of("apple", []) == 0
    assert signals.class_of("avocado", ["banana", "apple"]) == 1
    assert signals.class_of("cherry", ["banana", "apple"]) == 2
    assert signals.class_of(None, ["banana"]) is None
    assert signals.class_of("-error", ["banana"]) is None  # it does not even agree with itself
    plain = Signals(answer=("text",))
    assert plain.class_of([1, 2], [[2, 1], [1, 2]]) == 1


def test_an_agree_that_raises_shows_no_answer():
    def fails(one, other):
        raise KeyError(one)

    with pytest.raises(WorkflowError, match=r"agree\(a, b\) raised KeyError") as caught:
        Signals(agree=fails, answer=("text",)).equal("sk-canary", "b")
    assert "canary" not in str(caught.value)


def test_eight_labels_are_enough():
    labels = Labels(["v0"])
    for k in range(8):
        labels.add(f"v{k}", "q1")
        labels.add(None, "q1")
    with pytest.raises(WorkflowError, match=r"request 'q7': signal\(state\) returned 'v8', value 9 of the signal.*at most 8"):
        labels.add("v8", "q7")
    with pytest.raises(WorkflowError) as caught:
        Labels(map(str, range(8))).add("x" * 1000, "q")
    assert len(str(caught.value)) < 300
