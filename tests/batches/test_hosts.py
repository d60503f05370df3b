"""A batch on the nodes of a cluster: the answers of one machine, whatever is lost. Hosts are threads here."""

import json
import subprocess
import sys
from itertools import accumulate
from pathlib import Path

import pytest
from kit.batch_files import answers, committed_usd
from kit.catalogs import local_entries
from kit.servers.fake_cluster import clusters

import vinelm
from vinelm import extras
from vinelm.errors import ConfigError, DatasetError, MissingExtra, WorkerDied, WorkflowError
from vinelm.money.spend_guard import SpendGuard
from vinelm.profiler.cluster.messages import Granted
from vinelm.running import hosts
from vinelm.traces import ObservationStore, check_store
from vinelm.traces.served.answers import Answers

__all__ = ["clusters"]
BEST = vinelm.Objective(maximize="accuracy")
APP = "my_app:workflow"
SCRIPTS = Path(__file__).parents[2] / "scripts"


def run(**changes):
    fields = {"output": "a.jsonl", "budget_usd": 1.0, "workers": 4}
    return vinelm.batch(changes.pop("workflow", APP), "t.vine", BEST, **(fields | changes))


def on_nodes(**changes):
    return run(engine="ray://auto", **changes)


# -- what comes out ----------------------------------------------------------------------------------------------------


def test_the_answers_of_two_nodes_are_those_of_one_machine(app, clusters):
    one = run(output="b.jsonl")
    found = on_nodes()
    assert answers() == answers("b.jsonl")
    assert found.is_complete
    assert found.spent_usd == pytest.approx(one.spent_usd)
    assert found.spent_usd == pytest.approx(sum(line["cost_usd"] for line in found.lines()))
    assert {host for host, _ in clusters[0].sent} == {0, 1}
    assert check_store("a.db").is_whole


@pytest.mark.parametrize("settings", [{"budget_usd": 0.06}, {"budget_usd": 0.06, "deadline_s": 100.0}])
def test_plans_that_are_drawn_within_bounds_are_followed_on_nodes(app, clusters, settings):
    """One worker: under a deadline plans depend on the clock, which is that of the requests here."""
    run(output="b.jsonl", workers=1, **settings)
    found = on_nodes(workers=1, **settings)
    assert answers() == answers("b.jsonl")
    assert found.spent_usd <= 0.06
    assert len(found.calls_by_model) == 2


def test_every_bound_is_reserved_in_the_store_before_its_call(app, clusters, monkeypatch):
    """A node's guard lets a call pass only within what the store holds beyond the answers that it has."""
    seen, authorize = [], SpendGuard.authorize

    def authorized(guard, upper_usd):
        permit = authorize(guard, upper_usd)
        with ObservationStore.open("a.db") as store:
            seen.append((guard.reserved_usd, store.committed_usd() - sum(answer.cost_usd for answer in Answers(store).brief())))
        return permit

    monkeypatch.setattr(SpendGuard, "authorize", authorized)
    on_nodes(workers=1, dataset=first(6))
    assert len(seen) >= 2 * 6  # of each call, the node's guard and the batch's
    assert all(0.0 < upper <= held + 1e-12 for upper, held in seen)


def first(n):
    rows = Path("questions.jsonl").read_text().splitlines()[:n]
    Path("d.jsonl").write_text("\n".join(rows) + "\n")
    return "d.jsonl"


def test_a_call_that_the_budget_refuses_is_not_made_on_a_node(app, clusters):
    whole = run(output="b.jsonl")
    limit = whole.spent_usd / 3
    found = on_nodes(budget_usd=limit, finish="good")
    assert found.spent_usd <= limit + 1e-9
    assert found.by_status["unanswered"] > 0
    assert found.unanswered_because == "budget"
    assert on_nodes(budget_usd=1.0).is_complete


