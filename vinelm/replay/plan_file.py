"""Writes a step's proven plan as a plan file, so that a canary can serve it to a share of the requests.

Accuracy in the file is relative to the recorded answers, which count as right. So today's model has accuracy 1, and the plan
has 1 plus its gain, or minus its loss, measured by the labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vinelm.catalog import Catalog
from vinelm.proof import Standing
from vinelm.replay.kept import ReplayUnit
from vinelm.replay.plans import PlanAnswer
from vinelm.template import Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray
from vinelm.trie.verdict import ComparedPlan, Verdict

REFERENCE = "the recorded answers"


def plan_file_of(
    step: str,
    *,
    today: str,
    plan: str,
    done: Sequence[tuple[ReplayUnit, PlanAnswer]],
    at: Standing,
    catalog: Catalog,
    max_loss: float,
) -> AnnotatedTrie:
    """Return the trie of one stage with two models: today's model and the proven model.

    Args:
        step: The name of the stage.
        today: The catalog entry of today's model.
        plan: The catalog entry of the proven model.
        done: Pairs (sampled call, the plan's answer to it), from which costs and latencies are computed.
        at: The state of the test in which the plan was proven.
        catalog: The models.
        max_loss: The allowed loss of accuracy, as a fraction.
    """
    models = catalog.subset((today, plan))
    template = Template((Stage(step, (today, plan)),))
    before, after = (np.array(usd) for usd in zip(*((unit.cost_usd, one.cost_usd) for unit, one in done), strict=True))
    timed = [(unit.latency_s, one.latency_s) for unit, one in done if unit.latency_s is not None and one.latency_s is not None]
    seconds = np.array(timed or [(0.0, 0.0)]).T  # without any latency the trie has none
    today_s, plan_s = seconds.mean(axis=1).tolist() if timed else (None, None)
    gain, count = min(at.diff, 0.0) if at.labels else 0.0, len(done)

    def nodes(of_today: float, of_plan: float) -> FloatArray:
        return np.array([0.0, of_today, of_plan])

    saved = before - after
    reach = 1.96 * float(saved.std()) / count**0.5
    differing = at.differing / max(at.requests, 1)
    lowest = -(at.proven or max_loss) * (1.0 - 1e-9)  # so that a rounding error does not count as a loss
    compared = ComparedPlan(
        policy="fixed", words=plan, models=(plan,), code=((step, plan),), cost_usd=float(after.mean()),
        cap_usd=float(after.mean()), accuracy=1.0 + gain, latency_s=plan_s, answers=at.labels,
        gain=gain, gain_low=lowest, gain_high=max(gain, differing), best_low=lowest, best_high=max(gain, differing),
        saved_usd=float(saved.mean()), saved_low=float(saved.mean()) - reach, saved_high=float(saved.mean()) + reach,
        is_same=False, is_identified=True,
    )  # fmt: skip
    verdict = Verdict(
        models={step: today}, accuracy=1.0, accuracy_low=1.0, accuracy_high=1.0, cost_usd=float(before.mean()),
        latency_s=today_s, requests=count, rows=count, plans=(compared,), max_loss=max_loss,
    )  # fmt: skip
    return AnnotatedTrie(
        Trie.from_template(template), template, models, success=nodes(1.0, 1.0 + gain), stop=nodes(1.0, 1.0),
        stop_success=nodes(1.0, 1.0 + gain), cost_usd=nodes(before.mean(), after.mean()),
        cost_var=nodes(before.var(), after.var()), latency_s=nodes(*seconds.mean(axis=1)),
        latency_var=nodes(*seconds.var(axis=1)), count=np.array([0, count, count]),
        meta={"workflow": "replay", "estimator": "replay", "reference": REFERENCE}, verdict=verdict,
    )  # fmt: skip
