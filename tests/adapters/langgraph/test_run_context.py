"""What a run is asked for reaches its policy by any of the ways, and the user's own context stays the user's."""

import asyncio
import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass
from typing import Any

import pytest
from kit.apps.echo import MODES, App, EchoBackend, control, run
from kit.catalogs import make_catalog
from kit.templates import make_template
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from vinelm.adapters.langgraph import GraphAdapter, RunContext
from vinelm.adapters.langgraph.runs.run_context import carried_by
from vinelm.backends.resolver import ModelResolver
from vinelm.clock import VirtualClock, WallClock
from vinelm.errors import ConfigError
from vinelm.objective import Objective
from vinelm.policies import DefaultPolicy
from vinelm.requests.workflow import Request

GOAL = Objective(maximize="accuracy", max_latency_s=15)


@dataclass
class Plain:
    tenant: str


@dataclass(frozen=True)
class Frozen:
    tenant: str


class Loose(BaseModel):
    tenant: str


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    tenant: str


class Object:
    def __init__(self, tenant):
        self.tenant = tenant


class Dict(TypedDict):
    tenant: str


class Noting(GraphAdapter):
    """Keeps what each run was asked for."""

    def __init__(self, backend=None):
        models = ModelResolver(make_catalog(3), {"test": backend or EchoBackend()})
        super().__init__(models, template=make_template(3, 3), new_policy=self.note)
        self.contexts = []

    def note(self, context):
        self.contexts.append(context)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("has_schema", [True, False])
@pytest.mark.parametrize("kind", [Plain, Frozen, Loose, Strict, Object, Dict], ids=lambda kind: kind.__name__)
def test_the_users_own_context_carries_the_objective(kind, has_schema, mode):
    vine = Noting()
    user = kind(tenant="acme")
    given = vine.context(GOAL, user=user)
    seen = []

    def tool(state: dict, runtime: Runtime):
        seen.append(runtime.context)
        return {}

    app = App(mode=mode, turns=1)
    graph = StateGraph(app.schema, context_schema=kind if has_schema else None)
    whole = app.build(vine)
    graph.add_node("tool", tool)
    graph.add_node("generate", whole.nodes["generate"].runnable, input_schema=whole.nodes["generate"].input_schema)
    graph.add_edge(START, "tool")
    graph.add_edge("tool", "generate")
    graph.add_edge("generate", END)
    run(graph.compile(), mode, {"q": "?"}, context=given)
    assert [context.objective for context in vine.contexts] == [GOAL]
    (theirs,) = seen
    if kind is Dict:
        assert (theirs["tenant"], theirs["vinelm"].objective) == ("acme", GOAL)
        assert user == {"tenant": "acme"}
        return
    assert type(theirs) is kind
    assert theirs.tenant == "acme"
    assert not hasattr(user, "vinelm")
    if kind is not Object:
        assert theirs == user
        dumped = asdict(theirs) if kind in (Plain, Frozen) else theirs.model_dump()
        assert dumped == {"tenant": "acme"}


def test_without_a_context_of_the_user_the_run_context_is_the_context():
    assert control().context(GOAL) == RunContext(objective=GOAL)
    assert control().context({"maximize": "accuracy", "max_latency_s": 15}) == RunContext(objective=GOAL)


def test_a_run_context_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        control().context(GOAL).objective = None


@dataclass(slots=True)
class Slotted:
    tenant: str


@dataclass(slots=True, frozen=True)
class SlottedWithField:
    tenant: str
    vinelm: Any = None


class ModelWithField(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    tenant: str
    vinelm: Any = None


@pytest.mark.parametrize("user", [Slotted("acme"), 7, ("a", "tuple")])
def test_a_context_that_can_carry_nothing_is_refused_in_one_line(user):
    with pytest.raises(ConfigError, match=r"cannot carry an objective .*use `with vine.request") as caught:
        control().context(GOAL, user=user)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [SlottedWithField, ModelWithField])
def test_a_field_of_the_users_own_is_filled(kind):
    user = kind(tenant="acme")
    given = control().context(GOAL, user=user)
    assert type(given) is kind
    assert carried_by(given).objective == GOAL
    assert user.vinelm is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [SlottedWithField, ModelWithField, None])
def test_plain_json_in_the_field_is_an_objective(kind, mode):
    """What a LangGraph server can send."""
    vine = Noting()
    graph = App(mode=mode, turns=1).build(vine)
    plain = {"maximize": "accuracy", "max_latency_s": 15, "request_id": "r1"}
    sent = {"vinelm": plain} if kind is None else {"tenant": "acme", "vinelm": plain}
    compiled = StateGraph.compile(graph) if kind is None else with_schema(graph, kind).compile()
    run(compiled, mode, {"q": "?"}, context=sent)
    assert (vine.contexts[0].objective, vine.contexts[0].request_id) == (GOAL, "r1")


