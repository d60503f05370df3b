from dataclasses import replace

import numpy as np
import pytest

from vinelm.evaluation import PolicyRun
from vinelm.evaluation.verdicts.verdict import PolicyComparison, compare
from vinelm.objective import Objective
from vinelm.reports import advice_text, difference_text, verdict_headline, verdict_lines

N = 400


def make_run(policy, success, cost=0.01, latency=1.0, plan="plan") -> PolicyRun:
    return PolicyRun(
        policy=policy, plan=plan, success=np.asarray(success, bool), cost_usd=np.full(N, cost), latency_s=np.full(N, latency)
    )


def first(n: int) -> np.ndarray:
    return np.arange(N) < n


def make_comparison(vinelm, static, single, objective=None) -> PolicyComparison:
    return PolicyComparison(
        objective=objective or Objective(maximize="accuracy", max_cost_usd=0.02),
        vinelm=vinelm,
        static=static,
        single=single,
        model="m1",
    )


def test_a_clear_gain_over_both_is_a_gain():
    comparison = make_comparison(make_run("VineLM", first(300)), make_run("static", first(200)), make_run("m1", first(150)))
    verdict = compare([comparison])
    assert verdict.gains == verdict.results
    assert advice_text(verdict.results[0]) == "use VineLM"
    assert verdict_headline(verdict) == "Gain over the best static plan and the best single model under 1 of 1 objectives."


def test_a_difference_whose_interval_contains_zero_is_never_a_gain():
    b = first(200)
    a = b.copy()
    a[:10], a[390:], a[380:384] = False, True, True  # 14 requests won, 10 lost
    assert a.mean() > b.mean()
    verdict = compare([make_comparison(make_run("VineLM", a), make_run("static", b), make_run("m1", b))])
    comparison = verdict.results[0].static
    assert comparison.difference.low < 0 < comparison.difference.high
    assert comparison.outcome == "no gain shown"
    assert verdict_headline(verdict) == "No gain: use model m1."


def test_a_gain_bought_by_breaking_the_budget_is_none():
    comparison = make_comparison(
        make_run("VineLM", first(300), cost=0.03), make_run("static", first(200)), make_run("m1", first(150))
    )
    verdict = compare([comparison])
    assert verdict.results[0].static.overshot
    assert not verdict.gains
    assert "misses a bound by more" in verdict_lines(verdict)[0]
    assert "VineLM's mean cost of $0.0300 is over the budget" in verdict_lines(verdict)[0]


def test_a_cheaper_plan_below_the_floor_is_no_gain():
    objective = Objective(minimize="cost", min_accuracy=0.5)
    rivals = (make_run("static", first(220), cost=0.02), make_run("m1", first(220), cost=0.02))
    assert not compare([make_comparison(make_run("VineLM", first(170), cost=0.01), *rivals, objective)]).gains
    by_chance = compare([make_comparison(make_run("VineLM", first(199), cost=0.01), *rivals, objective)])
    assert by_chance.gains  # half the plans that sit on their floor end a little below it
    assert "VineLM's accuracy of 49.8 % is below the floor" in verdict_lines(by_chance)[0]
    assert advice_text(by_chance.results[0]) == "use VineLM only if the floor may be missed, else model m1"
    assert verdict_headline(by_chance).endswith("under 1 of 1 objectives, but there VineLM misses a bound.")
    assert compare([make_comparison(make_run("VineLM", first(200), cost=0.01), *rivals, objective)]).gains


def test_the_headline_counts_the_gains_that_miss_a_bound():
    kept = make_comparison(make_run("VineLM", first(300)), make_run("static", first(200)), make_run("m1", first(150)))
    objective = Objective(minimize="cost", min_accuracy=0.5)
    rivals = (make_run("static", first(220), cost=0.02), make_run("m1", first(220), cost=0.02))
    missed = make_comparison(make_run("VineLM", first(199), cost=0.01), *rivals, objective)
    assert verdict_headline(compare([kept, missed])).endswith("2 of 2 objectives, but in 1 of them VineLM misses a bound.")
    assert verdict_headline(compare([missed, missed])).endswith("2 of 2 objectives, but each time VineLM misses a bound.")
    assert "bound" not in verdict_headline(compare([kept, kept]))


