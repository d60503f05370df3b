"""Plans under a common budget and deadline: simulated batches in virtual time whose prices and speeds are not the trie's."""

import heapq
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from kit.tries import routed_trie

from vinelm.batches.plan_shares import PlanShares
from vinelm.batches.steering import Steering
from vinelm.controller import Planner
from vinelm.errors import ConfigError
from vinelm.objective import Objective

BEST = Objective(maximize="accuracy")
TRIE = routed_trie(3, 3)
PLANNER = Planner(TRIE)
DEAREST = PLANNER.plan(BEST).path_cost_usd
CHEAPEST = PLANNER.plan(Objective(minimize="cost")).path_cost_usd
MIDDLE = (DEAREST + CHEAPEST) / 2


def results(keys, prices, speeds, seed):
    """What each request takes for a promised dollar and second: drifting from the first factor to the second one."""
    rng = np.random.default_rng(seed)
    usd, seconds = (np.linspace(*ends, len(keys)) * rng.lognormal(-0.08, 0.4, len(keys)) for ends in (prices, speeds))
    return dict(zip(keys, zip(usd, seconds, strict=True), strict=True))


class Run:
    """A simulated batch; ``reserved``: the bound of a request over its expected dollars; a ledger waits for room for it."""

    def __init__(
        self, requests=2000, workers=8, prices=(1.0, 1.0), speeds=(1.0, 1.0), seed=0, groups=None, reserved=0.0, **bounds
    ):
        self.keys = [f"request {number}" for number in range(requests)]
        self.workers, self.took, self.reserved = workers, results(self.keys, prices, speeds, seed), reserved
        asked = {"budget_usd": None, "deadline_s": None, "objective": BEST, "planner": PLANNER} | bounds
        self.made = lambda: Steering(**asked, keys=self.keys, workers=workers, groups=groups)
        self.room_usd = asked["budget_usd"] if reserved else np.inf
        self.plans, self.figures, self.elapsed_s = {}, {}, 0.0

    def go(self, until=None):
        """Serve; with ``until``, up to so many answers, as if it were killed then."""
        steering, under_way, held = self.made(), [], None
        for key, (usd, seconds) in self.figures.items():
            steering.ended(key, cost_usd=usd, seconds=seconds)
        left = [key for key in self.keys if key not in self.figures]
        while left or under_way:
            while left and len(under_way) < self.workers and not steering.waits(left[0]):
                bounds = sum(self.reserved * self.plans[key].usd for _, key, *_ in under_way)
                plan = held = held or steering.next(left[0], elapsed_s=self.elapsed_s, reserved_usd=bounds)
                if plan is not None and under_way and self.usd + bounds + self.reserved * plan.usd > self.room_usd:
                    break  # the ledger waits for one of them
                key, held = left.pop(0), None
                if plan is not None:
                    self.plans[key] = plan
                    usd, seconds = (a * b for a, b in zip((plan.usd, plan.seconds), self.took[key], strict=True))
                    heapq.heappush(under_way, (self.elapsed_s + seconds, key, usd, seconds))
            if under_way:
                self.elapsed_s, key, usd, seconds = heapq.heappop(under_way)
                steering.ended(key, cost_usd=usd, seconds=seconds)
                self.figures[key] = (usd, seconds)
            if until is not None and len(self.figures) >= until:
                break
        return self

    @property
    def usd(self):
        return sum(usd for usd, _ in self.figures.values())


@pytest.mark.parametrize("prices", [(1.0, 1.0), (0.7, 1.3), (1.3, 0.7), (1.3, 1.3), (0.7, 0.7)])
def test_it_lands_just_under_the_budget_and_answers_all_whatever_prices_do(prices):
    budget = 2000 * MIDDLE
    run = Run(prices=prices, budget_usd=budget).go()
    assert 0.99 * budget <= run.usd <= budget
    assert len(run.figures) == 2000


def test_a_budget_beyond_the_dearest_plan_changes_nothing():
    run = Run(budget_usd=4000 * DEAREST).go()
    assert [plan.usd for plan in run.plans.values()] == pytest.approx([DEAREST] * 2000)


@pytest.mark.parametrize("speeds", [(1.0, 1.0), (0.8, 1.3), (1.3, 0.8)])
@pytest.mark.parametrize("budget", [None, 2000 * MIDDLE])
def test_the_deadline_is_met_with_all_answered(speeds, budget):
    seconds = 0.75 * PLANNER.plan(BEST).expected_latency_s * 2000 / 8
    run = Run(speeds=speeds, budget_usd=budget, deadline_s=seconds).go()
    assert 0.95 * seconds <= run.elapsed_s <= seconds or run.usd > 0.99 * (budget or np.inf)
    assert len(run.figures) == 2000
    assert budget is None or run.usd <= budget


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_a_ledger_that_makes_workers_wait_at_the_end_leaves_nothing_unanswered(seed):
    """Half way between the cheapest plan and the quickest, with little to spare: no time is left to wait."""
    plans = PlanShares(PLANNER, BEST)
    ends = [plans.within(*bounds)[0].plan for bounds in ((0.0, None), (None, 0.0))]
    usd, seconds = (float(np.mean([getattr(plan, name) for plan in ends])) for name in ("usd", "seconds"))
    deadline = 1.1 * 2000 / 16 * seconds
    asked = {"workers": 16, "budget_usd": 1.06 * 2000 * usd, "deadline_s": deadline, "seed": seed}
    run = Run(**asked, reserved=8.0).go()
    assert len(run.figures) == 2000
    assert run.elapsed_s <= deadline
    assert run.usd <= run.room_usd


