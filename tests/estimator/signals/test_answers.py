"""Rows as answers: contexts, classes, labels and weights."""

import numpy as np
import pytest
from kit.worlds.outcomes import path_trie

from vinelm.errors import EvidenceError
from vinelm.estimator.signals.answers import AnswerTable, Context
from vinelm.estimator.signals.build import estimate_signals, why_without_signals
from vinelm.estimator.signals.course import Course
from vinelm.rows.observation import Observation
from vinelm.signals import Label
from vinelm.template import END, Branch, Loop, Parallel, Stage, Template

INVOCATIONS = Course.chain(("generate", "repair", "repair"))


def row(request, prefix, *, success=False, stopped=False, kind=0, signal=None, **fields):
    stage = "generate" if len(prefix) == 1 else "repair"
    given = {"success": success, "stopped": stopped, "cost_usd": 1.0, "latency_s": 1.0, "answer_class": kind, "signal": signal}
    return Observation(request_id=request, prefix=tuple(prefix), stage=stage, **(given | fields))


def test_contexts_say_who_answered_before():
    rows = [row("q", "a"), row("q", "aa"), row("q", "aab", kind=1), row("q", "b", kind=1)]
    table = AnswerTable.of(rows, INVOCATIONS)
    found = [table.contexts[c] for c in table.context]
    assert sorted(found) == sorted([
        Context("generate", "a", False, False),
        Context("repair", "a", True, True),
        Context("repair", "b", True, False),
        Context("generate", "b", False, False),
    ])  # fmt: skip
    assert Context("repair", "b", True, True) in table.contexts, "no row has asked b again, but a plan may"
    repeats = dict(zip(table.contexts, table.repeats.tolist(), strict=True))
    assert repeats[Context("repair", "a", True, True)] == [1.0, 1.0]


def test_a_model_that_nobody_asked_again_is_not_offered_again():
    table = AnswerTable.of([row("q", "a"), row("q", "ab", kind=1)], INVOCATIONS)
    assert not any(context.is_again for context in table.contexts)


def test_rows_of_one_answer_share_a_weight():
    rows = [row("q", "a"), row("q", "ab", kind=1), row("q", "cb", kind=1), row("q", "c", kind=2), row("r", "a")]
    table = AnswerTable.of(rows, INVOCATIONS)
    by_model = {}
    for context, weight, request in zip(table.context, table.weight, table.request, strict=True):
        by_model.setdefault((table.requests[request], table.contexts[context].model), []).append(weight)
    assert by_model == {("q", "a"): [1.0], ("q", "b"): [0.5, 0.5], ("q", "c"): [1.0], ("r", "a"): [1.0]}


def test_labels_join_the_verdict_and_the_signal():
    rows = [
        row("q", "a", stopped=True, signal="passed"),
        row("q", "b", signal="failed", kind=1),
        row("q", "c", stopped=None, signal=None, kind=2),
        row("q", "d", success=None, stopped=None, failure="timeout", kind=None),
        row("q", "e", stopped=True, signal="rows", kind=3),
    ]
    table = AnswerTable.of(rows, INVOCATIONS)
    found = dict(zip((table.contexts[c].model for c in table.context), (table.labels[i] for i in table.label), strict=True))
    assert found == {
        "a": Label(True, None), "b": Label(False, None), "c": Label(False, None), "d": Label(False, "error"),
        "e": Label(True, "rows"),
    }  # fmt: skip
    assert len(table.labels) == len({str(label) for label in table.labels}) == 4
    assert table.kind[[table.contexts[c].model for c in table.context].index("d")] == -1


def test_whether_labels_follow_from_the_answer():
    same = [row("q", "a", signal="x"), row("q", "b", signal="x"), row("q", "c", signal="y", kind=1)]
    assert AnswerTable.of(same, INVOCATIONS).label_follows_class
    assert not AnswerTable.of([*same, row("q", "d", signal="y")], INVOCATIONS).label_follows_class
    assert not AnswerTable.of(same[1:], INVOCATIONS).label_follows_class, "no two answers agree: nothing says so"


def test_rows_that_say_nothing_are_refused():
    with pytest.raises(EvidenceError, match="no row is scored"):
        AnswerTable.of([row("q", "a", success=None)], INVOCATIONS)
    with pytest.raises(EvidenceError, match="9 different signals, at most 8"):
        AnswerTable.of([row("q", "a", signal=str(i)) for i in range(9)], INVOCATIONS)


def test_why_there_are_no_signals():
    loop = Template((Stage("generate", ("a",)), Loop((Stage("repair", ("a",)),), 2)))
    rows = [row("q", "a", signal="x"), row("q", "aa")]
    assert why_without_signals(rows, loop) is None
    assert "declare signal, agree or answer" in why_without_signals([row("q", "a", kind=None)], loop)
    assert 'answer=("sql", "rows")' in why_without_signals([row("q", "a", kind=None, signal="x")], loop)
    branching = Template((Stage("generate", ("a",)), Branch({"x": (Stage("repair", ("a",)),), "y": END})))
    silent = Template((Stage("generate", ("a",), answerable=False), Stage("repair", ("a",))))
    assert why_without_signals(rows, branching) is why_without_signals(rows, silent) is None
    joint = Template((Parallel((Stage("generate", ("a",)), Stage("check", ("a",)))), Stage("repair", ("a",))))
    assert "side by side" in why_without_signals(rows, joint)
    quiet = Parallel((Stage("generate", ("a",), answerable=False), Stage("check", ("a",), answerable=False)))
    assert why_without_signals(rows, Template((quiet, Stage("repair", ("a",))))) is None
    several = Template((Branch({"x": (Stage("generate", ("a",)),), "y": (Stage("repair", ("a",)),)}),))
    assert why_without_signals(rows, several) is None
    assert "oracle" in why_without_signals(rows, Template(loop.steps, stop="oracle"))
    for reason in (why_without_signals([], loop), why_without_signals(rows, joint)):
        assert "\n" not in reason
    path = path_trie(np.random.default_rng(0))
    assert estimate_signals(path, [row("q", ("m0",), kind=None)]) is None