def with_schema(graph, schema):
    graph.context_schema = schema
    return graph


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ({"maximise": "accuracy"}, "an objective has no field 'maximise'"),
        ({"maximize": "accuracy", "max_latency_s": -1}, "max_latency_s is -1"),
        ({"request_id": 7}, "request_id is 7: give it a string"),
        ("accuracy", "is a str: give it vine.context"),
    ],
)
def test_a_wrong_field_is_refused_in_one_line(field, words):
    graph = App().build(control()).compile()
    with pytest.raises(ConfigError, match=words) as caught:
        graph.invoke({"q": "?"}, context={"vinelm": field})
    assert "\n" not in str(caught.value)


def test_an_objective_itself_may_stand_in_the_field():
    assert carried_by({"vinelm": GOAL}) == RunContext(objective=GOAL)


@pytest.mark.parametrize("mode", MODES)
def test_a_with_block_serves_where_no_context_can_be_passed(mode):
    vine = Noting()
    graph = App(mode=mode, turns=1).build(vine).compile()
    with vine.request(GOAL, request_id="r1"):
        run(graph, mode, {"q": "?"})
        run(graph, mode, {"q": "?"}, context={"tenant": "acme"})
        run(graph, mode, {"q": "?"}, context=vine.context(Objective(minimize="cost")))
        run(graph, mode, {"q": "?"}, context=vine.context(Objective(minimize="latency"), user=Plain("acme")))
    run(graph, mode, {"q": "?"})
    cost, latency = Objective(minimize="cost"), Objective(minimize="latency")
    assert [context.objective for context in vine.contexts] == [GOAL, GOAL, cost, latency, None]
    assert [context.request_id for context in vine.contexts] == ["r1", "r1", None, None, None]


def test_with_blocks_nest_and_end_with_an_exception():
    vine = control()
    with vine.request(GOAL):
        with pytest.raises(ZeroDivisionError), vine.request(Objective(minimize="cost")):
            raise ZeroDivisionError
        assert carried_by(None).objective == GOAL
    assert carried_by(None) == RunContext()


def test_a_labelled_request_gives_its_id_and_reaches_the_backend():
    backend = EchoBackend()
    vine = Noting(backend)
    request = Request("q7", {"q": "?"})
    App(turns=2).build(vine).compile().invoke({"q": "?"}, context=vine.context(request=request))
    assert vine.contexts[0].request_id == "q7"
    assert [(call.stage, call.prefix, call.request) for call in backend.calls] == [
        ("generate", ("m0",), request),
        ("repair", ("m0", "m0"), request),
    ]


def test_a_context_can_be_copied():
    context = control().context(GOAL, user=Plain("acme"))
    assert carried_by(copy.copy(context)).objective == GOAL
    assert carried_by(copy.deepcopy(context)).objective == GOAL
    assert carried_by(pickle.loads(pickle.dumps(context))).objective == GOAL  # noqa: S301 - what was just dumped


# -- the time of arrival ---------------------------------------------------------------------------------------


class RealTime(EchoBackend):
    is_virtual_time = False

    def chat_model(self, model, call):
        echo = super().chat_model(model, call)
        return echo.model_copy(update={"call": Instant(call)})


class Instant:
    """Answers without letting real time pass."""

    clock = VirtualClock()

    def __init__(self, call):
        self.on_usage = call.on_usage


@pytest.mark.parametrize("mode", MODES)
def test_a_request_arrives_when_invoke_is_called_tools_before_the_first_stage_included(mode, monkeypatch):
    times = iter(float(i) for i in range(10_000))
    monkeypatch.setattr("vinelm.adapters.langgraph.path.path_channel.time.monotonic", lambda: next(times))
    at = {}
    vine = Noting(RealTime())
    app = App(mode=mode, turns=1)
    whole = app.build(vine)
    graph = StateGraph(app.schema)
    graph.add_node("retrieve", lambda state: at.setdefault("tool", next(times)) and {})
    graph.add_node("generate", whole.nodes["generate"].runnable, input_schema=whole.nodes["generate"].input_schema)
    graph.add_edge(START, "retrieve")
    graph.add_edge("retrieve", "generate")
    compiled = graph.compile()
    for _ in range(2):
        at.clear()
        before = next(times)
        run(compiled, mode, {"q": "?"}, context=RunContext())
        assert before < vine.contexts[-1].started_at < at["tool"]


