"""`verify`: which requests are served, what they may cost, what survives a kill, and the verdict."""

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from kit.servers.fake_cluster import clusters
from kit.templates import agent, branching
from kit.tries import random_merged

import vinelm
from vinelm.errors import CallRefused, ConfigError, DatasetError, StoreError
from vinelm.money import GuardPair, SpendGuard
from vinelm.objective import Objective
from vinelm.profiler.cluster.messages import Granted
from vinelm.profiler.execution.ledger import Ledger
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Usage
from vinelm.running import hosts
from vinelm.running.serving_record import ServingTask, serving_record
from vinelm.traces import ObservationStore, ServedRequest, check_store
from vinelm.traces.testing import an_identity
from vinelm.verdicts.verification import digest_of_plans, held_out
from vinelm.verdicts.verification_result import _kept

__all__ = ["clusters"]
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
BEST = Objective(maximize="accuracy")


def usage(cost_usd: float) -> Usage:
    return Usage(model="m", cost_usd=cost_usd, latency_s=1.0)


def row(name: str, cost_usd: float = 0.1) -> ServedRequest:
    return ServedRequest(request_id=name, success=True, cost_usd=cost_usd, latency_s=1.0, prefix=("a",))


def committed_usd(path: Path) -> float:
    with ObservationStore.open(path) as store:
        return store.committed_usd()


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


def serve(record, policy, request_id, answer):
    return record.serve(ServingTask(policy, request_id, answer))


# -- money and the record --------------------------------------------------------------------------------------


def test_what_a_call_may_cost_is_on_disk_before_it_is_made(tmp_path):
    path, seen = tmp_path / "v.db", []

    def answer(budget):
        permit = budget.authorize(0.4)
        seen.append(committed_usd(path))  # killed now: the call counts at its bound
        permit.settle(usage(0.1))
        return row("q1")

    with serving_record(path, an_identity(), 1.0) as record:
        assert serve(record, "plan", "q1", answer) == row("q1")
        assert record.spent_usd == pytest.approx(0.1)
    assert seen == [0.4]
    with serving_record(path, an_identity(), 1.0) as again:
        assert again.spent_usd == pytest.approx(0.1)
        assert again.served == {("plan", "q1"): row("q1")}


def test_a_call_that_an_interrupted_run_left_open_counts_at_its_bound(tmp_path):
    def interrupted(budget):
        budget.authorize(0.2).settle(usage(0.1))
        budget.authorize(0.4)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), serving_record(tmp_path / "v.db", an_identity(), 1.0) as record:
        serve(record, "plan", "q1", interrupted)
    with serving_record(tmp_path / "v.db", an_identity(), 1.0) as again:
        assert again.spent_usd == pytest.approx(0.5)
        assert not again.served


def test_a_call_beyond_the_budget_of_the_request_or_of_all_is_refused_and_costs_nothing():
    def answer(budget):
        guard = GuardPair(SpendGuard(0.5), budget)
        with pytest.raises(CallRefused, match="request's"):
            guard.authorize(0.6)
        guard.authorize(0.4).settle(usage(0.3))
        with pytest.raises(CallRefused, match="request's"):
            guard.authorize(0.3)
        guard = GuardPair(SpendGuard(1.0), budget)
        guard.authorize(0.5).close()  # of unknown outcome: it counts at its upper bound
        return row("q1", 0.3)

    own = SpendGuard(1.0)

    def beyond(budget):
        with pytest.raises(CallRefused, match="left of the budget"):
            GuardPair(own, budget).authorize(0.3)
        return row("q2", 0.0)

    with serving_record(None, an_identity(), 1.0) as record:
        assert serve(record, "plan", "q1", answer) is not None
        assert record.spent_usd == pytest.approx(0.8)
        assert serve(record, "plan", "q2", beyond) is None
        assert (own.reserved_usd, own.spent_usd) == (0.0, 0.0)
        assert record.spent_usd == pytest.approx(0.8)
        assert list(record.served) == [("plan", "q1")]