def test_a_loss_is_said():
    verdict = compare(
        [make_comparison(make_run("VineLM", first(100)), make_run("static", first(200)), make_run("m1", first(200)))]
    )
    assert verdict.results[0].static.outcome == "loss"
    assert "loss" in verdict_lines(verdict)[0]
    assert verdict_headline(verdict) == "No gain: use model m1."


def test_a_gain_over_the_single_model_only_recommends_the_static_plan():
    comparison = make_comparison(
        make_run("VineLM", first(300)), make_run("static", first(300), plan="a, then b"), make_run("m1", first(150))
    )
    verdict = compare([comparison])
    assert not verdict.gains
    assert "no significant gain over the best static plan" in verdict_headline(verdict)
    assert "a, then b" in verdict_lines(verdict)[0]
    assert advice_text(verdict.results[0]) == "use VineLM or the static plan “a, then b”"


def test_a_single_model_that_turned_out_better_forbids_a_gain():
    rivals = (make_run("static", first(200)), make_run("best single model", first(150)))
    comparison = make_comparison(make_run("VineLM", first(300)), *rivals)
    comparison = replace(comparison, others=(make_run("m7", first(310)), make_run("m8", first(390), cost=0.5)))
    verdict = compare([comparison])
    assert comparison.best_single_in_hindsight.policy == "m7"  # m8 breaks the budget
    assert verdict.results[0].static.outcome == "gain"
    assert not verdict.gains
    assert verdict_headline(verdict) == "No gain: use model m7."
    assert "m7, the best single model in hindsight" in verdict_lines(verdict)[0]


def test_missing_the_floor_by_less_than_a_rival_is_no_gain_where_some_model_keeps_it():
    objective = Objective(minimize="cost", min_accuracy=0.64)
    rivals = (make_run("static", first(210), cost=0.03), make_run("best single model", first(210), cost=0.03))
    comparison = make_comparison(make_run("VineLM", first(229), cost=0.01), *rivals, objective)
    nearest = compare([comparison])
    assert nearest.gains  # nobody keeps the floor, VineLM comes nearest and costs least
    assert advice_text(nearest.results[0]) == "use VineLM only if the floor may be missed"
    kept = compare([replace(comparison, others=(make_run("m7", first(260), cost=0.02),))])
    assert kept.results[0].static.outcome == kept.results[0].single.outcome == "gain"
    assert not kept.gains
    assert advice_text(kept.results[0]) == "use model m7"
    assert verdict_headline(kept) == "No gain: use model m7."
    assert "m7, the best single model in hindsight, stays closer to the bounds" in verdict_lines(kept)[0]


def test_more_objectives_ask_for_wider_intervals():
    rng = np.random.default_rng(2)
    comparison = make_comparison(
        make_run("VineLM", rng.random(N) < 0.6), make_run("static", rng.random(N) < 0.5), make_run("m1", first(9))
    )
    alone, among = compare([comparison]).results[0].static.difference, compare([comparison] * 3).results[0].static.difference
    assert compare([comparison] * 3).level == pytest.approx(1 - 0.05 / 3)
    assert among.low < alone.low < alone.high < among.high


@pytest.mark.parametrize(
    ("objective", "text"),
    [
        (Objective(maximize="accuracy"), "+25.0 points"),
        (Objective(minimize="cost"), "-50 % cost (-50 to -50)"),
        (Objective(minimize="latency"), "-2.00 s (-2.00 to -2.00)"),
    ],
)
def test_differences_read_in_the_objectives_unit(objective, text):
    comparison = make_comparison(
        make_run("VineLM", first(300), cost=0.01, latency=1.0),
        make_run("static", first(200), cost=0.02, latency=3.0),
        make_run("m1", first(100)),
        objective,
    )
    comparison = compare([comparison]).results[0].static
    assert difference_text(comparison, objective).startswith(text)
