"""Stores whose truth is known, for reports: answer, then retry, by models of given accuracies and prices."""

import datetime

import numpy as np

import vinelm
from vinelm.observation import Observation
from vinelm.template import Loop, Stage, Template
from vinelm.traces import ObservationStore, StoreIdentity
from vinelm.workflow import Request


def made_store(path, accuracy, cost_usd, *, requests=120, depth=2, walks=3, failing=0.0, seed=0, is_simulated=False):
    """Write a store and return its path.

    Each request has an answer of every model and some longer walks. The check passes 90 % of the right answers and 30 % of the
    wrong ones. Requests differ in difficulty: of two models asked equally often, the better one is right wherever the other is.

    Args:
        path: Where to write.
        accuracy: Share of right answers of each model, by name.
        cost_usd: Dollars of an invocation, by name.
        requests: Number of requests.
        depth: Most invocations.
        walks: Longer walks of each request.
        failing: Share of calls that fail.
        seed: Decides everything.
        is_simulated: What the store says of its models.
    """
    rng = np.random.default_rng(seed)
    names = tuple(accuracy)
    template = Template((Stage("answer", names), *((Loop((Stage("retry", names),), depth - 1),) if depth > 1 else ())))
    models = [
        vinelm.Model(
            name=name, provider="test", model_id="test", engine="e",
            price={"input": 1.0, "output": 1.0, "source": "test", "as_of": datetime.date(2026, 1, 1)},
        )
        for name in names
    ]  # fmt: skip
    identity = StoreIdentity(
        workflow="made", template=template.to_dict(), catalog=vinelm.Catalog(models).to_dict(), dataset_digest="d",
        fingerprint={"scorer": "code"}, is_simulated=is_simulated, created_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    with ObservationStore.create(path, identity) as store:
        ids = [f"q{i:04d}" for i in range(requests)]
        store.register([Request(name, {"q": name}) for name in ids])
        for request in ids:
            store.add_many(list(_rows(rng, request, accuracy, cost_usd, depth, walks, failing).values()))
    return path


def _rows(rng, request, accuracy, cost_usd, depth, walks, failing):
    names, hardness = list(accuracy), rng.random(depth)
    found: dict[tuple[str, ...], Observation] = {}
    paths = [(name,) for name in names] + [tuple(rng.choice(names, depth)) for _ in range(walks if depth > 1 else 0)]
    for path in paths:
        for end in range(1, len(path) + 1):
            prefix = tuple(str(name) for name in path[:end])
            before = found.get(prefix[:-1])
            if end > 1 and (before.failure is not None or before.stopped):
                break
            if prefix not in found:
                right = bool(hardness[end - 1] < accuracy[prefix[-1]])
                found[prefix] = _row(rng, request, prefix, right, cost_usd[prefix[-1]], failing)
    return found


def _row(rng, request, prefix, right, cost_usd, failing):
    has_failed = bool(rng.random() < failing)
    passed = bool(rng.random() < (0.9 if right else 0.3))
    return Observation(
        request_id=request, prefix=prefix, stage="answer" if len(prefix) == 1 else "retry",
        success=None if has_failed else right, stopped=None if has_failed else passed,
        cost_usd=cost_usd * float(rng.lognormal(0.0, 0.2)), latency_s=float(rng.lognormal(0.0, 0.4)),
        failure="timeout" if has_failed else None,
    )  # fmt: skip