def test_a_call_that_a_thread_makes_later_is_refused():
    guards = []
    with serving_record(None, an_identity(), 1.0) as record:
        serve(record, "plan", "q1", lambda budget: (guards.append(budget), row("q1", 0.0))[1])
        with pytest.raises(CallRefused):
            guards[0].authorize(0.1)
        assert record.spent_usd == 0.0


def test_calls_that_ask_nobody_are_counted_and_end_the_run():
    with serving_record(None, an_identity(), 1.0) as record:
        assert serve(record, "plan", "q1", lambda budget: row("q1", 1.5)) is not None
        assert record.spent_usd == pytest.approx(1.5)
        assert record.is_exhausted
        assert serve(record, "plan", "q2", lambda budget: row("q2")) is None


def test_a_store_that_cannot_be_written_ends_the_run(monkeypatch):
    """It is no failure of the request, even where the application catches what its call raises."""

    def answer(budget):
        with pytest.raises(StoreError):
            budget.authorize(0.1)
        return row("q1")

    with serving_record(None, an_identity(), 1.0) as record:
        monkeypatch.setattr(Ledger, "reserve", lambda *given, **more: (_ for _ in ()).throw(StoreError("full")))
        with pytest.raises(StoreError, match="full"):
            serve(record, "plan", "q1", answer)
        assert not record.served


def test_two_policies_meet_at_one_request_and_its_row_is_kept_once(tmp_path):
    with serving_record(tmp_path / "v.db", an_identity(), 1.0) as record:
        for name in ("paths", "static"):
            serve(record, name, "q1", lambda budget: row("q1", 0.2))
    with serving_record(tmp_path / "v.db", an_identity(), 1.0) as record:
        assert list(record.served) == [("paths", "q1"), ("static", "q1")]
        assert record.spent_usd == pytest.approx(0.4)
        with pytest.raises(StoreError, match="another run"), serving_record(tmp_path / "v.db", an_identity(), 1.0):
            pass
    assert check_store(tmp_path / "v.db").is_whole


def test_the_record_of_another_verification_and_other_files_are_refused_and_stay(tmp_path):
    path = tmp_path / "v.db"
    with serving_record(path, an_identity(), 1.0) as record:
        serve(record, "plan", "q1", lambda budget: row("q1"))
    another = an_identity(dataset_digest="x", fingerprint={**an_identity().fingerprint, "seed": "1"})
    with pytest.raises(ConfigError, match=r"something else \(seed, dataset\)"), serving_record(path, another, 1.0):
        pass
    for text in ("[]\n", "hello\n", '{"a": 1}\n'):
        other = tmp_path / "other.txt"
        other.write_text(text)
        with pytest.raises(StoreError, match="not a SQLite file"), serving_record(other, an_identity(), 1.0):
            pass
        assert other.read_text() == text
    with pytest.raises(StoreError, match="directory"), serving_record(tmp_path, an_identity(), 1.0):
        pass


# -- served ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """The folder of the app of docs/examples, profiled on some of its 120 requests, and its workflow."""
    folder = tmp_path_factory.mktemp("app")
    (folder / "verified_app.py").write_bytes((EXAMPLES / "my_app.py").read_bytes())  # a module of a name of its own
    for name in ("questions.jsonl", "models.toml"):
        (folder / name).write_bytes((EXAMPLES / name).read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        workflow = vinelm.load_workflow("verified_app:workflow")
        vinelm.profile(replace(workflow, requests=workflow.requests[:60]), "models.toml", "s.db", coverage=0.3, seed=1)
        vinelm.save_trie("t.vine", vinelm.estimate("s.db"))
    return folder, workflow


@pytest.fixture
def app(profiled, tmp_path, monkeypatch):
    """Its workflow, in a copy of the folder."""
    folder, workflow = profiled
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return workflow


def test_only_requests_that_the_estimate_has_not_seen_are_served(app):
    price = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=30, dry_run=True, log="v.db")
    assert (price.rows, price.accuracy, price.spent_usd) == ((), None, 0.0)
    assert price.expected_usd == pytest.approx(30 * price.decision.path_cost_usd)
    assert not Path("v.db").exists()
    found = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=30)
    with ObservationStore.open("s.db") as store:
        assert not {one.request_id for one in found.rows} & {seen.request_id for seen in store.observations()}
    assert len(found.rows) == 30
    assert found.is_complete
    assert found.accuracy == sum(one.success for one in found.rows) / 30
    assert found.spent_usd == pytest.approx(sum(one.cost_usd for one in found.rows))
    assert found.promised_interval == found.decision.promise.prediction(30)
    low, high = found.promised_interval
    assert found.accuracy >= low
    assert found.accuracy_promise == ("exceeded" if found.accuracy > high else "kept")
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["promised"]["accuracy"] == found.decision.promise.accuracy


