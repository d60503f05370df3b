"""VineMiddleware: an agent made with create_agent runs each model call on the policy's model, and can be profiled."""

import asyncio
import warnings

import pytest
from kit.apps.chat import ScriptedBackend, calls_then, chat_control, follow
from kit.apps.echo import path_of, run, thread
from kit.catalogs import make_catalog
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import BaseModel

pytest.importorskip("langchain")
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelCallLimitMiddleware, ModelRetryMiddleware
from langchain.agents.structured_output import ToolStrategy

from vinelm import VineChatModel, VineMiddleware
from vinelm.adapters.langgraph import GraphAdapter, build_graph
from vinelm.backends.resolver import ModelResolver
from vinelm.errors import CallError, ConfigError, WorkflowError
from vinelm.profiler.execution.unit import UnitRunner
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Loop, Stage, Template

MODELS = ("m0", "m1", "m2")
TEMPLATE = Template((Loop((Stage("model", MODELS),), times=3),))


@tool
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


@tool
def ask(question: str) -> str:
    """Ask a person."""
    return interrupt(question)


TWICE = calls_then("4", ("add", {"a": 1, "b": 1}), ("add", {"a": 2, "b": 2}))


def agent_control(backend) -> GraphAdapter:
    return GraphAdapter(ModelResolver(make_catalog(3), {"test": backend}), template=TEMPLATE)


def build_agent(vine, *more, tools=(add,), first=(), **kwargs):
    bare = ScriptedBackend().chat_model(make_catalog()["m0"], None)
    return create_agent(bare, list(tools), middleware=[*first, VineMiddleware(vine), *more], **kwargs)


def question(text="1 + 1 + 2?"):
    return {"messages": [HumanMessage(text)]}


def models_of(backend):
    return [name for name, _, _ in backend.log]


MODES = ("sync", "async")


@pytest.mark.parametrize("mode", MODES)
def test_each_call_runs_on_its_own_model(mode):
    backend = ScriptedBackend(TWICE)
    vine = agent_control(backend)
    policy = follow(vine, "m2", "m0", "m1")
    out = run(build_agent(vine), mode, question(), context=vine.context(policy=policy))
    assert out["messages"][-1].text == "4"
    assert "vinelm_path" not in out
    assert [(one.stage, one.prefix) for one in policy.invocations] == [
        ("model", ("m2",)),
        ("model", ("m2", "m0")),
        ("model", ("m2", "m0", "m1")),
    ]
    assert [one.cost_usd for one in policy.invocations] == [0.01] * 3


@pytest.mark.parametrize("mode", MODES)
def test_the_vine_whose_context_it_is_plans_the_run(mode):
    """An agent at module level is served by another VineLM: ``vinelm verify``, a second trie."""
    made_from, backend = ScriptedBackend(TWICE), ScriptedBackend(TWICE)
    other = GraphAdapter(ModelResolver(make_catalog(3), {"test": backend}))
    policy = follow(other, "m2", "m0", "m1")
    out = run(build_agent(agent_control(made_from)), mode, question(), context=other.context(policy=policy))
    assert out["messages"][-1].text == "4"
    assert models_of(backend) == ["m2", "m0", "m1"]
    assert models_of(made_from) == []
    assert "model" in other.stages
    assert not other.can_end


@pytest.mark.parametrize("mode", MODES)
def test_a_second_turn_is_a_new_request(mode):
    backend = ScriptedBackend()
    vine = agent_control(backend)
    app = build_agent(vine, checkpointer=InMemorySaver())

    def answer(name, messages, options):
        return TWICE(name, messages[max(i for i, m in enumerate(messages) if isinstance(m, HumanMessage)) :], options)

    backend.answer = answer
    for path in (["m0", "m1", "m2"], ["m2", "m1", "m0"]):
        run(app, mode, question(), thread(), context=vine.context(policy=follow(vine, *path)))
        assert path_of(app, thread()) == path


@pytest.mark.parametrize("mode", MODES)
def test_without_an_id_a_run_stays_one_request_beyond_the_template(mode):
    calls = [("add", {"a": i, "b": i}) for i in range(5)]
    backend = ScriptedBackend(calls_then("done", *calls))
    vine = agent_control(backend)
    run(build_agent(vine), mode, question())
    assert [len(prefix) for _, prefix, _ in backend.log] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("mode", MODES)
