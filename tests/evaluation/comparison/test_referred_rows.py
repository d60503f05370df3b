"""Answers without a label, by the rule alone: what is not said yet counts as lost, in whatever order labels come."""

from dataclasses import replace
from itertools import pairwise, permutations, product

import numpy as np
import pytest
from kit.catalogs import make_catalog

from vinelm.evaluation.comparison.referred_rows import ReferredAnswer, ReferredRows
from vinelm.evaluation.off_policy.buying import BoughtRows
from vinelm.evaluation.off_policy.scores import scored
from vinelm.evaluation.off_policy.steps import Rest, Step
from vinelm.rows.observation import Observation
from vinelm.template import Stage, Template
from vinelm.traces.served.replayed import SaidOf

SIDES = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.0, 0.0), (None, None))
"""What persons may say of today's answer and of another one; None: they skip."""


def answers(**others):
    """Today's answer and others to each of some requests, one unit each."""
    today = ReferredAnswer(unit=1, is_today=True, is_same=True)
    return {"today": today} | {
        name: ReferredAnswer(**{"unit": 1, "is_today": False, **about}) for name, about in others.items()
    }


def row(request, model, **fields):
    return Observation(
        **{
            "request_id": request, "prefix": (model,), "stage": "write", "success": None, "stopped": True, "cost_usd": 0.01,
            "latency_s": 1.0, "answer": model, "answer_digest": model, **fields,
        }
    )  # fmt: skip


def gains(said):
    """What mini and mid gain over today on a request that both answer otherwise."""
    rules = ReferredRows({"r": answers(mini={"is_same": False}, mid={"is_same": False})}, said)
    today, mini, mid = (float(one.success) for one in rules.scored([row("r", name) for name in ("today", "mini", "mid")]))
    assert all(0.0 <= score <= 1.0 for score in (today, mini, mid))
    return mini - today, mid - today


def test_of_two_questions_about_one_request_the_first_label_says_nothing_of_the_other_answer():
    assert gains({(1, "mini"): SaidOf(1, 0.0, 1.0)}) == (0.0, -1.0)  # mid may still be worse than today
    assert gains({(1, "mini"): SaidOf(1, 0.0, 1.0), (1, "mid"): SaidOf(2, 1.0, 0.0)})[1] == -1.0  # and persons say so
    assert gains({(1, "mini"): SaidOf(1, 0.0, 1.0), (1, "mid"): SaidOf(2, 0.0, 0.0)}) == (1.0, 0.0)


def test_no_order_of_labels_claims_more_on_the_way_than_at_its_end():
    for mini, mid in product(SIDES, repeat=2):
        labels = {(1, "mini"): SaidOf(1, *mini), (1, "mid"): SaidOf(2, *mid)}
        for order in permutations(labels):
            way = [gains({pair: labels[pair] for pair in order[:count]}) for count in range(3)]
            assert all(one <= other for before, after in pairwise(way) for one, other in zip(before, after, strict=True))


def test_what_holds_a_gain_back_is_asked_and_nothing_else():
    two = {"mini": {"is_same": False}, "mid": {"is_same": False}}
    rules = ReferredRows({"r": answers(**two), "s": answers(**two)}, {(1, "mini"): SaidOf(1, 0.0, 1.0)})
    assert rules.holding_back([("r", "mini")]) == {("r", "mid")}
    assert replace(rules, said={(1, "mini"): SaidOf(1, 1.0, 1.0)}).holding_back([("r", "mini")]) == frozenset()


def audited(losing, *, model="mini", count=60):
    """So many requests whose answer is the same and was asked about; the first ones lost."""
    about = {"is_same": True, "is_audited": True, "may_hide": True}
    known = {f"{model}{i}": {model: ReferredAnswer(unit=i, is_today=False, **about)} for i in range(count)}
    return known, {(i, model): SaidOf(i, 1.0, float(i >= losing)) for i in range(count)}


def test_what_the_same_answers_hide_is_a_matter_of_each_plan():
    mini, said_of_mini = audited(0)
    mid, said_of_mid = audited(30, model="mid")
    rules = ReferredRows(mini | mid, said_of_mini | said_of_mid)
    of_mini, of_mid = ([(request, name) for request in known] for known, name in ((mini, "mini"), (mid, "mid")))
    assert rules.hidden(of_mini) == pytest.approx(1.0 - 0.01 ** (1 / 60))
    assert rules.hidden(of_mid) > 0.5


def test_requests_that_say_the_same_are_audited_once():
    known, said = audited(0)
    pairs = [(request, "mini") for request in known]
    alike = ReferredRows(known, said, clusters=dict.fromkeys(range(60), "one prompt"))
    assert alike.hidden(pairs) == pytest.approx(0.99)  # of one question
    half = ReferredRows(known, said, clusters={i: str(i // 2) for i in range(60)})
    assert half.hidden(pairs) == pytest.approx(1.0 - 0.01 ** (1 / 30))


class _Runs:
    def __init__(self, model):
        self.model = model

    def step(self, seen):
        return Step(None if seen else self.model)

    def rest(self, seen):
        return Rest(0.5)


def test_requests_with_a_label_do_not_stand_for_those_without():
    """A row without a label counts where today has answered, too: one of five here, on which the model is worse."""
    names = [f"q{i:03d}" for i in range(200)]
    unlabelled = frozenset(names[100:])
    scores = {name: float(i % 10 < (9 if name not in unlabelled else 3)) for i, name in enumerate(names)}
    rows = [
        row(name, "m0", success=scores[name] if name not in unlabelled or int(name[1:]) % 50 < 10 else None) for name in names
    ]
    template = Template((Stage("write"),)).bind(tuple(make_catalog(2)))
    found = scored(_Runs("m0"), BoughtRows.of(names, rows, template, unlabelled=unlabelled))
    assert found.success.mean() == pytest.approx(np.mean(list(scores.values())))
    assert (
        scored(_Runs("m0"), BoughtRows.of(names, rows, template)).success.mean() > 0.7
    )  # together: of the labelled ones mostly
