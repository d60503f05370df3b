"""A data set at batch prices: half the dollars, nothing bought twice, and at once what no batch can answer in time."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from kit.servers.batch_provider import BatchProvider
from kit.toys.batched import KEY, PRICE, QUICK, SECRET, answer, loaded, settings
from kit.toys.batched import run as profiled
from kit.toys.profiling import State

import vinelm
from vinelm.batches.batch_api_run import BatchApiRun
from vinelm.errors import ConfigError, VineLMError
from vinelm.objective import Objective
from vinelm.profiler.execution.ledger import Ledger
from vinelm.template import Stage, Template
from vinelm.traces import ObservationStore, check_store

BEST = Objective(maximize="accuracy")
TRIES = {}
"""By what they are of: the provider's address is no part of a trie that is given other models."""
BOUND_USD = 0.001504
"""What the ledger reserves for a call in a batch: its prompt in bytes, what a server may add, and the longest answer."""
CALL_USD = PRICE.cost_usd(100, 10, 40)


@pytest.fixture
def provider(monkeypatch):
    monkeypatch.setenv(KEY, SECRET)
    made = BatchProvider(answer)
    yield made
    made.stop()


class SlowSet(set):
    """Widens a gap between two statements, in which another thread acts; nothing waits for it to be over."""

    def add(self, key):
        time.sleep(0.05)
        super().add(key)


class App:
    """The toy, profiled at the provider: every request repairs until its answer passes, or the loop ends."""

    def __init__(self, provider, folder, providers=("openai",), n_requests=12, depth=3, **changes):
        self.provider, self.folder = provider, folder
        fields = {"replay": True, **changes}
        made = loaded(provider.url, providers, n_requests=n_requests, depth=depth, **fields)
        self.workflow, self.catalog = made.workflow, made.catalog
        key = (providers, depth, changes.get("build"))
        if key not in TRIES:
            few = replace(made.workflow, requests=made.workflow.requests[:6])
            made = type(made)(few, made.catalog, made.backends)
            profiled(made, folder / "profile.db", settings(workers=4, batch_prices=None))
            TRIES[key] = vinelm.estimate(folder / "profile.db", max_error=1.0)
        self.trie = TRIES[key]
        provider.at_once.clear()

    def run(self, name="a", **changes):
        fields = {"output": self.folder / f"{name}.jsonl", "budget_usd": 1.0, "workers": 4, "models": self.catalog}
        fields |= {"batch_prices": QUICK}
        return vinelm.batch(self.workflow, self.trie, BEST, **(fields | changes))

    def answers(self, name="a"):
        lines = [json.loads(line) for line in (self.folder / f"{name}.jsonl").read_text().splitlines()]
        return [(line["id"], line["status"], line["answer"], line["models"]) for line in lines]

    def committed_usd(self, name="a"):
        with ObservationStore.open(self.folder / f"{name}.db") as store:
            return store.committed_usd()


def test_the_answers_are_those_of_calls_at_once_for_half_the_dollars(provider, tmp_path):
    app = App(provider, tmp_path)
    once = app.run("once", batch_prices=False)
    calls = sum(provider.at_once.values())
    provider.at_once.clear()
    found = app.run()
    assert app.answers() == app.answers("once")
    assert calls > len(app.workflow.requests)  # some repair
    assert not provider.at_once
    assert sum(provider.bought.values()) == calls
    assert len(provider.batches) == max(len(models) for *_, models in app.answers())  # one wave for each invocation
    assert once.spent_usd == pytest.approx(calls * CALL_USD)
    assert found.spent_usd == pytest.approx(calls * (60 * 1.0 + 10 * 4.0 + 40 * 0.2) / 1e6)
    assert found.spent_usd == pytest.approx(app.committed_usd())
    assert found.spent_usd == pytest.approx(sum(line["cost_usd"] for line in found.lines()))
    assert check_store(tmp_path / "a.db").is_whole


@pytest.mark.parametrize("how", ["expired", "errored", "lost"])
def test_what_a_batch_does_not_answer_is_asked_at_once(provider, tmp_path, how):
    app = App(provider, tmp_path, ("openai", "anthropic"))
    app.run("once", batch_prices=False)
    provider.at_once.clear()
    provider.spoil = lambda model, prompt: how if "number 1" in prompt else None
    found = app.run()
    assert app.answers() == app.answers("once")
    spoiled = {prompt for _, prompt in provider.at_once}
    assert spoiled  # and all later calls of these requests
    assert all("number 1" in prompt for prompt in spoiled)
    assert set(provider.at_once.values()) == {1}
    lines = {line["id"]: line["cost_usd"] for line in found.lines()}
    lost_usd = found.spent_usd - sum(lines.values())
    assert (lost_usd > 1e-9) == (how == "lost")  # it may be billed, at its bound
    assert found.spent_usd == pytest.approx(app.committed_usd())
    assert lines["q1"] == pytest.approx(CALL_USD * len(next(models for name, *_, models in app.answers() if name == "q1")))