def test_a_run_that_the_budget_ends_goes_on_to_the_same_results(app):
    whole = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=30)
    limit = whole.spent_usd / 2
    part = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=30, budget_usd=limit, log="v.db")
    assert 0 < len(part.rows) < 30
    assert not part.is_complete
    assert part.spent_usd <= limit
    rest = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=30, budget_usd=1.0, log="v.db")
    assert rest.rows == whole.rows
    assert rest.spent_usd >= whole.spent_usd - 1e-12
    more = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=40, budget_usd=1.0, log="v.db")
    assert more.rows[:30] == whole.rows


def test_many_at_a_time_are_served_as_one_after_the_other(app):
    one = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=40, workers=1)
    many = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=40, workers=16)
    assert many.rows == one.rows
    assert many.spent_usd == pytest.approx(one.spent_usd)
    limit = one.spent_usd / 3
    part = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=40, workers=16, budget_usd=limit, log="part.db")
    assert 0 < len(part.rows) < 40
    assert sum(row.cost_usd for row in part.rows) <= part.spent_usd + 1e-12  # a sum in another order
    assert part.spent_usd == committed_usd(Path("part.db")) <= limit


def test_an_interrupted_run_loses_nothing_and_serves_nothing_twice(app, monkeypatch):
    monkeypatch.setattr("vinelm.running.crew.TICK_S", 0.0001)

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=60, log="v.db", on_done=stop)
    served: list[int] = []
    rest = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=60, log="v.db", on_done=lambda n, _: served.append(n))
    assert served == list(range(61 - len(served), 61))
    assert 0 < len(served) <= 57
    whole = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=60)
    assert rest.rows == whole.rows
    assert rest.spent_usd == pytest.approx(whole.spent_usd)


# -- on the nodes of a cluster ----------------------------------------------------------------------------------

PARTLY = """

from dataclasses import replace
from vinelm import Request, as_today

partly = replace(
    workflow,
    requests=[*workflow.requests, Request("without", {"question": "What is 1 + 1?"})],
    score=as_today(lambda state: state["answer"], score=workflow.score, labels=("answer",)),
)
"""


def verified(**changes):
    given = {"workflow": "verified_app:workflow", "requests": 24, "budget_usd": 1.0}
    return vinelm.verify("s.db", "t.vine", BEST, **(given | changes))


def evaluated(**changes):
    given = {"workflow": "verified_app:workflow", "serve": 12, "budget_usd": 1.0}
    return vinelm.evaluate("s.db", "t.vine", BEST, **(given | changes))


def test_nodes_give_the_results_of_one_machine(app, clusters):
    one, found = verified(), verified(engine="ray://auto", log="v.db")
    assert found.rows == one.rows
    assert found.spent_usd == pytest.approx(one.spent_usd) == committed_usd(Path("v.db"))
    one, found = evaluated(), evaluated(engine="ray://auto")
    assert found.policies == one.policies
    spent_usd = one.verdict.spent_usd
    assert found.spent_usd == pytest.approx(spent_usd)
    assert replace(found.verdict, spent_usd=spent_usd) == one.verdict
    for link in clusters:
        assert {host for host, _ in link.sent} == {0, 1}