def test_a_run_resumed_elsewhere_goes_on_with_its_path(mode):
    backend = ScriptedBackend(calls_then("done", ("ask", {"question": "sure?"})))
    saver = InMemorySaver()
    vine = agent_control(backend)
    run(
        build_agent(vine, tools=[ask], checkpointer=saver),
        mode,
        question(),
        thread(),
        context=vine.context(policy=follow(vine, "m1")),
    )
    again = agent_control(backend)  # nothing in memory is shared but the checkpoints
    app = build_agent(again, tools=[ask], checkpointer=saver)
    run(app, mode, Command(resume="yes"), thread(), context=again.context(policy=follow(again, "m1", "m2")))
    assert [prefix for _, prefix, _ in backend.log] == [("m1",), ("m1", "m2")]


@pytest.mark.parametrize("mode", MODES)
def test_parallel_tool_calls_do_not_break_the_path(mode):
    def answer(name, messages, options):
        if isinstance(messages[-1], ToolMessage):
            return AIMessage("done")
        return AIMessage("", tool_calls=[{"name": "add", "args": {"a": i, "b": i}, "id": str(i)} for i in range(3)])

    backend = ScriptedBackend(answer)
    vine = agent_control(backend)
    out = run(build_agent(vine), mode, question(), context=vine.context(policy=follow(vine, "m1", "m2")))
    assert [message.text for message in out["messages"][2:5]] == ["0", "2", "4"]
    assert [prefix for _, prefix, _ in backend.log] == [("m1",), ("m1", "m2")]


def test_sixty_runs_on_one_shared_context():
    backend = ScriptedBackend(TWICE)
    vine = agent_control(backend)
    app, context = build_agent(vine), vine.context()

    async def main():
        return await asyncio.gather(*(app.ainvoke(question(), context=context) for _ in range(60)))

    assert {out["messages"][-1].text for out in asyncio.run(main())} == {"4"}
    assert sorted(len(prefix) for _, prefix, _ in backend.log) == [1] * 60 + [2] * 60 + [3] * 60


@pytest.mark.parametrize("mode", MODES)
def test_a_failed_call_is_recorded_and_raised(mode):
    backend = ScriptedBackend(TWICE, fail={"m1": CallError("m1: server", kind="server")})
    vine = agent_control(backend)
    policy = follow(vine, "m0", "m1")
    with pytest.raises(CallError):
        run(build_agent(vine), mode, question(), context=vine.context(policy=policy))
    assert [(one.prefix, one.failure) for one in policy.invocations] == [(("m0",), None), (("m0", "m1"), "server")]


@pytest.mark.parametrize("mode", MODES)
def test_a_retry_inside_is_one_invocation(mode):
    failures = iter([CallError("m0: server", kind="server")])

    def answer(name, messages, options):
        for failure in failures:
            raise failure
        return AIMessage("done")

    backend = ScriptedBackend(answer)
    vine = agent_control(backend)
    policy = follow(vine, "m0")
    retry = ModelRetryMiddleware(max_retries=1, initial_delay=0.0, jitter=False)
    run(build_agent(vine, retry), mode, question(), context=vine.context(policy=policy))
    assert [(one.prefix, len(one.usages), one.failure) for one in policy.invocations] == [(("m0",), 2, None)]


@pytest.mark.parametrize("mode", MODES)
def test_a_retry_around_the_routed_call_is_planned_again(mode):
    backend = ScriptedBackend(TWICE, fail={"m1": CallError("m1: server", kind="server")})
    vine = agent_control(backend)
    asked = []

    class InjectedParameters(type(follow(vine))):
        def next_model(self, stage, prefix):
            asked.append(prefix)
            return ("m0", "m1", "m2", "m0")[len(asked) - 1]

    policy = InjectedParameters(vine.template, [], clock=vine.new_clock())
    retry = ModelRetryMiddleware(max_retries=1, initial_delay=0.0, jitter=False)
    app = build_agent(vine, first=[retry], checkpointer=InMemorySaver())
    out = run(app, mode, question(), thread(), context=vine.context(policy=policy))
    assert out["messages"][-1].text == "4"
    assert asked == [(), ("m0",), ("m0",), ("m0", "m2")]
    assert [(one.prefix[-1], one.failure) for one in policy.invocations] == [
        ("m0", None),
        ("m1", "server"),
        ("m2", None),
        ("m0", None),
    ]
    assert path_of(app, thread()) == ["m0", "m2", "m0"]