def test_a_submission_that_can_never_work_is_asked_at_once(provider, tmp_path):
    app = App(provider, tmp_path)
    provider.refuse = 400, {"error": {"message": "no", "type": "invalid_request_error", "code": "invalid"}}
    found = app.run()
    assert found.is_complete
    assert not provider.bought
    assert found.spent_usd == pytest.approx(sum(provider.at_once.values()) * CALL_USD)


def test_a_deadline_that_no_batch_fits_into_buys_at_once(provider, tmp_path):
    app = App(provider, tmp_path)
    dry = app.run(deadline_s=50.0, dry_run=True)
    assert dry.in_batches is None
    found = app.run(deadline_s=50.0)  # a batch is waited for 60 s
    assert found.is_complete
    assert not provider.bought


def test_a_wave_that_would_be_too_late_is_asked_at_once(provider, tmp_path):
    """The first wave fits, and when it has come nothing is left for a second one."""
    app = App(provider, tmp_path)
    provider.delay_s = 4.0
    window = replace(QUICK, wait_s=60.0)
    dry = app.run(deadline_s=63.0, batch_prices=window, dry_run=True)
    assert dry.in_batches is not None
    found = app.run(deadline_s=63.0, batch_prices=window)
    assert found.is_complete
    assert len(provider.batches) == 1
    assert sum(provider.bought.values()) == len(app.workflow.requests)
    assert provider.at_once


def test_the_cap_is_kept_while_calls_wait(provider, tmp_path, monkeypatch):
    """Bounds are many times the prices: only a few calls fit at a time, and each further wave has room for others."""
    app = App(provider, tmp_path)
    budget_usd, seen, reserve = 0.006, [], Ledger._reserve

    def noted(self, usd):
        reserve(self, usd)
        seen.append(self.committed_usd)

    def slowly(self, *given, **named):
        """Threads take their time between a request's run and where it goes: what it has reserved is not to be overlooked."""
        made(self, *given, **named)
        self._parked = SlowSet()

    made = BatchApiRun.__init__
    monkeypatch.setattr(Ledger, "_reserve", noted)
    monkeypatch.setattr(BatchApiRun, "__init__", slowly)
    found = app.run(budget_usd=budget_usd)
    assert max(seen) <= budget_usd + 1e-9
    assert found.spent_usd <= budget_usd
    assert found.is_complete
    assert max(provider.calls_per_batch) < len(app.workflow.requests)
    assert sum(provider.bought.values()) == sum(len(models) for *_, models in app.answers())


def test_a_budget_that_ends_leaves_requests_whose_calls_more_money_fetches(provider, tmp_path):
    app = App(provider, tmp_path)
    whole = app.run("whole")
    before = provider.bought.copy()
    found = app.run(budget_usd=0.0035)  # for the prices that is enough, for the bound of the last calls it is not
    assert not found.is_complete
    assert found.spent_usd <= 0.0035
    again = app.run(budget_usd=1.0)
    assert again.is_complete
    assert app.answers() == app.answers("whole")
    assert provider.bought - before == before
    assert again.spent_usd == pytest.approx(whole.spent_usd)


def test_a_run_that_stops_waiting_goes_on_with_the_same_line(provider, tmp_path):
    app = App(provider, tmp_path, ("openai", "gemini"))
    app.run("whole")
    before = provider.bought.copy()
    provider.delay_s = 1e6
    with pytest.raises(VineLMError, match="run the same line again to go on waiting") as raised:
        app.run(batch_prices=replace(QUICK, wait_s=0.5))
    assert raised.value.code == "batches-left"
    provider.delay_s = 0.0
    provider.end()
    with pytest.raises(ConfigError, match="run it with batch prices"):
        app.run(batch_prices=False)
    found = app.run(budget_usd=2.0)  # plans are those of the start, whatever the budget is now
    assert app.answers() == app.answers("whole")
    assert provider.bought - before == before
    assert found.spent_usd == pytest.approx(app.committed_usd("whole"))