def test_a_floor_of_accuracy_is_bought_for_the_least_dollars_in_time():
    floor = Objective(minimize="cost", min_accuracy=0.8)
    free = Run(objective=floor).go()
    assert np.mean([plan.accuracy for plan in free.plans.values()]) == pytest.approx(0.8, abs=0.01)
    hurried = Run(objective=floor, deadline_s=0.9 * free.elapsed_s).go()
    assert np.mean([plan.accuracy for plan in hurried.plans.values()]) == pytest.approx(0.8, abs=0.015)
    assert hurried.elapsed_s <= 0.9 * free.elapsed_s
    assert hurried.usd > free.usd


def test_finish_all_takes_the_cheapest_plan_and_finish_good_leaves_the_rest():
    budget = {"budget_usd": 2000 * (CHEAPEST + 0.2 * (MIDDLE - CHEAPEST)), "prices": (1.0, 1.5)}
    everything, good = Run(**budget).go(), Run(**budget, finish="good").go()
    assert len(everything.figures) == 2000 > len(good.figures)
    assert good.usd == pytest.approx(budget["budget_usd"], rel=0.01)
    promised = good.made().forecast().accuracy
    assert np.mean([plan.accuracy for plan in good.plans.values()]) == pytest.approx(promised, abs=0.02)
    assert np.mean([plan.accuracy for plan in everything.plans.values()]) < promised - 0.01


def test_too_small_a_budget_and_a_deadline_that_has_passed_leave_the_rest_unanswered():
    run = Run(200, budget_usd=50 * CHEAPEST).go()
    assert 45 <= len(run.figures) <= 55
    assert [plan.usd for plan in run.plans.values()] == pytest.approx([CHEAPEST] * len(run.plans))
    assert len(Run(200, deadline_s=0.001).go().figures) == 0
    assert len(Run(1, budget_usd=CHEAPEST * 0.9).go().figures) == 0


@pytest.mark.parametrize("kills", [(1, 2, 3), (7, 50, 51, 170, 199)])
def test_an_interrupted_batch_goes_on_as_it_would_have(kills):
    asked = {"requests": 200, "workers": 4, "budget_usd": 200 * MIDDLE, "prices": (1.2, 0.8)}
    whole, cut = Run(**asked).go(), Run(**asked)
    for until in kills:
        cut.go(until)
    cut.go()
    figures = [(plan.usd, plan.accuracy) for plan in (cut.plans[key] for key in cut.keys)]
    assert figures == [(plan.usd, plan.accuracy) for plan in (whole.plans[key] for key in whole.keys)]
    assert cut.usd == pytest.approx(whole.usd)


def test_plans_do_not_depend_on_when_results_come():
    asked = {"requests": 400, "workers": 4, "budget_usd": 400 * MIDDLE, "prices": (1.2, 0.8)}
    one, other = Run(**asked).go(), Run(**asked, speeds=(0.2, 3.0)).go()
    assert [one.plans[key].usd for key in one.keys] == [other.plans[key].usd for key in one.keys]


def test_neighbours_of_a_group_follow_one_plan_and_the_budget_is_still_met():
    groups = [number // 5 for number in range(2000)]
    run = Run(groups=groups, budget_usd=2000 * MIDDLE).go()
    assert 0.99 * 2000 * MIDDLE <= run.usd <= 2000 * MIDDLE
    alone = Run(budget_usd=2000 * MIDDLE).go()
    pairs = [pair for at, pair in enumerate(pairwise(run.keys)) if groups[at] == groups[at + 1]]
    changes, otherwise = (sum(one.plans[a] is not one.plans[b] for a, b in pairs) for one in (run, alone))
    assert changes < 0.2 * otherwise  # at the starts of blocks, whose mixture may be another one
    cold, if_alone = (len({(groups[at], one.plans[key].usd) for at, key in enumerate(one.keys)}) for one in (run, alone))
    assert cold <= 1.05 * 400, "prefixes that are computed or bought cold: one for each group"
    assert if_alone > 1.25 * 400
    with pytest.raises(ConfigError, match="one for each"):
        Run(groups=[1], budget_usd=1.0).go()


def test_the_forecast_is_what_happens_if_the_trie_is_right():
    run = Run(budget_usd=2000 * MIDDLE, deadline_s=1e6).go()
    forecast = run.made().forecast()
    assert forecast.requests == 2000
    assert forecast.usd == pytest.approx(2000 * MIDDLE)
    assert forecast.accuracy == pytest.approx(np.mean([plan.accuracy for plan in run.plans.values()]), abs=0.01)
    assert forecast.seconds == pytest.approx(run.elapsed_s, rel=0.1)
    assert Run(100, budget_usd=10 * CHEAPEST).made().forecast().requests == 10
    assert Run(0, budget_usd=1.0).made().forecast().requests == 0
    with pytest.raises(ConfigError, match="knows no seconds"):
        Run(deadline_s=1.0, planner=Planner(replace(TRIE, latency_s=np.zeros(len(TRIE.trie))))).go()
