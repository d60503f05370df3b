"""Small stores of each kind, and what the verbs make of them: rows, tries, plans and verdicts.

Two are profiled from a small application (as it is, and with merged histories), one from the support desk, one is the demo's;
three are made of random walks, whose rows depend on nothing of ours.
"""

from __future__ import annotations

import contextlib
import io
import math
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from freeze_parts.plans import NO_PLAN, REFUSED, digest, next_of
from freeze_parts.tries import catalog_of

import vinelm
from vinelm import Loop, Objective, ObservationStore, Stage, Template
from vinelm.errors import InfeasibleError, VineLMError
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Observation
from vinelm.template import Branch
from vinelm.traces import StoreIdentity
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import NODE_ARRAYS, OPTIONAL_ARRAYS

APPLICATION = Path(__file__).resolve().parents[2] / "tests" / "house" / "before"
"""A small application with its models and questions."""
ESTIMATORS = ("latent", "average", "prefix-average", "prefix-impute", "prefix-xgboost", "cascade", "cascade-svd")
MODELS = ("small", "mid", "large")


# -- stores of applications --------------------------------------------------------------------------------------------


def application(folder: Path) -> Path:
    """Every cell of the small application."""
    return _profiled(folder, _workflow(), coverage=1.0)


def merged_application(folder: Path) -> Path:
    """A sample of the same where the loop keeps the last choice only."""
    template = Template((Stage("solve"), Loop((Stage("fix"),), times=3, memory=1)))
    return _profiled(folder, replace(_workflow(), template=template), coverage=0.6)


def support(folder: Path) -> Path:
    """A sample of the bundled support desk, whose graph branches."""
    return _profiled(folder, "support", coverage=0.03)


def demo(folder: Path) -> Path:
    """The demo's sample."""
    from vinelm.cli.main import main

    path = folder / "store.db"
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(["profile", "nl2sql", "--store", str(path), "--coverage", "0.05", "--seed", "0", "--quiet"])
    if code:
        raise SystemExit("vinelm profile nl2sql failed")
    return path


def _workflow() -> Any:
    sys.path.insert(0, str(APPLICATION))
    try:
        sys.modules.pop("my_app", None)
        from my_app import workflow
    finally:
        sys.path.remove(str(APPLICATION))
        sys.modules.pop("my_app", None)
    return workflow


def _profiled(folder: Path, workflow: Any, coverage: float) -> Path:
    path = folder / "store.db"
    vinelm.profile(workflow, str(APPLICATION / "models.toml"), path, coverage=coverage, seed=0)
    return path


# -- stores of random walks --------------------------------------------------------------------------------------------


def walks(folder: Path) -> Path:
    """A chain with signals and answers."""
    return _walked(folder, Template((Stage("answer", MODELS), Loop((Stage("retry", MODELS),), 2))), has_answers=True)


def branching_walks(folder: Path) -> Path:
    """A router to one of two desks, and a common reply."""
    two = MODELS[:2]
    desks = Branch({"left": (Stage("left", two, answerable=False),), "right": (Stage("right", two), Stage("check", two))})
    return _walked(folder, Template((Stage("router", two, answerable=False), desks, Stage("reply", two))))


def merged_walks(folder: Path) -> Path:
    """An agent of four turns that remembers the last two choices."""
    return _walked(folder, Template((Loop((Stage("agent", MODELS),), 4, memory=2),)))


