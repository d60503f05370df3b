"""`verify`: which requests are served, what they may cost, what survives a kill, and the verdict."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

import vinelm
from vinelm.errors import CallRefused, ConfigError
from vinelm.evaluation.verification import held_out
from vinelm.evaluation.verification_budget import RequestGuard, VerificationBudget
from vinelm.evaluation.verification_log import VerificationLog, VerifiedRequest
from vinelm.evaluation.verification_result import _verdict
from vinelm.objective import Objective
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Usage
from vinelm.traces import ObservationStore

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
BEST = Objective(maximize="accuracy")


def usage(cost_usd: float) -> Usage:
    return Usage(model="m", cost_usd=cost_usd, latency_s=1.0)


def row(name: str, cost_usd: float = 0.1) -> VerifiedRequest:
    return VerifiedRequest(request_id=name, success=True, cost_usd=cost_usd, latency_s=1.0, prefix=("a",))


# -- which requests --------------------------------------------------------------------------------------------


def test_requests_that_were_used_are_never_served_and_the_draw_is_stable():
    requests = [Request(f"q{i}", {}) for i in range(20)]
    seen = {f"q{i}" for i in range(0, 20, 2)}
    few, more = (held_out(requests, seen, count, 0) for count in (4, 8))
    assert not {request.id for request in more} & seen
    assert more[:4] == few  # asking for more goes on where the fewer ended
    assert few == held_out(requests[::-1], seen, 4, 0)
    assert few != held_out(requests, seen, 4, 1)
    assert len(held_out(requests, seen, None, 0)) == 10


@pytest.mark.parametrize(
    ("seen", "count", "code"), [(20, None, "no-held-out-requests"), (15, 6, "few-held-out-requests"), (0, 0, "config")]
)
def test_too_few_requests_are_refused(seen, count, code):
    requests = [Request(f"q{i}", {}) for i in range(20)]
    with pytest.raises(ConfigError) as caught:
        held_out(requests, {f"q{i}" for i in range(seen)}, count, 0)
    assert caught.value.code == code


# -- money and the log -----------------------------------------------------------------------------------------


def test_what_a_call_may_cost_is_on_disk_before_it_is_made(tmp_path):
    log = VerificationLog(tmp_path / "v.jsonl", {})
    budget = VerificationBudget(1.0, log)
    permit = RequestGuard(math.inf, budget).authorize(0.4)
    assert json.loads((tmp_path / "v.jsonl").read_text().splitlines()[-1]) == {"at_most_usd": 0.4}
    assert VerificationLog(tmp_path / "v.jsonl", {}).spent_usd == 0.4  # killed now: the call counts at its bound
    permit.settle(usage(0.1))
    log.add(row("q1"), budget.spent_usd)
    again = VerificationLog(tmp_path / "v.jsonl", {})
    assert again.spent_usd == pytest.approx(0.1)
    assert again.rows == [row("q1")]


def test_a_call_beyond_the_budget_of_the_request_or_of_all_is_refused_and_costs_nothing():
    budget = VerificationBudget(1.0, VerificationLog(None, {}))
    guard = RequestGuard(0.5, budget)
    with pytest.raises(CallRefused, match="request's"):
        guard.authorize(0.6)
    assert not budget.is_exhausted
    guard.authorize(0.4).settle(usage(0.3))
    with RequestGuard(math.inf, budget).authorize(0.5):
        pass  # of unknown outcome: it counts at its upper bound
    assert budget.spent_usd == pytest.approx(0.8)
    last = RequestGuard(math.inf, budget)
    with pytest.raises(CallRefused, match="verification's"):
        last.authorize(0.3)
    assert budget.is_exhausted
    assert (last.reserved_usd, last.spent_usd, budget.reserved_usd) == (0.0, 0.0, 0.0)
    assert budget.spent_usd == pytest.approx(0.8)


def test_a_line_that_was_cut_is_dropped_and_another_verification_is_refused(tmp_path):
    path = tmp_path / "v.jsonl"
    VerificationLog(path, {"seed": 0}).add(row("q1"), 0.1)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"row": {"requ')
    again = VerificationLog(path, {"seed": 0})
    assert again.rows == [row("q1")]
    assert path.read_bytes() == whole
    with pytest.raises(ConfigError, match="another verification"):
        VerificationLog(path, {"seed": 1})
    for text in ("", "[]\n", "hello\n", '{"a": 1}\n'):
        other = tmp_path / "other.txt"
        other.write_text(text)
        if text:
            with pytest.raises(ConfigError, match="not the log of a verification"):
                VerificationLog(other, {})
            assert other.read_text() == text
    with pytest.raises(ConfigError, match="not a regular file"):
        VerificationLog(tmp_path, {})


# -- served ----------------------------------------------------------------------------------------------------


@pytest.fixture
def app(tmp_path, monkeypatch):
    """The app of docs/examples, profiled on some of its 120 requests."""
    for name in ("my_app.py", "questions.jsonl", "models.toml"):
        (tmp_path / name).write_bytes((EXAMPLES / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    workflow = vinelm.load_workflow("my_app:workflow")
    vinelm.profile(replace(workflow, requests=workflow.requests[:60]), "models.toml", "s.db", coverage=0.3)
    vinelm.save_trie("t.vine", vinelm.estimate("s.db"))
    return workflow


def test_only_requests_that_the_estimate_has_not_seen_are_served(app):
    price = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=30, dry_run=True, log="v.jsonl")
    assert (price.rows, price.accuracy, price.spent_usd) == ((), None, 0.0)
    assert price.expected_usd == pytest.approx(30 * price.decision.path_cost_usd)
    assert not Path("v.jsonl").exists()
    found = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=30)
    with ObservationStore.open("s.db") as store:
        assert not {one.request_id for one in found.rows} & {seen.request_id for seen in store.observations()}
    assert len(found.rows) == 30
    assert found.is_complete
    assert found.accuracy == sum(one.success for one in found.rows) / 30
    assert found.spent_usd == pytest.approx(sum(one.cost_usd for one in found.rows))
    assert found.promised_interval == found.decision.promise.prediction(30)
    assert found.verdict == "kept"
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["promised"]["accuracy"] == found.decision.promise.accuracy


def test_a_run_that_the_budget_ends_goes_on_to_the_same_results(app):
    whole = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=30)
    limit = whole.spent_usd / 2
    part = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=30, budget_usd=limit, log="v.jsonl")
    assert 0 < len(part.rows) < 30
    assert not part.is_complete
    assert part.spent_usd <= limit
    rest = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=30, budget_usd=1.0, log="v.jsonl")
    assert rest.rows == whole.rows
    assert rest.spent_usd >= whole.spent_usd - 1e-12
    more = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=40, budget_usd=1.0, log="v.jsonl")
    assert more.rows[:30] == whole.rows


def test_an_interrupted_run_loses_nothing_and_serves_nothing_twice(app):
    def stop(done: int, total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=12, log="v.jsonl", on_done=stop)
    served: list[int] = []
    rest = vinelm.verify(
        "s.db", "t.vine", BEST, workflow=app, requests=12, log="v.jsonl", on_done=lambda n, _: served.append(n)
    )
    assert served == [6, 7, 8, 9, 10, 11, 12]
    whole = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=12)
    assert rest.rows == whole.rows
    assert rest.spent_usd == pytest.approx(whole.spent_usd)


def test_a_promise_that_is_too_high_is_broken(app):
    annotated = vinelm.load_trie("t.vine")
    sure = annotated.success * 0.0 + 1.0
    sure[0] = 0.0
    boasting = replace(annotated, success=sure, stop_success=annotated.stop * sure, accuracy_se=sure * 0.001)
    found = vinelm.verify("s.db", boasting, BEST, workflow=app, requests=40)
    assert found.accuracy is not None
    assert found.accuracy < 0.95
    assert found.verdict == "broken"
    assert not found.is_kept


def test_the_plan_is_one_of_the_models_that_are_served(app, tmp_path):
    """With a catalog that lacks a model of the trie, the promise is that of the best plan without it."""
    text = (tmp_path / "models.toml").read_text()
    first = text[: text.index("[[model]]", text.index("[[model]]") + 1)]
    (tmp_path / "small.toml").write_text(first)
    found = vinelm.verify("s.db", "t.vine", BEST, workflow=app, models="small.toml", requests=10)
    assert set(found.decision.path) == {"small"}
    assert {model for one in found.rows for model in one.prefix} == {"small"}


def test_the_plan_that_is_served_is_the_one_that_is_promised(app):
    """By what requests show where that is asked for, else along the best path, whatever the trie and the workflow know."""
    objective = Objective(maximize="accuracy", max_cost_usd=0.001)
    for signals in (False, True):
        found = vinelm.verify("s.db", "t.vine", objective, workflow=app, requests=40, signals=signals)
        planned = vinelm.plan("t.vine", objective, signals=signals)
        assert found.decision.promise == planned.promise
        assert {one.prefix[0] for one in found.rows} == {planned.next_model}
        assert (found.decision.metrics.annotated.outcomes is not None) is signals
        if not signals:
            assert {one.prefix for one in found.rows} <= {planned.path[:k] for k in range(1, 4)}
    assert len({len(one.prefix) for one in found.rows}) > 1  # what a request shows decides whether it goes on


def test_signals_that_cannot_be_served_are_refused(app):
    undeclared = replace(app, signal=None, agree=None, answer=())
    with pytest.raises(ConfigError) as caught:
        vinelm.verify("s.db", "t.vine", BEST, workflow=undeclared, signals=True)
    assert caught.value.code == "signals-not-served"
    unknown = replace(vinelm.load_trie("t.vine"), signals=None)
    with pytest.raises(ConfigError) as caught:
        vinelm.verify("s.db", unknown, BEST, workflow=app, signals=True)
    assert caught.value.code == "no-signals"


@pytest.mark.parametrize(
    ("value", "promised", "verdict"),
    [(0.5, (0.4, 0.6), "kept"), (0.3, (0.4, 0.6), "broken"), (0.7, (0.4, 0.6), "exceeded"), (None, (0, 1), "unknown"),
     (0.5, None, "unknown")],
)  # fmt: skip
def test_verdicts(value, promised, verdict):
    assert _verdict(value, promised) == verdict


def test_a_store_of_another_workflow_is_refused(app):
    with pytest.raises(ConfigError, match="the workflow is 'other'"):
        vinelm.verify("s.db", "t.vine", BEST, workflow=replace(app, name="other"))