def test_what_is_paid_is_fetched_first_though_the_ledger_is_above_the_budget(provider, tmp_path):
    app = App(provider, tmp_path)
    app.run("whole")
    before = provider.bought.copy()
    provider.delay_s = 1e6
    with pytest.raises(VineLMError, match="run the same line again"):
        app.run(budget_usd=0.0165, batch_prices=replace(QUICK, wait_s=0.5))
    assert app.committed_usd() > 0.0145  # the bounds of the calls that wait
    provider.delay_s = 0.0
    provider.end()
    found = app.run(budget_usd=0.0145)
    assert found.is_complete
    assert app.answers() == app.answers("whole")
    assert provider.bought - before == before
    assert found.spent_usd == pytest.approx(app.committed_usd("whole"))


@pytest.mark.parametrize("wave", [1, pytest.param(2, marks=pytest.mark.long), 3])
def test_a_run_that_is_cut_in_any_wave_ends_within_a_budget_near_its_price_and_fetches_all_that_it_paid(
    provider, tmp_path, wave
):
    app = App(provider, tmp_path)
    whole = app.run("whole")
    budget_usd = whole.spent_usd + 1.1 * BOUND_USD  # the last call has room, and not two of them
    submitted, waves = provider.submitted, []

    def until_then(kind, calls, **more):
        waves.append(calls)
        provider.delay_s = 1e6 if len(waves) == wave else 0.0
        return submitted(kind, calls, **more)

    provider.submitted = until_then
    with pytest.raises(VineLMError, match="run the same line again"):
        app.run(budget_usd=budget_usd, batch_prices=replace(QUICK, wait_s=0.5))
    provider.end()
    found = app.run(budget_usd=budget_usd)
    assert found.is_complete
    assert found.spent_usd == pytest.approx(whole.spent_usd)
    assert app.answers() == app.answers("whole")


def test_a_node_that_must_not_run_again_runs_once_and_what_follows_is_asked_at_once(provider, tmp_path):
    ran = []

    def build(vine):
        from langgraph.graph import END, START, StateGraph

        def noted(state: State) -> State:
            ran.append(state["question"])
            return {"checked": 1}

        graph = StateGraph(State)
        graph.add_node(
            "first", vine.stage("first", lambda state, model: {"answer": model.invoke(state["question"]).text}, state=State)
        )
        graph.add_node("noted", noted)
        graph.add_node(
            "last", vine.stage("last", lambda state, model: {"answer": model.invoke("x" + state["question"]).text}, state=State)
        )
        graph.add_edge(START, "first")
        graph.add_edge("first", "noted")
        graph.add_edge("noted", "last")
        graph.add_edge("last", END)
        return graph

    fields = {"template": Template((Stage("first", ("m0",)), Stage("last", ("m0",)))), "score": lambda *_: True}
    app = App(provider, tmp_path, build=build, replay=False, **fields)
    with pytest.raises(
        ConfigError, match=r"node 'noted' is more than a stage.*Workflow\(replay=True\).*Workflow\(unrepeatable=\)"
    ):
        app.run()
    ran.clear()
    app.workflow = replace(app.workflow, unrepeatable=("noted",))
    assert app.run().is_complete
    questions = sorted(f"number {k}" for k in range(12))
    assert sorted(ran) == questions
    assert sorted(prompt for _, prompt in provider.bought) == questions
    assert sorted(prompt for _, prompt in provider.at_once) == [f"x{one}" for one in questions]


def test_an_application_that_asks_something_else_each_time_is_asked_at_once(provider, tmp_path):
    def generate(state: State, model):
        return {"answer": model.invoke(f"{time.monotonic_ns()} {state['question']}").text}

    app = App(provider, tmp_path, n_requests=3, depth=1, build=one(generate))
    found = app.run()
    assert found.is_complete
    assert sum(provider.bought.values()) == sum(provider.at_once.values()) == 3
    assert found.spent_usd > sum(line["cost_usd"] for line in found.lines())  # what was bought counts at its bound
    assert found.spent_usd == pytest.approx(app.committed_usd())


def one(node):
    from kit.toys.profiling import one_stage

    return one_stage(node)


def test_a_coroutine_is_parked_as_well(provider, tmp_path):
    async def generate(state: State, model):
        first = await model.ainvoke("plan " + state["question"])
        return {"answer": first.text + (await model.ainvoke("write " + state["question"])).text}

    app = App(provider, tmp_path, depth=1, build=one(generate))
    found = app.run()
    assert found.by_status["ok"] == 12
    assert provider.calls_per_batch == [12, 12]