def test_nodes_with_signals_give_the_results_of_one_machine(app, clusters):
    assert verified(engine="ray://auto", signals=True).rows == verified(signals=True).rows


def test_a_lost_node_costs_the_bound_of_its_requests_and_no_result(app, clusters):
    one, notes, dropped = verified(), [], []

    def on_sent(link, host, message):
        if len(link.sent) >= 30 and isinstance(message, Granted) and not dropped:  # what was asked for is reserved by now
            dropped.append(host)
            link.drop(host)

    clusters.on_sent = on_sent
    found = verified(engine="ray://auto", log="v.db", on_note=notes.append)
    assert found.rows == one.rows
    assert found.spent_usd > one.spent_usd
    assert found.spent_usd == pytest.approx(committed_usd(Path("v.db")))
    (note,) = notes
    assert "with it: counted at their bound, executed again" in note


def test_what_the_budget_refuses_is_not_made_on_nodes_and_one_machine_goes_on(app, clusters):
    whole = verified()
    part = verified(engine="ray://auto", log="v.db", budget_usd=whole.spent_usd / 2)
    assert 0 < len(part.rows) < 24
    assert part.spent_usd <= whole.spent_usd / 2 + 1e-9
    assert verified(log="v.db").rows == whole.rows


@pytest.mark.parametrize("verb", [verified, evaluated])
def test_what_nodes_cannot_load_is_one_line_before_anything_is_spent(app, clusters, verb):
    with pytest.raises(ConfigError, match="other machines cannot load a Workflow object: name it as module:attribute"):
        verb(engine="ray://auto", workflow=app, log="v.db")
    clusters.changed = lambda maker: hosts.NodeWorkerMaker(**(vars(maker) | {"digest": "other"}))
    with pytest.raises(DatasetError, match=r"^Ray node one: the data set is another one there"):
        verb(engine="ray://auto", log="v.db")
    with pytest.raises(ConfigError, match="unknown engine 'slurm': use this-machine"):
        verb(engine="slurm", log="v.db")
    with pytest.raises(ConfigError, match="ship has no effect"):
        verb(ship=True, log="v.db")
    assert committed_usd(Path("v.db")) == 0.0


@pytest.mark.parametrize("verb", [verified, evaluated])
def test_no_machine_is_started_for_a_record_that_is_refused(app, clusters, verb):
    with serving_record(Path("v.db"), an_identity(), 1.0):
        pass
    with pytest.raises(ConfigError, match="is the record of something else"):
        verb(engine="ray://auto", log="v.db")
    assert not clusters


def test_nodes_serve_a_workflow_of_which_some_requests_have_labels(app, clusters):
    """Only requests with a label are served, here as there."""
    with Path("verified_app.py").open("a") as file:
        file.write(PARTLY)
    sys.modules.pop("verified_app", None)
    partly = {"workflow": "verified_app:partly"}
    assert verified(engine="ray://auto", **partly).rows == verified(**partly).rows


def test_nodes_without_serving_are_one_line(app, clusters):
    with pytest.raises(ConfigError, match="engine has no effect unless requests are served"):
        vinelm.evaluate("s.db", engine="ray://auto")
    assert not clusters


# -- kills ------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys, threading
import vinelm
from vinelm.money.spend_guard import SpendGuard

settled, left, lock = SpendGuard._settle, int(sys.argv[1]), threading.Lock()

def settle(guard, permit, usage):
    global left
    with lock:
        left -= 1
        if usage is not None:
            with open("paid.txt", "a") as paid:
                paid.write(f"{permit.upper_usd} {usage.cost_usd}\\n")
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
    settled(guard, permit, usage)

SpendGuard._settle = settle
objective = vinelm.Objective(maximize="accuracy")
vinelm.verify("s.db", "t.vine", objective, workflow="verified_app:workflow",
    requests=8, budget_usd=float(sys.argv[2]), log="v.db")