@pytest.mark.parametrize("mode", MODES)
def test_tokens_come_once(mode):
    backend = ScriptedBackend()
    vine = agent_control(backend)
    app, context = build_agent(vine, tools=[]), vine.context(policy=follow(vine, "m1"))

    async def collect():
        return [chunk.text async for chunk, _ in app.astream(question(), context=context, stream_mode="messages")]

    if mode == "sync":
        tokens = [chunk.text for chunk, _ in app.stream(question(), context=context, stream_mode="messages")]
    else:
        tokens = asyncio.run(collect())
    assert [token for token in tokens if token] == ["one ", "two ", "three"]


def test_a_routed_call_leaves_the_warning_filters_of_the_process_alone(monkeypatch):
    """They belong to every thread. LangChain replaces them for a while whenever it makes a request, ``override`` included."""
    replaced, own = [], warnings.catch_warnings

    def counting(*args, **kwargs):
        replaced.append(1)
        return own(*args, **kwargs)

    monkeypatch.setattr(warnings, "catch_warnings", counting)
    counts = []
    for middleware in ([], [VineMiddleware(agent_control(ScriptedBackend(TWICE)))]):
        bare = ScriptedBackend(TWICE).chat_model(make_catalog()["m0"], Spending)
        replaced.clear()
        create_agent(bare, [add], middleware=middleware).invoke(question())
        counts.append(len(replaced))
    assert counts[0] == counts[1] > 0


def test_a_routed_request_is_what_override_would_make():
    seen = []

    class Seeing(AgentMiddleware):
        def __init__(self, name):
            super().__init__()
            self.given_name = name

        @property
        def name(self):
            return self.given_name

        def wrap_model_call(self, request, handler):
            seen.append(request)
            return handler(request)

    vine = agent_control(ScriptedBackend(TWICE))
    changed = wrapping(model_settings={"parallel": True}, system_message=SystemMessage("be brief"), tool_choice="add")
    build_agent(vine, Seeing("inside"), first=[changed, Seeing("outside")]).invoke(question(), context=vine.context())
    assert len(seen) == 6
    for given, routed in zip(seen[::2], seen[1::2], strict=True):
        assert routed == given.override(model=routed.model)
        assert given.model is not routed.model
        assert routed.model_settings == {"parallel": True}


# -- what is bound survives the switch (langchain#36568, langchain#38847) --------------------------------------------


class Red(BaseModel):
    """Red."""

    x: int


class Blue(BaseModel):
    """Blue."""

    x: int


def wrapping(**overrides):
    """A middleware of the user's that overrides the request."""

    class Overriding(AgentMiddleware):
        def wrap_model_call(self, request, handler):
            return handler(request.override(**overrides))

        async def awrap_model_call(self, request, handler):
            return await handler(request.override(**overrides))

    return Overriding()


def structured(name, messages, options):
    tool_name = next(iter(options["tools"][-1].values()))
    return AIMessage("", tool_calls=[{"name": tool_name, "args": {"x": 1}, "id": "1"}])


def bound_by(app_of, mode):
    """The options of the only model call of an agent."""
    backend = ScriptedBackend(structured)
    run(app_of(backend), mode, question())
    [(_, _, options)] = backend.log
    return {key: options[key] for key in ("tools", "tool_choice")}