def test_calls_of_all_nodes_wait_at_the_batchs_rate_limit(app, clusters, monkeypatch):
    monkeypatch.setenv("TOY_KEY", "none")
    command = [sys.executable, str(SCRIPTS / "local_openai.py"), "--latency-s", "0.05", "--record", "calls.jsonl"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip()
        entries = local_entries(url, "small", "large", key_env="TOY_KEY")
        Path("real.toml").write_text(f"{entries}[backend.openai]\nlimits = {{ local = {{ concurrency = 2 }} }}\n")
        found = on_nodes(models="real.toml", workers=6, dataset=first(8))
        process.terminate()
    calls = [json.loads(line) for line in Path("calls.jsonl").read_text().splitlines()]
    under_way = list(accumulate(1 if call["what"] == "began" else -1 for call in calls))
    assert max(under_way) == 2
    assert sum(found.calls_by_model.values()) == len(calls) / 2
    assert found.by_status["ok"] == 8


# -- losses ------------------------------------------------------------------------------------------------------------


def test_a_lost_node_costs_the_bound_of_its_requests_and_no_answer(app, clusters):
    one, notes, dropped = run(output="b.jsonl"), [], []

    def on_sent(link, host, message):
        if len(link.sent) >= 40 and isinstance(message, Granted) and not dropped:  # what was asked for is reserved by now
            dropped.append(host)
            link.drop(host)

    clusters.on_sent = on_sent
    found = on_nodes(on_note=notes.append)
    assert answers() == answers("b.jsonl")
    assert found.is_complete
    (note,) = notes
    assert note.startswith("Ray node ")
    assert "with it: counted at their bound, executed again" in note
    assert "request" in note
    assert one.spent_usd < found.spent_usd <= 1.0
    assert found.spent_usd == pytest.approx(committed_usd())
    clusters.on_sent = None
    again = on_nodes()
    assert again.spent_usd == pytest.approx(found.spent_usd)
    assert len(dropped) == 1


def test_dollars_that_a_lost_node_took_are_not_planned_with_again(app, clusters):
    """The loss is a third of the budget: the rest still answers every request, with cheaper plans."""
    one = run(output="b.jsonl")

    def on_sent(link, host, message):
        if len(link.sent) in {12, 30, 50}:
            link.join("another")
            link.drop(host)

    clusters.on_sent = on_sent
    budget = 0.95 * one.spent_usd
    found = on_nodes(budget_usd=budget)
    assert found.spent_usd <= budget + 1e-9
    assert found.by_status["ok"] >= 58
    answered = sum(line.get("cost_usd", 0.0) for line in found.lines())
    assert found.spent_usd - answered > 0.0


def test_without_any_node_the_batch_ends_with_a_line_and_goes_on_on_one_machine(app, clusters):
    run(output="b.jsonl")

    def on_sent(link, host, message):
        if len(link.sent) == 50:
            link.disconnect("the head node is gone")

    clusters.on_sent = on_sent
    with pytest.raises(WorkerDied) as caught:
        on_nodes()
    assert str(caught.value) == "the connection to Ray was lost: the head node is gone: run the same again to continue"
    with ObservationStore.open("a.db") as store:
        kept = len(list(Answers(store).brief()))
        before = store.committed_usd()
    assert 0 < kept < 60
    found = run()
    assert answers() == answers("b.jsonl")
    assert found.spent_usd > before
    assert found.is_complete


# -- what does not fit -------------------------------------------------------------------------------------------------


def changed(**fields):
    return lambda maker: hosts.NodeWorkerMaker(**(vars(maker) | fields))


@pytest.mark.parametrize(
    ("fields", "kind", "said"),
    [
        ({"digest": "other"}, DatasetError, r"^Ray node one: the data set is another one there"),
        ({"parts": {}}, WorkflowError, r"^Ray node one: the workflow is another one there \(graph, .*stage solve"),
    ],
)
def test_another_data_set_or_workflow_is_one_line_before_anything_is_spent(app, clusters, fields, kind, said):
    clusters.changed = changed(**fields)
    with pytest.raises(kind, match=said) as caught:
        on_nodes()
    assert "\n" not in str(caught.value)
    assert not Path("a.db").exists()


def test_a_workflow_object_is_one_line(app, clusters):
    with pytest.raises(ConfigError, match="other machines cannot load a Workflow object: name it as module:attribute"):
        on_nodes(workflow=vinelm.load_workflow(APP))
    assert not clusters


def test_calls_at_batch_prices_are_refused_in_one_line(app, clusters):
    with pytest.raises(ConfigError, match="need no cluster: leave one of the two out"):
        on_nodes(batch_prices=True)
    assert not clusters


def test_a_batch_without_ray_installed_is_one_line(app, monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"^a batch on a Ray cluster needs .*\[ray\]") as caught:
        on_nodes()
    assert "\n" not in str(caught.value)
    assert not Path("a.db").exists()