def test_stages_side_by_side_are_bought_once(provider, tmp_path):
    def build(vine):
        from langgraph.graph import END, START, StateGraph

        graph = StateGraph(State)
        for name, key in (("left", "answer"), ("right", "checked")):
            graph.add_node(
                name,
                vine.stage(
                    name, lambda state, model, n=name, k=key: {k: model.invoke(f"{n} {state['question']}").text}, state=State
                ),
            )
            graph.add_edge(START, name)
            graph.add_edge(name, END)
        return graph

    stages = vinelm.Parallel((Stage("left", ("m0", "m1")), Stage("right", ("m0", "m1"))))
    app = App(
        provider, tmp_path, ("openai", "anthropic"), build=build, template=Template((stages,)), score=lambda *_: True, depth=2
    )
    provider.delay_s = 0.4
    assert app.run().is_complete
    assert set(provider.bought.values()) == {1}
    assert sum(provider.bought.values()) == 24
    assert not provider.at_once


def test_what_cannot_be_run_again_is_refused(provider, tmp_path):
    app = App(provider, tmp_path)
    with pytest.raises(ConfigError, match="max_latency_s"):
        vinelm.batch(
            app.workflow, app.trie, Objective(maximize="accuracy", max_latency_s=3.0), output=tmp_path / "a.jsonl",
            budget_usd=1.0, models=app.catalog, batch_prices=QUICK,
        )  # fmt: skip
    assert not provider.bought


def test_a_dry_run_says_what_batch_prices_save(provider, tmp_path):
    app = App(provider, tmp_path)
    plain = app.run(batch_prices=False, dry_run=True)
    found = app.run(dry_run=True)
    assert found.in_batches.ordinary_usd == pytest.approx(plain.forecast.usd)
    assert found.in_batches.cost_usd == found.forecast.usd == pytest.approx(plain.forecast.usd / 2)
    assert found.in_batches.waves == 3
    assert json.loads(json.dumps(found.to_dict()))["in_batches"]["wait_s"] == QUICK.wait_s
    assert not provider.bought
    assert not provider.at_once


# -- kill -9 -----------------------------------------------------------------------------------------------------

FORKS = """
import json, os, sys
import vinelm
from kit.toys.batched import QUICK, dying, loaded

url, folder = sys.argv[1:]
made = loaded(url, ("openai", "gemini"), n_requests=12, depth=3, replay=True)
for backend in made.backends.values():
    backend.preload()
from google.genai import batches as _
from openai.resources import batches, files

trie, best = vinelm.load_trie(folder + "/t.vine"), vinelm.Objective(maximize="accuracy")
vinelm.batch(made.workflow, trie, best, output="never", models=made.catalog, batch_prices=QUICK, dry_run=True)
for line in sys.stdin:
    name, die, budget_usd = json.loads(line)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if die:
                dying(die)
            vinelm.batch(
                made.workflow, trie, best, output=f"{folder}/{name}.jsonl", budget_usd=budget_usd, workers=4,
                models=made.catalog, batch_prices=QUICK,
            )
            code = 0
        finally:
            os._exit(code)
    print(os.waitpid(pid, 0)[1], flush=True)
"""


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("moments", [(14, 50), pytest.param(range(10, 120), marks=pytest.mark.long)])
def test_kill_9_between_any_two_events_and_nothing_is_bought_twice(provider, tmp_path, moments):
    app = App(provider, tmp_path, ("openai", "gemini"))
    vinelm.save_trie(tmp_path / "t.vine", app.trie)
    given = [sys.executable, "-c", FORKS, provider.url, str(tmp_path)]
    with subprocess.Popen(
        given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1], env=dict(os.environ)
    ) as forks:

        def run(name, die=0):
            forks.stdin.write(json.dumps([name, die, 1.0]) + "\n")
            forks.stdin.flush()
            return int(forks.stdout.readline())

        assert run("calm") == 0
        bought, whole, calm_usd = provider.bought.copy(), app.answers("calm"), app.committed_usd("calm")
        killed = 0
        for die in moments:
            before = provider.bought.copy()
            killed += run(f"k{die}", die) == 9
            assert run(f"k{die}") == 0
            assert app.answers(f"k{die}") == whole, die
            assert provider.bought - before == bought, die
            assert app.committed_usd(f"k{die}") == pytest.approx(calm_usd), die
        assert killed >= 0.6 * len(moments)  # the last of the long list come after the end
        assert not provider.at_once