"""


@pytest.mark.long
def test_kill_9_in_the_middle_of_calls_loses_no_dollar_and_no_request(app):
    """Each call was made, and none is settled when the process dies: the cap holds for all runs together."""
    whole = vinelm.verify("s.db", "t.vine", BEST, workflow=app, requests=8)
    limit, paid, ends = 60 * whole.spent_usd, Path("paid.txt"), []
    for calls in (1, 2, 3, 9, 2):
        ran = subprocess.run([sys.executable, "-c", KILLED, str(calls), str(limit)], check=False, capture_output=True)
        ends.append(ran.returncode)
        dollars = [float(line.split()[1]) for line in paid.read_text().splitlines()]
        assert sum(dollars) - 1e-12 <= committed_usd(Path("v.db")) <= limit
    assert ends.count(-signal.SIGKILL) >= 3
    served: list[int] = []
    rest = vinelm.verify(
        "s.db",
        "t.vine",
        BEST,
        workflow=app,
        requests=8,
        budget_usd=10 * limit,
        log="v.db",
        on_done=lambda n, _: served.append(n),
    )
    assert rest.rows == whole.rows
    assert len(served) < 8  # what was served before is not paid for again
    assert rest.spent_usd == committed_usd(Path("v.db")) >= whole.spent_usd


def test_a_promise_that_is_too_high_is_broken(app):
    annotated = vinelm.load_trie("t.vine")
    sure = annotated.success * 0.0 + 1.0
    sure[0] = 0.0
    boasting = replace(annotated, success=sure, stop_success=annotated.stop * sure, accuracy_se=sure * 0.001)
    found = vinelm.verify("s.db", boasting, BEST, workflow=app, requests=40)
    assert found.accuracy is not None
    assert found.accuracy < 0.95
    assert found.accuracy_promise == "broken"
    assert not found.is_kept


@pytest.mark.parametrize("template", [agent(2, 2, memory=1), branching(2, memory=1)])
def test_a_record_knows_its_trie_also_where_histories_merge(template):
    one, other = (random_merged(template, seed) for seed in (0, 1))
    assert digest_of_plans(one) == digest_of_plans(random_merged(template, 0))
    assert digest_of_plans(one) != digest_of_plans(other)


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
    objective = Objective(maximize="accuracy", max_cost_usd=0.001, mix=False)
    for signals in (False, True):
        found = vinelm.verify("s.db", "t.vine", objective, workflow=app, requests=40, signals=signals)
        planned = vinelm.plan("t.vine", objective, signals=signals)
        assert found.decision.promise == planned.promise
        assert {one.prefix[0] for one in found.rows} == {planned.next_model}
        assert (found.decision.metrics.annotated.policy == "signals") is signals
        if not signals:
            assert {one.prefix for one in found.rows} <= {planned.path[:k] for k in range(1, 4)}
    assert len({len(one.prefix) for one in found.rows}) > 1  # what a request shows decides whether it goes on


def test_requests_are_divided_between_two_plans_as_promised(app):
    objective = Objective(maximize="accuracy", max_cost_usd=0.001)
    found, planned = vinelm.verify("s.db", "t.vine", objective, workflow=app, requests=40), vinelm.plan("t.vine", objective)
    shares = {plan.next_model: share for share, plan in planned.parts}
    assert len(shares) == 2
    assert found.decision.promise == planned.promise
    served = {one.request_id: one.prefix[0] for one in found.rows}
    assert len(served) == 40
    for model, share in shares.items():
        assert sum(first == model for first in served.values()) / 40 == pytest.approx(share, abs=0.2)
    again = vinelm.verify("s.db", "t.vine", objective, workflow=app, requests=40)
    assert {one.request_id: one.prefix[0] for one in again.rows} == served  # by the request, in every process


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
    assert _kept(value, promised) == verdict


def test_a_store_of_another_workflow_is_refused(app):
    with pytest.raises(ConfigError, match="the workflow is 'other'"):
        vinelm.verify("s.db", "t.vine", BEST, workflow=replace(app, name="other"))