def test_a_given_time_of_arrival_is_kept_and_virtual_time_has_none():
    real, virtual = Noting(RealTime()), Noting()
    for vine in (real, virtual):
        graph = App(turns=1).build(vine).compile()
        graph.invoke({"q": "?"}, context=vine.context(started_at=12.5))
        graph.invoke({"q": "?"}, context=vine.context())
    assert [context.started_at for context in virtual.contexts] == [12.5, None]
    assert real.contexts[0].started_at == 12.5
    assert real.contexts[1].started_at > 12.5


def test_sixty_runs_each_know_their_own_arrival():
    vine = Noting(RealTime())
    graph = App(mode="async", turns=1).build(vine).compile()
    context = vine.context()

    async def late(i):
        await asyncio.sleep(0.002 * i)
        await graph.ainvoke({"q": i}, context=context)

    async def all_at_once():
        await asyncio.gather(*(late(i) for i in range(60)))

    asyncio.run(all_at_once())
    assert len({context.started_at for context in vine.contexts}) == 60


# -- defaults --------------------------------------------------------------------------------------------------


def test_without_a_plan_each_stage_runs_its_default():
    from vinelm.template import Loop, Stage, Template

    template = Template((Stage("generate"), Loop((Stage("repair", default="m2", models=("m1", "m2")),), 2)))
    vine = GraphAdapter(ModelResolver(make_catalog(3), {"test": EchoBackend()}), template=template)
    assert App(turns=2).build(vine).compile().invoke({"q": "?"})["a"] == "m0;m2;"
    vine.stage("generate", lambda state, model: {}, state=App.schema, default="m1")
    assert [vine.default_model(name) for name in ("generate", "repair", "elsewhere")] == ["m1", "m2", "m0"]
    assert vine.stages == {"generate": "m1", "repair": None}


@pytest.mark.parametrize("mode", MODES)
def test_two_graphs_over_one_object_run_each_its_own_default(mode):
    """Such as a graph for each customer, whose default is what he pays for; it is built when he asks."""
    vine = GraphAdapter(ModelResolver(make_catalog(3), {"test": EchoBackend()}))

    def think(state: dict, model) -> dict:
        return {"a": model.invoke("?").text}

    async def athink(state: dict, model) -> dict:
        return {"a": (await model.ainvoke("?")).text}

    def built(default):
        node = vine.stage("generate", think if mode == "sync" else athink, state=App.schema, default=default)
        return StateGraph(App.schema).add_node("generate", node).add_edge(START, "generate").compile()

    graphs = [built("m2"), built("m1")]
    assert [run(graph, mode, {"q": "?"})["a"] for graph in (*graphs, *graphs)] == ["m2", "m1", "m2", "m1"]


def test_the_default_policy_keeps_what_happened():
    vine = control()
    policies = []

    def keep(context):
        policies.append(DefaultPolicy(vine.default_model, clock=vine.new_clock(), template=vine.template))
        return policies[-1]

    vine = GraphAdapter(vine.models, template=vine.template, new_policy=keep)
    App(turns=2).build(vine).compile().invoke({"q": "?"})
    (policy,) = policies
    assert isinstance(policy, DefaultPolicy)
    assert [(i.stage, i.prefix, i.latency_s) for i in policy.invocations] == [
        ("generate", ("m0",), 1.0),
        ("repair", ("m0", "m0"), 1.0),
    ]
    assert policy.clock.now() == 2.0


@pytest.mark.parametrize(("backend", "clock"), [(EchoBackend, VirtualClock), (RealTime, WallClock)])
def test_the_clock_is_the_backends(backend, clock):
    assert type(Noting(backend()).new_clock()) is clock


def test_virtual_and_real_time_do_not_mix():
    catalog = make_catalog(2)
    mixed = [catalog["m0"], catalog["m1"].model_copy(update={"provider": "other"})]
    vine = GraphAdapter(ModelResolver(type(catalog)(mixed), {"test": EchoBackend(), "other": RealTime()}))
    with pytest.raises(ConfigError, match="mixes models of virtual and of real time"):
        vine.new_clock()


def test_a_provider_without_a_backend_is_one_line():
    vine = GraphAdapter(ModelResolver(make_catalog(2), {"other": EchoBackend()}))
    with pytest.raises(ConfigError, match=r"model 'm0': no backend for the provider 'test': known are other"):
        App().build(vine).compile().invoke({"q": "?"})


def test_a_policy_that_names_an_unknown_model_is_one_line():
    vine = control()
    policy = DefaultPolicy(lambda stage: "gpt-9", clock=vine.new_clock(), template=vine.template)
    with pytest.raises(ConfigError, match="unknown model 'gpt-9': the catalog has m0, m1, m2"):
        App().build(vine).compile().invoke({"q": "?"}, context=vine.context(policy=policy))
