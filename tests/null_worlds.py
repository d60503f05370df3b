"""Small simulated worlds for the verdict: tables of outcomes, where more freedom than a static plan helps or not."""

from dataclasses import dataclass

import numpy as np
from conftest import make_catalog, make_template

from vinelm.evaluation.policy_plans import Plans
from vinelm.evaluation.replay import path_policies, replayed_comparison, single_model_runs
from vinelm.evaluation.sweep import frontier_range, showcase, spaced_caps
from vinelm.evaluation.verdicts.budget_sweep import BudgetSweep
from vinelm.evaluation.verdicts.cross_fitting import common_objectives, crossed_policy, joined_comparisons, joined_runs
from vinelm.evaluation.verdicts.verdict import Verdict, compare
from vinelm.objective import Objective
from vinelm.recorded_table import RecordedTable
from vinelm.trie import Trie

N_REQUESTS = 160
"""Requests of a world; half of them judge each plan."""


@dataclass(frozen=True)
class World:
    """A world of three models, drawn with a seed.

    Kinds: "alike", all models equal in all; "one-wins", one model cheaper and better than the others; "gain" and "small gain",
    in which a third model mends what two others left, while a model that is asked twice in a row does not, so that no static
    plan is best.
    """

    kind: str
    seed: int

    def table(self) -> RecordedTable:
        """Draw the complete table. Requests differ in difficulty; every call draws its own answer, price and time."""
        rng = np.random.default_rng([self.seed, len(self.kind)])
        template = make_template(3, 3)
        trie = Trie.from_template(template)
        shape = (N_REQUESTS, len(trie))
        chance = np.clip(self._skill(trie) + 0.25 * rng.standard_normal(N_REQUESTS)[:, None], 0.02, 0.98)
        success = rng.random(shape) < chance
        stopped = rng.random(shape) < np.where(success, 0.95, 0.15)
        success[:, 0], stopped[:, 0] = False, False
        price = np.array([0.4, 1.0, 1.5])[trie.model] if self.kind == "one-wins" else np.ones(len(trie))
        return RecordedTable(
            template=template,
            catalog=make_catalog(3),
            trie=trie,
            request_ids=tuple(f"q{i}" for i in range(N_REQUESTS)),
            success=success,
            stopped=stopped,
            cost_usd=price * rng.lognormal(-6, 0.4, shape) * (trie.depth > 0),
            latency_s=rng.lognormal(0, 0.4, shape) * (trie.depth > 0),
        )

    def _skill(self, trie: Trie) -> np.ndarray:
        """Chance of a right answer at each node for a request of mean difficulty."""
        if self.kind == "one-wins":
            return np.array([0.7, 0.5, 0.45])[trie.model]
        skill = np.full(len(trie), 0.4)
        gain = {"gain": 0.5, "small gain": 0.25}.get(self.kind, 0.0)
        for node in np.flatnonzero(trie.depth == 3):
            used = trie.prefix(int(node))
            skill[node] += gain if len(set(used)) == 3 else -gain / 2
        return skill


def verdict_of(world: World, *, crosses: bool = True) -> Verdict:
    """Return the verdict of a world: plans from the complete table of one half, judged on the other.

    With ``crosses`` the halves then change places, and a sweep of budgets is judged, too.
    """
    table = world.table()
    halves = [range(0, N_REQUESTS, 2), range(1, N_REQUESTS, 2)]
    parts = [(Plans(table.rows(halves[k]).annotate()), table.rows(halves[1 - k])) for k in range(2 if crosses else 1)]
    objectives = common_objectives([showcase(plans) for plans, _ in parts])
    found = [[replayed_comparison(plans, judge, objective) for plans, judge in parts] for objective in objectives]
    comparisons = [joined_comparisons(each) for each in found if all(one is not None for one in each)]
    return compare(comparisons, sweep=_sweep(parts) if crosses else None, seed=world.seed)


def _sweep(parts: list[tuple[Plans, RecordedTable]]) -> BudgetSweep:
    crossed = [path_policies(plans, judge) for plans, judge in parts]
    policies = {role: crossed_policy([part[role] for part in crossed]) for role in ("vinelm", "static", "single")}
    ranges = [frontier_range(plans) for plans, _ in parts]
    caps = spaced_caps(max(r.cheapest_usd for r in ranges), max(r.dearest_usd for r in ranges), "max_cost_usd", 6)
    budgets = [Objective(maximize="accuracy", max_cost_usd=cap) for cap in caps]
    return BudgetSweep(
        caps=tuple(caps),
        runs={role: tuple(policy.run(budget) for budget in budgets) for role, policy in policies.items()},
        models=tuple(joined_runs(runs) for runs in zip(*(single_model_runs(*part) for part in parts), strict=True)),
    )
