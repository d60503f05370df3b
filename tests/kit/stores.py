"""Stores whose truth is known, for reports: answer, then retry, by models of given accuracies and prices."""

import datetime
from dataclasses import replace

import numpy as np

import vinelm
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Observation
from vinelm.template import Loop, Stage, Template
from vinelm.traces import ObservationStore, StoreIdentity
from vinelm.traces.store.kinds import set_request_kinds


def made_store(
    path, accuracy, cost_usd, *, requests=120, depth=2, walks=3, failing=0.0, seed=0, is_simulated=False, has_answers=False,
    kinds=None, today=None,
):  # fmt: skip
    """Write a store and return its path.

    Each request has an answer of every model and some longer walks. The check passes 95 % of the right answers and 10 % of the
    wrong ones. A model that is asked again says the same; others are right or wrong independently of it.

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
        has_answers: Rows have the answer that was given, by which plans over signals are estimated: wrong ones differ.
        kinds: Accuracies of each kind of request, by name, in place of ``accuracy``; requests are of each in turn.
        today: The default model of the stages.
    """
    rng = np.random.default_rng(seed)
    names = tuple(accuracy)
    template = Template(
        (
            Stage("answer", names, default=today),
            *((Loop((Stage("retry", names, default=today),), depth - 1),) if depth > 1 else ()),
        )
    )
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
        kind_of = {name: list(kinds)[i % len(kinds)] for i, name in enumerate(ids)} if kinds else {}
        set_request_kinds(store, kind_of)
        for request in ids:
            known = kinds[kind_of[request]] if kinds else accuracy
            rows = _rows(rng, request, known, cost_usd, depth, walks, failing)
            store.add_many([replace(row, **_answer(row)) if has_answers else row for row in rows.values()])
    return path


def _rows(rng, request, accuracy, cost_usd, depth, walks, failing):
    names = list(accuracy)
    is_right = {name: bool(rng.random() < accuracy[name]) for name in names}
    found: dict[tuple[str, ...], Observation] = {}
    paths = [(name,) for name in names] + [tuple(rng.choice(names, depth)) for _ in range(walks if depth > 1 else 0)]
    for path in paths:
        for end in range(1, len(path) + 1):
            prefix = tuple(str(name) for name in path[:end])
            before = found.get(prefix[:-1])
            if end > 1 and (before.failure is not None or before.stopped):
                break
            if prefix not in found:
                found[prefix] = _row(rng, request, prefix, is_right[prefix[-1]], cost_usd[prefix[-1]], failing)
    return found


def _row(rng, request, prefix, right, cost_usd, failing):
    has_failed = bool(rng.random() < failing)
    passed = bool(rng.random() < (0.95 if right else 0.1))
    return Observation(
        request_id=request, prefix=prefix, stage="answer" if len(prefix) == 1 else "retry",
        success=None if has_failed else right, stopped=None if has_failed else passed,
        cost_usd=cost_usd * float(rng.lognormal(0.0, 0.2)), latency_s=float(rng.lognormal(0.0, 0.4)),
        failure="timeout" if has_failed else None,
    )  # fmt: skip


def _answer(row):
    """What a row shows: the answer, and whether the model was sure of it."""
    if row.failure is not None:
        return {}
    name = "right" if row.success else f"wrong by {row.model}"
    numbers = {"right": 0, **{f"wrong by {model}": 1 + i for i, model in enumerate(("small", "mid", "large"))}}
    return {
        "signal": "sure" if row.stopped else "unsure",
        "answer": f'"{name}"',
        "answer_digest": name,
        "answer_class": numbers[name],
    }
