"""Applications that serve together: what they see of each other, what they keep to themselves, and what they share."""

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from typing import TypedDict

import pytest
from kit.apps.paying import Backend, Till
from kit.tables import random_table
from kit.waiting import wait_for
from langgraph.graph import END, START, StateGraph

from vinelm import Price, VineLM
from vinelm.catalog import Catalog, Model
from vinelm.controller import FleetConfig, SlowdownCurve
from vinelm.controller.fleet.live_invocations import session_number
from vinelm.controller.fleet.member import ALONE
from vinelm.controller.fleet.snapshot import LiveState
from vinelm.controller.load.source import load_source
from vinelm.errors import CallRefused, ConfigError
from vinelm.objective import Objective
from vinelm.rows.observation import Usage

SECRET = "the launch is on tuesday"
TRIE = random_table(3, n_requests=60, n_models=3, depth=3).annotate()
OBJECTIVE = Objective(maximize="accuracy", max_latency_s=100.0)


class State(TypedDict, total=False):
    question: str
    turns: int


class DollarModel:
    """Each call may cost a dollar, and costs half of it."""

    def __init__(self, model, call):
        self.model, self.call = model, call

    def invoke(self, prompt):
        self.call.on_gate and self.call.on_gate(True)
        self.call.on_gate and self.call.on_gate(False)
        usage = Usage(model=self.model.name, cost_usd=0.5, latency_s=0.0)
        if self.call.guard is not None:
            self.call.guard.authorize(1.0).settle(usage)
        self.call.on_usage(usage)


class DollarBackend:
    is_simulated, is_virtual_time = True, False

    def chat_model(self, model, call):
        return DollarModel(model, call)


def serving(fleet, inside=lambda: None, **settings):
    """An application whose stages call ``inside`` while they run."""
    vine = VineLM(TRIE.catalog, {"test": DollarBackend()}, trie=TRIE, fleet=fleet, fallback=False, **settings)

    def generate(state: State, model):
        model.invoke(state["question"])
        inside()
        return {"turns": 1}

    def repair(state: State, model):
        model.invoke(state["question"])
        return {"turns": state["turns"] + 1}

    graph = StateGraph(State)
    graph.add_node("generate", vine.stage("generate", generate))
    graph.add_node("repair", vine.stage("repair", repair))
    graph.add_edge(START, "generate")
    for node in ("generate", "repair"):
        graph.add_conditional_edges(node, vine.route(lambda state: state["turns"] >= 2, again="repair", end=END))
    return vine, graph.compile()


FREE = Price(input=0.0, output=0.0, source="made up", as_of="2026-01-01")


def one_node(node):
    graph = StateGraph(State)
    graph.add_node("generate", node)
    graph.add_edge(START, "generate")
    graph.add_edge("generate", END)
    return graph.compile()


@pytest.fixture
def fleet(redis_url, fleet_name):
    return FleetConfig(url=redis_url, name=fleet_name)


@pytest.fixture
def started():
    """Applications to be stopped when the test ends."""
    vines = []
    yield vines
    for vine in vines:
        vine.fleet.fleet.stop()


def test_others_see_a_request_while_it_runs_and_nothing_of_what_it_says(fleet, started):
    seen = []

    def look():
        reader = other.fleet.fleet.reader()
        wait_for(lambda: len(reader.view()))
        wait_for(lambda: sum(other.fleet.others().values()))
        seen.append((reader.view(), dict(other.fleet.others())))
        link = reader._link
        for key in link._redis.keys(link.prefix + "*"):
            kind = link._redis.type(key)
            read = {b"hash": link._redis.hgetall, b"set": link._redis.smembers, b"string": link._redis.get}[kind]
            text = repr(read(key))
            assert not any(secret in text for secret in (SECRET, "tuesday", "chat-7")), key

    vine, app = serving(fleet, look)
    other, _ = serving(fleet)
    started += [vine, other]
    labels = {"configurable": {"thread_id": "chat-7", "tenant": "acme"}}
    app.invoke({"question": SECRET}, labels, context=vine.context(OBJECTIVE))
    ((view, others),) = seen
    assert (len(view), view.tenants, view.stages, view.deadline_s[0]) == (1, ("acme",), ("generate",), 100.0)
    assert view.session[0] == session_number("chat-7", "acme") != session_number("chat-7")
    assert (view.node[0] > 0, view.state[0], view.rest_usd[0] > 0, view.rest_s[0] > 0) == (True, LiveState.RUNNING, True, True)
    assert others == {view.engines[0]: 1}
    wait_for(lambda: not len(other.fleet.fleet.reader().view()))


