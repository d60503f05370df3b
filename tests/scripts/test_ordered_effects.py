import gzip

import numpy as np
import pytest
from ordered_effects_parts import loops, scoring

HEAD = "dataset,question_id,model,round,answer,correct,cost_usd,latency_s\n"


@pytest.fixture(scope="module")
def parts():
    return loops, scoring


@pytest.fixture(scope="module")
def stubborn(tmp_path_factory, parts):
    """Three models of which each is right on its own 60 % of the questions, and never when it is asked again."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "outcomes").mkdir()
    rng = np.random.default_rng(1)
    lines = []
    for question in range(160):
        for model in "abc":
            right = rng.random() < 0.6
            lines.append(f"sat,{question},{model},1,{'A' if right else 'B'},{int(right)},0.01,1\n")
            if not right:
                lines.append(f"sat,{question},{model},2,B,0,0.01,1\n")
    with gzip.open(folder / parts[0].FILE, "wt") as file:
        file.writelines([HEAD, *lines])
    return parts[0].exams(folder, models_per_question=2)


def test_halves_of_the_questions_with_all_models_in_one(stubborn):
    training, held_out = ({row.request_id for row in rows} for rows in (stubborn.training, stubborn.held_out))
    assert not training & held_out
    assert len(training) + len(held_out) == 160
    assert {row.prefix for row in stubborn.held_out} >= {("a",), ("a", "a"), ("c", "c")}
    assert all(len({row.model for row in stubborn.training if row.request_id == one}) == 2 for one in training)


def test_a_model_that_repeats_its_mistake_is_foreseen_with_ordered_effects_only(parts, stubborn):
    _, scoring = parts
    found = {}
    for name in ("with", "without"):
        model = scoring.fitted(stubborn.training, stubborn.stages, ordered=name == "with")
        assert len(model.cost_by_fit) == len(model.cost_usd) == len(model.contexts)  # plans need dollars of every context
        levels = scoring.levels_of(model, stubborn.stages, stubborn.models)
        found[name] = scoring.forecasts(model, levels, stubborn.models, stubborn.held_out)
    assert found["with"].keys() == found["without"].keys()
    assert len(found["with"]) == sum(row.depth == 2 for row in stubborn.held_out)
    with_, without = (list(found[name].values()) for name in ("with", "without"))
    assert scoring.score(with_).ece < 5
    assert scoring.score(without).ece > 25
    mean, low, high = scoring.gain(with_, without)
    assert 0.2 < low < mean < high


def test_scores_of_known_forecasts(parts):
    _, scoring = parts
    sure = [scoring.Forecast(str(i), True, 0.8, i < 80) for i in range(100)]
    assert scoring.score(sure).ece == pytest.approx(0.0, abs=1e-9)
    wrong = [one._replace(chance=0.3) for one in sure]
    assert scoring.score(wrong).ece == pytest.approx(50.0)
    assert scoring.score(wrong).log_score == pytest.approx(0.8 * np.log(0.3) + 0.2 * np.log(0.7))
    assert scoring.gain(sure, wrong)[0] > 0
