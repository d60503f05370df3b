"""What judges say in the latent model of answers: its likelihood is found again, with its slope on how easy requests are."""

import numpy as np
import pytest

from vinelm.estimator.signals.answers import AnswerTable, Context
from vinelm.estimator.signals.course import Course
from vinelm.estimator.signals.histories import histories
from vinelm.estimator.signals.predictive import Predictive
from vinelm.estimator.signals.verdicts import Verdicts
from vinelm.rows.observation import Observation
from vinelm.signals import Label
from vinelm.template import SKIP, Loop, Stage, Template

TEMPLATE = Template((Loop((Stage("solve", ("a", "b")), Stage("verify", ("j",), optional=True, verdict="v")), times=2),)).bind(
    ("a", "b", "j")
)

MODELS = ("a", "b", "j", SKIP)


def rows(n=600, seed=0):
    """yes to 80 % of right and 30 % of wrong answers; every second request is judged."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        right, name = bool(rng.random() < 0.6), f"r{i}"
        said = "yes" if rng.random() < (0.8 if right else 0.3) else "no"
        common = {"request_id": name, "success": right, "stopped": False, "latency_s": 1.0, "answer_class": 0}
        found.append(Observation(prefix=("a",), stage="solve", cost_usd=0.01, **common))
        found.append(Observation(prefix=("b",), stage="solve", cost_usd=0.01, **common))
        model, cost, signal = ("j", 0.002, said) if i % 2 else (SKIP, 0.0, None)
        found.append(Observation(prefix=("a", model), stage="verify", cost_usd=cost, signal=signal, **common))
    return found


@pytest.fixture(scope="module")
def model():
    return Predictive.of(AnswerTable.of(rows(), Course.of(TEMPLATE)), fits=0)


def test_a_verdict_moves_the_probability_as_bayes_says_and_a_skip_does_not(model):
    solved, judged = histories(model, Course.of(TEMPLATE), MODELS, goes_on=True)[:2]
    of_a = solved.model == 0
    first = solved.right[of_a, 0].sum()
    assert first == pytest.approx(0.6, abs=0.05)
    by = {}
    for i in np.flatnonzero((judged.kind == 0) & of_a[judged.parent]):
        label = model.labels[judged.label[i]]
        by.setdefault((int(judged.model[i]), label.signal), []).append((judged.reach[i], judged.right[i, 0]))
    share = {key: sum(right for _, right in some) / sum(reach for reach, _ in some) for key, some in by.items()}
    assert share[2, "yes"] == pytest.approx(0.6 * 0.8 / (0.6 * 0.8 + 0.4 * 0.3), abs=0.05)
    assert share[2, "no"] == pytest.approx(0.6 * 0.2 / (0.6 * 0.2 + 0.4 * 0.7), abs=0.07)
    before = solved.right[of_a & (solved.kind == 0), 0].sum() / solved.reach[of_a & (solved.kind == 0)].sum()
    assert share[3, None] == pytest.approx(before, abs=1e-9)
    assert sum(reach for some in (by[2, "yes"], by[2, "no"]) for reach, _ in some) == pytest.approx(
        solved.reach[of_a & (solved.kind == 0)].sum()
    )


def test_asked_again_about_the_same_answer_it_says_the_same():
    model = Predictive.of(AnswerTable.of(rows(), Course.of(TEMPLATE)), fits=0)
    _, second, third, last = histories(model, Course.of(TEMPLATE), MODELS, goes_on=True, least_reach=0.0)
    first_verdict = third.parent[last.parent]
    asked = (last.model == 2) & (last.kind == 0) & (second.model[first_verdict] == 2) & (second.kind[first_verdict] == 0)
    said = np.array([label.signal or "" for label in model.labels])
    assert asked.sum() > 1
    assert np.array_equal(said[last.label[asked]], said[second.label[first_verdict][asked]])


def test_the_slope_is_found():
    context = Context("verify", "j", False, False, (), False, (), True)
    labels = (Label(False, "no"), Label(False, "yes"))
    verdicts = Verdicts((context,), labels, np.zeros(2, np.int64), np.arange(2), np.full(2, -1), np.zeros(2, np.bool_))
    easy = np.linspace(-3.0, 3.0, 7)
    yes = 1.0 / (1.0 + np.exp(-(0.5 + 0.4 * easy)))
    counts = np.zeros((*verdicts.shape, len(easy)))
    counts[0, 0] = 2000.0 * np.stack([1.0 - yes, yes])
    effects = verdicts.no_effects()
    for _ in range(30):
        effects = verdicts.stepped(effects, counts, easy)
    assert np.exp(verdicts.log_chances(effects, easy))[0, 0, 1] == pytest.approx(yes, abs=0.01)
    assert np.exp(verdicts.log_chances(effects, easy)).sum(axis=2) == pytest.approx(1.0)