def test_labels_may_be_functions_and_may_fail(fleet, started):
    seen = []

    def look():
        reader = vine.fleet.fleet.reader()
        wait_for(lambda: len(reader.view()))
        seen.append(reader.view())

    def fails(configurable):
        raise KeyError("tenant")

    labels = {"conversation_id": lambda configurable: configurable["user"] + "/1", "tenant": fails}
    vine, app = serving(replace(fleet, **labels), look)
    started.append(vine)
    app.invoke({"question": "q"}, {"configurable": {"user": "ann"}}, context=vine.context(OBJECTIVE))
    assert seen[0].session[0] == session_number("ann/1")
    assert seen[0].tenants == ("",)


def test_a_tenants_day_is_kept_by_all_together_with_and_without_a_plan(redis_url, fleet_name, tmp_path, started):
    config = FleetConfig(url=redis_url, name=fleet_name, daily_usd={"acme": 4.0}, journal=tmp_path / "fleet.sqlite")
    apps = [serving(config), serving(config)]
    started += [vine for vine, _ in apps]
    calls = 0

    def serve_until_refused():
        nonlocal calls
        for turn in range(20):
            vine, app = apps[turn % 2]
            context = vine.context(OBJECTIVE) if turn % 4 < 2 else None
            calls += app.invoke({"question": "q"}, {"configurable": {"tenant": "acme"}}, context=context)["turns"]

    with pytest.raises(CallRefused, match=r"tenant 'acme'.*\$4 for today"):
        serve_until_refused()
    assert 3 <= calls <= 8
    vine, app = apps[0]
    app.invoke({"question": "q"}, {"configurable": {"tenant": "another"}}, context=vine.context(OBJECTIVE))


@pytest.mark.parametrize("called", ["chat", "tool", "graph"])
def test_a_tenants_day_holds_in_threads_of_a_node(redis_url, fleet_name, tmp_path, started, called):
    """Each call in a pool was one of nobody's: forty of forty were sent."""
    config = FleetConfig(url=redis_url, name=fleet_name, daily_usd={"acme": 0.9}, journal=tmp_path / "fleet.sqlite")
    till, catalog = Till(), Catalog([Model(name="m", provider="payer", model_id="m", price=FREE, engine="e", max_tokens=8)])
    vine = VineLM(catalog, {"payer": Backend(till)}, fleet=config)
    started.append(vine)
    model = vine.chat_model("generate")

    @vine.tool(writes="session", cost_usd=0.1)
    def fetch(i: int) -> str:
        """Fetch."""
        till.pay(str(i))
        return "42"

    inner = one_node(lambda state: {"turns": int(model.invoke("?").text)})
    call = {
        "chat": lambda i: model.invoke(str(i)).text,
        "tool": lambda i: fetch.invoke({"i": i}),
        "graph": lambda i: inner.invoke({"turns": 0}),
    }[called]

    def node(carry):
        with ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(copy_context().run, call, i) if carry else pool.submit(call, i) for i in range(20)]
        return {"turns": len([one.result() for one in futures])}

    acme = {"configurable": {"tenant": "acme"}}
    with pytest.raises(CallRefused, match="copy_context"):
        one_node(lambda state: node(False)).invoke({"turns": 0}, acme)
    assert till.paid == []
    with pytest.raises(CallRefused, match="tenant 'acme'"):
        one_node(lambda state: node(True)).invoke({"turns": 0}, acme)
    assert 0 < len(till.paid) <= 9
    assert call(0)  # outside of every request, nobody's


