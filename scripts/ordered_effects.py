"""What ordered effects are worth: later answers as later answers, against later answers as if they were first ones.

The model of answers gives a later answer effects of its own: of coming later, and of the same model asked again, which often
repeats itself. This script fits it with and without them to sparse rows. It scores on held-out requests what each fit says
about later answers, by the log score and the calibration error of P(right), and compares what plans promise and achieve.

    python scripts/ordered_effects.py [--data DIR] [--json]

With --data, real models that answer exam questions again after being told that they are wrong. Always, the loops of mathqa
and nl2sql with simulated models, whose calculations and queries are really checked. About a minute on two idle cores.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ordered_effects_parts.loops import FeedbackLoop, exams, simulated
from ordered_effects_parts.scoring import fitted, forecasts, gain, levels_of, score
from studies import Options, study

from vinelm.api.estimation import estimate_store
from vinelm.estimator.signals.build import signals_trie
from vinelm.estimator.signals.predictive import Predictive
from vinelm.objective import Objective
from vinelm.verdicts import verify

BUDGET_USD = {"mathqa": 0.002, "nl2sql": 0.002}
SERVED = 100
LOOPS = {"exams": "exams, **real**", "mathqa": "mathqa, simulated", "nl2sql": "nl2sql, simulated"}
TOLD = "same model, told that it is wrong"


def judged(loop: FeedbackLoop, *, served: int) -> dict[str, Any]:
    """Everything that is printed of one loop."""
    fits = {name: fitted(loop.training, loop.stages, ordered=name == "with") for name in ("with", "without")}
    said = {
        name: forecasts(fit, levels_of(fit, loop.stages, loop.models), loop.models, loop.held_out) for name, fit in fits.items()
    }
    common = sorted(said["with"].keys() & said["without"].keys())
    found: dict[str, Any] = {"about": loop.about, "training_rows": len(loop.training), "kinds": {}}
    for kind, is_again in (("same model again", True), ("another model", False)):
        chosen = [place for place in common if said["with"][place].is_again == is_again]
        if not chosen:
            continue
        of = {name: [said[name][place] for place in chosen] for name in fits}
        found["kinds"][kind] = {
            **{name: asdict(score(of[name])) for name in fits}, "gain": gain(of["with"], of["without"]),
        }  # fmt: skip
    found["plans"] = {name: _plan(fit, loop, served) for name, fit in fits.items()}
    return found


def _plan(fit: Predictive, loop: FeedbackLoop, served: int) -> dict[str, float]:
    """What a plan promises and achieves, in points."""
    if loop.store is None or loop.workflow is None:
        return _asked_twice(fit, loop)
    annotated = estimate_store(loop.store, estimator="latent")
    with_outcomes = replace(annotated, signals=signals_trie(annotated, fit, goes_on=True))
    objective = Objective(maximize="accuracy", max_cost_usd=BUDGET_USD[loop.name])
    result = verify(loop.store, with_outcomes, objective, workflow=loop.workflow, requests=served, signals=True)
    return {"promised": 100 * result.decision.promise.accuracy, "achieved": 100 * float(result.accuracy or 0.0)}


def _asked_twice(fit: Predictive, loop: FeedbackLoop) -> dict[str, float]:
    """The mean over models of: ask, and ask the same model again if it was wrong. Held-out rows hold every model's answers."""
    first, second = levels_of(fit, loop.stages, loop.models)
    passed = [label.passed for label in fit.labels]
    promised, achieved = [], []
    for m, name in enumerate(loop.models):
        ends = sum(reach for i, reach in enumerate(first.reach) if first.model[i] == m and passed[first.label[i]])
        ends += sum(
            reach
            for i, reach in enumerate(second.reach)
            if second.model[i] == first.model[second.parent[i]] == m
            and passed[second.label[i]]
            and not passed[first.label[second.parent[i]]]
        )
        rows = [row for row in loop.held_out if row.model == name]
        promised.append(100 * ends)
        achieved.append(100 * sum(bool(row.success) for row in rows) / sum(row.depth == 1 for row in rows))
    errors = [abs(a - b) for a, b in zip(promised, achieved, strict=True)]
    n = len(errors)
    return {"promised": sum(promised) / n, "achieved": sum(achieved) / n, "mean_error": sum(errors) / n}


def page_figures(found: dict[str, Any]) -> dict[str, Any]:
    """One row per loop and kind of later answer; what plans promise and achieve by loop, in points."""
    rows = [
        {"loop": LOOPS[name], "kind": TOLD if name == "exams" else kind, **values}
        for name, loop in found.items()
        for kind, values in loop["kinds"].items()
    ]
    training = {name: loop["training_rows"] for name, loop in found.items()}
    return {"rows": rows, "training_rows": training, "plans": {name: loop["plans"] for name, loop in found.items()}}


def lines(name: str, found: dict[str, Any]) -> Iterator[str]:
    yield f"\n{name}: {found['about']}; {found['training_rows']:,} training rows"
    for kind, values in found["kinds"].items():
        yield f"  {kind}, {values['with']['n']:,} held-out answers, {100 * values['with']['mean_right']:.1f} % right"
        for which in ("without", "with"):
            one = values[which]
            yield (
                f"    {which:8} ordered effects: log score {one['log_score']:.3f}, calibration error {one['ece']:4.1f} points, "
                f"mean P(right) {100 * one['mean_said']:.1f} %"
            )
        mean, low, high = values["gain"]
        yield f"    gained {mean:+.3f} nats per answer (95 % interval {low:+.3f} to {high:+.3f})"
    for which in ("without", "with"):
        plan = found["plans"][which]
        more = f", mean error by model {plan['mean_error']:.1f} points" if "mean_error" in plan else ""
        gap = plan["promised"] - plan["achieved"]
        yield (
            f"  plan {which:8}: promised {plan['promised']:.1f} %, achieved {plan['achieved']:.1f} % ({gap:+.1f} points{more})"
        )


def main(words: Sequence[str] | None = None) -> int:
    options = {
        "--requests": (200, "training requests of a simulated loop, and as many held out"),
        "--calls": (900, "calls of each profile"),
        "--served": (SERVED, "requests that are served to a plan"),
    }
    about = "folder of the recorded answers"
    return study(__doc__, options, measured, page=page_figures, data=about, needs_data=False, words=words)


def measured(options: Options) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        loops = [exams(options.data)] if options.data else []
        for name, preset in (("mathqa", "paper-math"), ("nl2sql", "paper-4")):
            loops.append(simulated(name, preset, Path(folder), requests=options.requests, calls=options.calls))
        for loop in loops:
            found[loop.name] = judged(loop, served=options.served)
            for line in lines(loop.name, found[loop.name]):
                options.say(line)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
