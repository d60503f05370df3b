import numpy as np
import pytest

from vinelm.evaluation import PolicyRun
from vinelm.evaluation.verdicts.budget_sweep import BudgetSweep, judge_sweep
from vinelm.evaluation.verdicts.verdict import PolicyComparison, compare
from vinelm.objective import Objective
from vinelm.reports import sweep_line, sweep_rows, verdict_headline

N = 400
CAPS = (0.01, 0.02, 0.04)


def run_of(policy: str, n_right: int, cost: float = 0.01) -> PolicyRun:
    return PolicyRun(
        policy=policy, plan="plan", success=np.arange(N) < n_right, cost_usd=np.full(N, cost), latency_s=np.ones(N)
    )


def sweep_of(vinelm, static, single, models=(), cost=0.01, **others) -> BudgetSweep:
    """Each number: right answers under each budget."""
    given = {"vinelm": ("VineLM", vinelm), "static": ("best static plan", static), "single": ("best single model", single)}
    given |= {role: (role, numbers) for role, numbers in others.items()}
    runs = {
        role: tuple(run_of(name, n, cost if role == "vinelm" else 0.01) for n in numbers)
        for role, (name, numbers) in given.items()
    }
    return BudgetSweep(caps=CAPS, runs=runs, models=tuple(models))


def test_the_mean_over_the_budgets_is_judged_by_one_interval():
    found = judge_sweep(sweep_of((200, 240, 280), (200, 210, 220), (150, 150, 150)))
    assert found.static.difference.value == pytest.approx((0 + 30 + 60) / 3 / N)
    assert found.static.outcome == found.single.outcome == "gain"
    assert found.is_gain
    assert found.accuracy == pytest.approx(240 / N)
    assert "use VineLM." in sweep_line(found)


def test_a_loss_under_one_budget_counts_against_a_gain_under_another():
    found = judge_sweep(sweep_of((240, 200, 200), (200, 240, 200), (100, 100, 100)))
    assert found.static.difference.value == pytest.approx(0.0)
    assert found.static.outcome == "no gain shown"
    assert not found.is_gain
    assert found.beats_single
    assert sweep_line(found).endswith("use VineLM or the static plan.")


def test_an_advantage_that_breaks_its_budget_does_not_count():
    found = judge_sweep(sweep_of((300, 200, 200), (200, 200, 200), (200, 200, 200), cost=0.015))
    assert found.static.exceeded == 1
    assert found.static.difference.value == pytest.approx(0.0)
    assert not found.is_gain
    lost = judge_sweep(sweep_of((100, 200, 200), (200, 200, 200), (200, 200, 200), cost=0.015))
    assert lost.static.outcome == "loss"  # a disadvantage counts all the same


def test_a_single_model_that_turned_out_better_forbids_a_gain():
    sweep = sweep_of((240, 240, 240), (200, 200, 200), (150, 150, 150), models=(run_of("m7", 260), run_of("m8", 390, cost=0.5)))
    found = judge_sweep(sweep)
    assert found.static.outcome == found.single.outcome == "gain"
    assert found.hindsight.difference.value < 0  # m7; m8 breaks every budget
    assert not found.is_gain
    assert found.model == "m7"
    alone = judge_sweep(sweep_of((200, 200, 200), (200, 200, 200), (200, 200, 200), models=(run_of("m7", 200),)))
    assert alone.model == "m7"  # by its name, not as the best single model
    assert sweep_line(found).endswith("use a single model.")


def test_further_policies_are_shown_and_not_judged():
    found = judge_sweep(sweep_of((240, 240, 240), (200, 200, 200), (150, 150, 150), vote=(390, 390, 390)))
    assert found.is_gain
    assert found.others["vote"].outcome == "loss"
    assert [role for role, _ in sweep_rows(found)] == ["vinelm", "vote", "static", "single", "hindsight"]


def comparison_of(vinelm: int, static: int, single: int) -> PolicyComparison:
    return PolicyComparison(
        objective=Objective(maximize="accuracy", max_cost_usd=0.02),
        vinelm=run_of("VineLM", vinelm),
        static=run_of("best static plan", static),
        single=run_of("best single model", single),
        model="m1",
    )


def test_the_headline_says_the_sweep_first():
    gain = sweep_of((240, 240, 240), (200, 200, 200), (150, 150, 150))
    even = sweep_of((200, 200, 200), (200, 200, 200), (200, 200, 200))
    over_single = sweep_of((200, 200, 200), (200, 200, 200), (100, 100, 100))
    equal, better = comparison_of(200, 200, 200), comparison_of(300, 200, 200)
    over_all = "Gain over the best static plan and the best single model on average over 3 budgets"
    assert verdict_headline(compare([equal], sweep=gain)) == f"{over_all}."
    assert verdict_headline(compare([better], sweep=gain)) == f"{over_all}; under 1 of 1 objectives by itself."
    assert verdict_headline(compare([better], sweep=even)).endswith("under 1 of 1 objectives.")
    assert "on average over 3 budgets; no significant gain over" in verdict_headline(compare([equal], sweep=over_single))
    assert verdict_headline(compare([equal], sweep=even)).startswith("No gain: use model ")
    assert compare([equal], sweep=gain).is_gain
    assert compare([better], sweep=even).is_gain
    assert not compare([equal], sweep=even).is_gain