def test_what_only_watches_refuses_nothing(redis_url, fleet_name, tmp_path, started):
    config = FleetConfig(url=redis_url, name=fleet_name, daily_usd={"*": 0.1}, journal=tmp_path / "fleet.sqlite")
    vine, app = serving(config, mode="observe")
    started.append(vine)
    app.invoke({"question": "q"}, context=vine.context(OBJECTIVE))


def test_a_cap_for_each_request_holds_beside_the_tenants(redis_url, fleet_name, tmp_path, started):
    config = FleetConfig(url=redis_url, name=fleet_name, daily_usd={"*": 40.0}, journal=tmp_path / "fleet.sqlite")
    vine, app = serving(config)
    started.append(vine)
    tight = Objective(maximize="accuracy", max_cost_usd=0.9, cost_budget="per_request", on_infeasible="best_effort")
    with pytest.raises(CallRefused, match="left of the request's"):
        app.invoke({"question": "q"}, context=vine.context(tight))
    account = vine.fleet.fleet.account("")
    assert (account.spent_usd, account.reserved_usd) == (0.0, 0.0)  # the call was not made


def test_without_redis_it_serves_and_says_so_once_and_in_the_trace(redis_server, fleet_name, started):
    redis_server.kill()
    config = FleetConfig(url=redis_server.url, name=fleet_name)
    with pytest.warns(UserWarning, match="goes on alone"):
        vine, app = serving(config)
    started.append(vine)
    session = vine.session(OBJECTIVE)
    assert app.invoke({"question": "q"}, context=vine.context(policy=session))["turns"] >= 1
    assert session.trace()[0]["note"].endswith(ALONE)
    redis_server.start()
    wait_for(lambda: not vine.fleet.fleet.is_alone)
    session = vine.session(OBJECTIVE)
    app.invoke({"question": "q"}, context=vine.context(policy=session))
    assert ALONE not in session.trace()[0]["note"]
    redis_server.kill()
    wait_for(lambda: vine.fleet.fleet.is_alone)
    assert app.invoke({"question": "q"}, context=vine.context(OBJECTIVE))["turns"] >= 1
    with pytest.raises(ConfigError, match="does not answer") as failed:
        serving(FleetConfig(url=redis_server.url, name=fleet_name, required=True))
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"daily_usd": {"a": 1.0}}, "needs a journal"),
        ({"journal": "x.sqlite"}, "no effect without daily_usd"),
        ({"daily_usd": {"a": -1.0}, "journal": "x"}, "above 0"),
        ({"daily_usd": {"a": float("nan")}, "journal": "x"}, "above 0"),
        ({"daily_usd": {"a": "much"}, "journal": "x"}, "above 0"),
    ],
)
def test_a_wrong_config_is_one_line(wrong, text):
    with pytest.raises(ConfigError, match=text):
        FleetConfig(url="redis://localhost", **wrong)


def test_a_wrong_address_or_label_is_one_line(redis_url):
    with pytest.raises(ConfigError, match="no Redis URL"):
        serving("localhost")
    with pytest.raises(ConfigError, match="tenant is 3"):
        FleetConfig(url=redis_url, tenant=3)


def test_calls_of_others_count_on_slowdown_curves(tmp_path):
    curves = tmp_path / "curves.toml"
    points = "requests = [0, 10]\nextra_s = [0, 5]\n"
    curves.write_text(f'format = "vinelm slowdown curves"\nversion = 1\n[curves.east]\n{points}', encoding="utf-8")
    others = {"east": 3, "north": 7}
    monitor = load_source(curves, ["east", "west"], lambda: others)
    assert {engine: delay.extra_s for engine, delay in monitor.delays().items()} == {"east": 1.5}
    monitor.dispatched("east")
    assert monitor.delays()["east"].extra_s == SlowdownCurve((0.0, 10.0), (0.0, 5.0)).at(4)
    others.clear()
    assert monitor.delays()["east"].extra_s == 0.5