class Spending:
    """Stands for the call of a bare model: no VineLM is there to hear of its usage."""

    prefix = ()

    class clock:  # noqa: N801
        sleep = staticmethod(lambda seconds: None)

    on_usage = staticmethod(lambda usage: None)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "overrides", [{}, {"response_format": ToolStrategy(Blue)}, {"tool_choice": "Blue"}], ids=["plain", "narrowed", "choice"]
)
@pytest.mark.parametrize("is_outside", [True, False])
def test_a_chosen_model_is_bound_exactly_as_the_bare_one_would_be(mode, overrides, is_outside):
    user = wrapping(**overrides)

    def bare(backend):
        model = backend.chat_model(make_catalog()["m0"], Spending)
        return create_agent(model, [add], middleware=[user], response_format=ToolStrategy(Red | Blue))

    def routed(backend):
        vine = agent_control(backend)
        kwargs = {"response_format": ToolStrategy(Red | Blue)}
        return build_agent(vine, first=[user], **kwargs) if is_outside else build_agent(vine, user, **kwargs)

    assert bound_by(routed, mode) == bound_by(bare, mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_narrowed_response_format_stays_narrow(mode):
    backend = ScriptedBackend(structured)
    vine = agent_control(backend)
    app = build_agent(vine, first=[wrapping(response_format=ToolStrategy(Red))], response_format=ToolStrategy(Red | Blue))
    out = run(app, mode, question(), context=vine.context(policy=follow(vine, "m2")))
    assert out["structured_response"] == Red(x=1)
    [(_, _, options)] = backend.log
    assert options["tools"] == [{"function": "add"}, {"function": "Red"}]


@pytest.mark.parametrize("mode", MODES)
def test_tools_take_the_form_of_each_model_of_the_loop(mode):
    backend = ScriptedBackend(TWICE)
    vine = agent_control(backend)
    run(build_agent(vine), mode, question(), context=vine.context(policy=follow(vine, "m0", "m1", "m2")))
    assert [options["tools"] for _, _, options in backend.log] == [
        [{"function": "add"}],
        [{"input_schema": "add"}],
        [{"function": "add"}],
    ]


@pytest.mark.parametrize("mode", MODES)
def test_an_explicit_choice_of_tool_reaches_each_model_of_the_loop(mode):
    backend = ScriptedBackend(TWICE)
    vine = agent_control(backend)
    app = build_agent(vine, first=[wrapping(tool_choice="add")])
    run(app, mode, question(), context=vine.context(policy=follow(vine, "m0", "m1", "m2")))
    assert [options["tool_choice"] for _, _, options in backend.log] == ["add"] * 3


@pytest.mark.parametrize("mode", MODES)
def test_a_narrowed_response_format_stays_narrow_on_each_model_of_the_loop(mode):
    def answer(name, messages, options):
        if isinstance(messages[-1], ToolMessage):
            return structured(name, messages, options)
        return AIMessage("", tool_calls=[{"name": "add", "args": {"a": 1, "b": 1}, "id": "1"}])

    backend = ScriptedBackend(answer)
    vine = agent_control(backend)
    app = build_agent(vine, first=[wrapping(response_format=ToolStrategy(Red))], response_format=ToolStrategy(Red | Blue))
    out = run(app, mode, question(), context=vine.context(policy=follow(vine, "m0", "m1")))
    assert out["structured_response"] == Red(x=1)
    assert [[*map(str, tool.values())] for _, _, options in backend.log for tool in options["tools"]] == [["add"], ["Red"]] * 2


@pytest.mark.parametrize("mode", MODES)
def test_tool_calls_and_tokens_are_streamed_once_across_a_switch(mode):
    backend = ScriptedBackend(calls_then("4", ("add", {"a": 2, "b": 2})))
    vine = agent_control(backend)
    app, context = build_agent(vine), vine.context(policy=follow(vine, "m0", "m1"))

    async def collect():
        return [chunk async for chunk, _ in app.astream(question(), context=context, stream_mode="messages")]

    if mode == "sync":
        chunks = [chunk for chunk, _ in app.stream(question(), context=context, stream_mode="messages")]
    else:
        chunks = asyncio.run(collect())
    calls = [call["args"] for chunk in chunks for call in getattr(chunk, "tool_call_chunks", ())]
    assert calls == ['{"a": 2, "b": 2}']
    assert [chunk.text for chunk in chunks if chunk.text] == ["4", "4"]  # the tool's answer, then the model's
    assert models_of(backend) == ["m0", "m1"]


def test_a_wrong_structured_answer_is_asked_again_on_the_next_model():
    def answer(name, messages, options):
        args = {"x": 1} if isinstance(messages[-1], ToolMessage) else {"y": 1}
        return AIMessage("", tool_calls=[{"name": "Red", "args": args, "id": "1"}])

    backend = ScriptedBackend(answer)
    vine = agent_control(backend)
    app = build_agent(vine, response_format=ToolStrategy(Red))
    out = app.invoke(question(), context=vine.context(policy=follow(vine, "m0", "m1")))
    assert out["structured_response"] == Red(x=1)
    assert models_of(backend) == ["m0", "m1"]


# -- profiling -----------------------------------------------------------------------------------------------------


def workflow(build=build_agent, template=TEMPLATE) -> Workflow:
    return Workflow(
        name="sums",
        template=template,
        build=build,
        requests=[Request("q1", {"question": "1 + 1 + 2?", "answer": "4"})],
        inputs=lambda request: question(request.data["question"]),
        score=lambda request, state: (
            isinstance(state["messages"][-1], AIMessage) and state["messages"][-1].text == request.data["answer"]
        ),
    )


def agent_with_limit(vine):
    return build_agent(vine, first=[ModelCallLimitMiddleware(run_limit=9)])


@pytest.mark.parametrize("build", [build_agent, agent_with_limit])
def test_an_agent_is_profiled_unit_by_unit(build):
    backend = ScriptedBackend(TWICE)
    worker = UnitRunner(workflow(build), make_catalog(3), {"test": backend})
    [request] = worker.workflow.requests
    seen, parents = 0, {(): None}
    for depth in (1, 2, 3):
        for prefix in [(*parent, model) for parent in parents if len(parent) == depth - 1 for model in MODELS]:
            before = len(backend.log)
            result = worker.run(request, prefix, parents[prefix[:-1]])
            assert [(name, path) for name, path, _ in backend.log[before:]] == [(prefix[-1], prefix)]
            row = result.observation
            assert (row.success, row.stopped) == ((True, True) if depth == 3 else (False, False))
            assert (row.cost_usd, row.tokens_cached, row.failure) == (0.01, 2, None)
            parents[prefix] = result.checkpoint
            seen += 1
    assert seen == 39


def test_early_ends_are_seen():
    backend = ScriptedBackend(lambda name, *rest: AIMessage("4") if name == "m2" else TWICE(name, *rest))
    worker = UnitRunner(workflow(), make_catalog(3), {"test": backend})
    row = worker.run(worker.workflow.requests[0], ("m2",), None).observation
    assert (row.success, row.stopped) == (True, True)


# -- refusals ------------------------------------------------------------------------------------------------------


def test_what_cannot_be_profiled_is_refused():
    def unrouted(vine):
        return create_agent(ScriptedBackend().chat_model(make_catalog()["m0"], None), [add])

    other = Template((Loop((Stage("think", MODELS),), times=3),))
    for build, template, match in (
        (unrouted, TEMPLATE, "'model' is not wrapped"),
        (build_agent, other, "has a stage 'think', which the graph lacks"),
    ):
        with pytest.raises(WorkflowError, match=match):
            build_graph(workflow(build, template), agent_control(ScriptedBackend()))


def test_an_unknown_default_is_refused():
    with pytest.raises(ConfigError, match="unknown default model 'm9'"):
        VineMiddleware(chat_control(), default="m9")


def test_the_default_runs_where_nothing_is_planned():
    backend = ScriptedBackend()
    vine = agent_control(backend)
    bare = ScriptedBackend().chat_model(make_catalog()["m0"], None)
    create_agent(bare, [], middleware=[VineMiddleware(vine, default="m2")]).invoke(question())
    assert models_of(backend) == ["m2"]


def test_two_agents_over_one_object_run_each_its_own_default():
    backend = ScriptedBackend()
    vine = agent_control(backend)
    bare = ScriptedBackend().chat_model(make_catalog()["m0"], None)
    agents = [create_agent(bare, [], middleware=[VineMiddleware(vine, default=name)]) for name in ("m2", "m1")]
    agents += [create_agent(VineChatModel(vine=vine, stage="model", default=name), []) for name in ("m2", "m1")]
    for agent in agents:
        agent.invoke(question())
    assert models_of(backend) == ["m2", "m1", "m2", "m1"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("part", ["_serving", "_how"])
def test_an_agent_answers_where_its_own_call_cannot_be_read(part, mode, monkeypatch):
    def broken(self, request):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(VineMiddleware, part, broken)
    backend = ScriptedBackend(TWICE)
    resolver = ModelResolver(make_catalog(3), {"test": backend})
    vine = GraphAdapter(resolver, template=TEMPLATE, on_error="default")
    out = run(build_agent(vine), mode, question())
    assert out["messages"][-1].text == "4"
    assert models_of(backend) == ["m0"] * 3


@pytest.mark.parametrize("mode", MODES)
def test_the_vine_that_was_found_serves_a_call_whose_options_cannot_be_read(mode, monkeypatch):
    def broken(self, request):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(VineMiddleware, "_how", broken)
    made_from, backend = ScriptedBackend(TWICE), ScriptedBackend(TWICE)
    other = GraphAdapter(ModelResolver(make_catalog(3), {"test": backend}), on_error="default")
    policy = follow(other, "m2", "m0", "m1")
    run(build_agent(agent_control(made_from)), mode, question(), context=other.context(policy=policy))
    assert (models_of(backend), models_of(made_from)) == (["m2", "m0", "m1"], [])


@pytest.mark.parametrize("mode", MODES)
def test_what_the_application_has_to_mend_is_raised(mode, monkeypatch):
    def refused(self, request):
        raise WorkflowError("this stage has two defaults")

    monkeypatch.setattr(VineMiddleware, "_serving", refused)
    resolver = ModelResolver(make_catalog(3), {"test": ScriptedBackend(TWICE)})
    with pytest.raises(WorkflowError, match="two defaults"):
        run(build_agent(GraphAdapter(resolver, template=TEMPLATE, on_error="default")), mode, question())