def _walked(folder: Path, template: Template, requests: int = 120, each: int = 3, *, has_answers: bool = False) -> Path:
    catalog = catalog_of(template.models)
    identity = StoreIdentity(
        workflow="walks", template=template.to_dict(), catalog=catalog.to_dict(), dataset_digest="d",
        fingerprint={"scorer": "code"}, is_simulated=True, created_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    path = folder / "store.db"
    walker = _Walker(template, has_answers=has_answers)
    with ObservationStore.create(path, identity) as store:
        ids = [f"q{at:03d}" for at in range(requests)]
        store.register([Request(name, {"q": name}) for name in ids])
        for name in ids:
            store.add_many(list(walker.rows(name, each)))
    return path


class _Walker:
    """Draws rows of requests of random difficulty; expensive models are right more often."""

    def __init__(self, template: Template, *, has_answers: bool) -> None:
        self._template, self._trie, self._has_answers = template, Trie.from_template(template), has_answers

    def rows(self, request: str, walks: int) -> Iterator[Observation]:
        """The rows of so many walks of a request, those in common once."""
        rng = random.Random(f"frozen walks {request}")
        difficulty, known = rng.gauss(0.0, 1.2), dict[tuple[str, ...], Observation]()
        for _ in range(walks):
            node, prefix, stage = 0, (), next(iter(self._trie.arms(0)))
            while stage is not None:
                model = rng.choice(self._template.stage(stage).models or ())
                prefix = (*prefix, model)
                node = self._trie.child(node, model, stage)
                if prefix not in known:
                    arms = list(self._trie.arms(node))
                    known[prefix] = self._row(rng, request, difficulty, prefix=prefix, stage=stage, arms=arms)
                row = known[prefix]
                following = list(self._trie.arms(node))
                stage = None if row.stopped or not following else row.arm or following[0]
        yield from known.values()

    def _row(
        self, rng: random.Random, request: str, difficulty: float, *, prefix: tuple[str, ...], stage: str, arms: list[str]
    ) -> Observation:
        rank = MODELS.index(prefix[-1])
        is_answer = self._template.stage(stage).answerable
        right = is_answer and rng.random() < 1.0 / (1.0 + math.exp(difficulty - 0.9 * rank))
        stopped = is_answer and rng.random() < (0.8 if right else 0.2)
        is_linear = len(arms) < 2 and all(len(self._trie.arms(at)) < 2 for at in range(len(self._trie)))
        fields: dict[str, Any] = {}
        if self._has_answers:
            name = "right" if right else f"wrong by {prefix[-1]}"
            number = 0 if right else 1 + rank
            fields = {
                "answer": f'"{name}"', "answer_digest": name, "answer_class": number,
                "signal": "sure" if rng.random() < (0.8 if right else 0.3) else "unsure",
            }  # fmt: skip
        return Observation(
            request_id=request, prefix=prefix, stage=stage, success=right, stopped=stopped,
            arm=rng.choice(arms) if arms and not stopped and not is_linear else None,
            cost_usd=0.001 * 4.0**rank * rng.uniform(0.7, 1.4), latency_s=(1.0 + rank) * rng.uniform(0.7, 1.4), **fields,
        )  # fmt: skip


# -- what is made of them ----------------------------------------------------------------------------------------------

STORES: dict[str, Callable[[Path], Path]] = {
    "application": application, "merged application": merged_application, "support": support, "walks": walks,
    "branching walks": branching_walks, "merged walks": merged_walks, "demo": demo,
}  # fmt: skip
FAST = ("application", "branching walks", "merged walks")


def found_in(name: str, folder: Path) -> dict[str, Any]:
    """Rows, tries by each estimator, plans and the verdict of one store. The demo's has two estimators, which take long."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    path = STORES[name](folder)
    estimators = ESTIMATORS[: 2 if name == "demo" else None]
    found: dict[str, Any] = {"rows": rows_of(path)}
    for estimator in estimators:
        found[f"trie by {estimator}"] = _or_refusal(lambda estimator=estimator: trie_of(path, estimator))
    annotated = vinelm.estimate(path, max_error=1.0)
    found["evidence"] = plain(annotated.meta["evidence"])
    found["plans"] = {text: _or_refusal(lambda one=one: plan_of(annotated, one)) for text, one in objectives(annotated)}
    if annotated.signals is not None:
        found["plans over signals"] = {
            text: _or_refusal(lambda one=one: plan_of(annotated, one, signals=True)) for text, one in objectives(annotated)
        }
    found["evaluation"] = _or_refusal(lambda: judged(path))
    return found


def rows_of(path: Path) -> dict[str, Any]:
    """How many rows, a digest of what they say, and their sums."""
    with ObservationStore.open(path) as store:
        rows = store.observations()
    names = ("request_id", "prefix", "stage", "success", "stopped", "arm", "failure", "signal", "answer_class", "is_continued")
    said = sorted([getattr(row, name) for name in names] for row in rows)
    sums = {name: math.fsum(getattr(row, name) for row in rows) for name in ("cost_usd", "latency_s", "tool_latency_s")}
    return {"rows": len(rows), "said": digest(said), **sums}


def trie_of(path: Path, estimator: str) -> dict[str, Any]:
    """The arrays of a trie by their sum, a weighted sum that tells any two nodes apart, and their largest value."""
    annotated = vinelm.estimate(path, estimator=estimator, check=False)
    found: dict[str, Any] = {"nodes": len(annotated.trie)}
    parts = {"": annotated} | ({"signals ": annotated.signals} if annotated.signals is not None else {})
    for part, trie in parts.items():
        for name in (*NODE_ARRAYS, *OPTIONAL_ARRAYS):
            values = getattr(trie, name)
            if values is not None:
                found[part + name] = moments(values)
    return found


def moments(values: Any) -> list[float | None]:
    """The sum, a weighted sum and the largest of the finite values."""
    values = np.where(np.isfinite(values), values, 0.0)
    return [plain(value) for value in (values.sum(), values @ np.cos(np.arange(len(values))), values.max())]


def objectives(annotated: Any) -> list[tuple[str, Objective]]:
    """One of each kind, with bounds in proportion to what the trie costs and takes."""
    depths = range(int(annotated.trie.depth.max()) + 1)
    usd, seconds = (
        sum(float(of[annotated.trie.depth == at].mean()) for at in depths) for of in (annotated.cost_usd, annotated.latency_s)
    )
    fields: list[dict[str, Any]] = [
        {"maximize": "accuracy"},
        {"maximize": "accuracy", "max_cost_usd": 0.5 * usd},
        {"maximize": "accuracy", "max_cost_usd": 0.8 * usd, "cost_budget": "per_request"},
        {"maximize": "accuracy", "max_latency_s": 0.7 * seconds},
        {"maximize": "accuracy", "max_latency_s": 0.7 * seconds, "risk": "dp"},
        {"maximize": "accuracy", "max_cost_usd": 0.5 * usd, "confidence": 0.9},
        {"minimize": "cost", "min_accuracy": 0.5},
        {"minimize": "latency", "min_accuracy": 0.4},
    ]
    return [
        (" ".join([f"{k}={v if isinstance(v, str) else '...'}" for k, v in one.items()]), Objective(**one)) for one in fields
    ]


def plan_of(annotated: Any, objective: Objective, *, signals: bool = False) -> list[Any]:
    """What a plan runs first, whether it is feasible, and its figures."""
    decision = vinelm.plan(annotated, objective, signals=signals)
    figures = (decision.accuracy, decision.path_cost_usd, decision.path_latency_s, decision.promise.accuracy)
    return [next_of(decision), " ".join(decision.relaxed), *map(plain, figures), plain(decision.promise.standard_error)]


def judged(path: Path) -> dict[str, Any]:
    """The verdict of `evaluate` and its figures."""
    found = vinelm.evaluate(path).to_dict()
    policies = {
        one["policy"]: {name: one[name] for name in ("accuracy", "cost_usd", "latency_s", "promised_accuracy", "gain_over")}
        for one in found["policies"]
    }
    kept = {name: found[name] for name in ("verdict", "target", "headline", "requests", "rows", "spent_usd")}
    kept["verdict"] = {name: found["verdict"][name] for name in ("advice", "share", "gain", "opponent", "cost_usd")}
    return dict(plain(kept | {"policies": policies}))


def plain(value: Any) -> Any:
    """JSON types; what is not finite as text."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else str(value)
    return value.item() if isinstance(value, np.generic) else value


def _or_refusal(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except InfeasibleError as error:
        return [NO_PLAN, error.bound, error.best]
    except VineLMError as error:
        return [REFUSED, str(error)]
