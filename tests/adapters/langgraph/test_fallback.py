"""One failed call does not end the request: another model answers within the same stage, inside deadline and cap."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from threading import Barrier

import pytest
from kit.apps.chat import ScriptedBackend, calls_then
from kit.apps.echo import MODES, App, Echo, EchoBackend, path_of, run, thread
from kit.catalogs import make_catalog
from kit.tables import random_table
from kit.templates import make_template
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy
from pydantic import BaseModel

from vinelm import VineLM
from vinelm.adapters.langchain import VineChatModel
from vinelm.adapters.langgraph.runs.invocation import InvocationScope
from vinelm.catalog import Catalog
from vinelm.controller import Planner
from vinelm.errors import UNSUPPORTED_CALL, CallError, CallRefused, ConfigError, WorkflowError
from vinelm.objective import Objective
from vinelm.policies import ForcedPolicy
from vinelm.rows.observation import Usage

REPEATABLE = ("rate_limit", "timeout", "server", "empty", "truncated", "malformed", "context_length")
OTHERS = ("auth", "content_filter", "budget", "unknown")
OBJECTIVE = Objective(maximize="accuracy", max_latency_s=1000.0)


def failing(*models, kind="server"):
    return {model: CallError(f"{model} failed", kind=kind) for model in models}


@pytest.fixture(scope="module")
def annotated():
    return random_table(3, n_requests=60, n_models=3, depth=3).annotate()


@pytest.fixture(scope="module")
def wanted(annotated):
    """The model that the plan begins with."""
    return Planner(annotated).plan(OBJECTIVE, may_stop=False).next_model


def serve(annotated, backend, mode="sync", objective=OBJECTIVE, policy=None, vine=None, **app):
    """One request with a session of its own: the session, the path stored, the answer."""
    vine = vine or VineLM(annotated.catalog, {"test": backend}, trie=annotated)
    graph = App(mode=mode, turns=1, **app).build(vine).compile(checkpointer=InMemorySaver())
    session = policy or vine.session(objective)
    try:
        answer = run(graph, mode, {"q": "?"}, thread(), context=vine.context(objective, policy=session))["a"]
    except CallError as error:
        answer = error
    return session, path_of(graph, thread()), answer


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", REPEATABLE)
def test_the_next_best_model_answers_and_the_path_names_it(annotated, wanted, kind, mode):
    session, path, answer = serve(annotated, EchoBackend(failing(wanted, kind=kind)), mode)
    assert answer == f"{path[0]};"
    assert path[0] != wanted
    failed, done = session.invocations
    assert (failed.prefix, failed.failure, failed.cost_usd, failed.latency_s) == ((wanted,), kind, 0.01, 1.0)
    assert (done.prefix, done.failure, done.cost_usd, done.latency_s) == ((path[0],), None, 0.01, 1.0)
    assert session.spent_usd == 0.02
    steps = [step for step in session.steps if step.kind == "model"]
    assert [step.model for step in steps] == [wanted, path[0]]
    assert (steps[1].spent_usd, steps[1].elapsed_s) == (0.01, 1.0)  # the failed attempt's own
    assert f"after {wanted} ({kind})" in steps[1].note


@pytest.mark.parametrize("kind", OTHERS)
def test_a_failure_that_another_model_may_share_or_must_not_hide_is_raised(annotated, wanted, kind):
    session, _, answer = serve(annotated, EchoBackend(failing(wanted, kind=kind)))
    assert str(answer) == f"{wanted} failed"
    assert len(session.invocations) == 1


@pytest.mark.parametrize("mode", MODES)
def test_every_model_is_tried_once_at_most(annotated, mode):
    backend = EchoBackend(failing(*annotated.catalog))
    session, _, answer = serve(annotated, backend, mode)
    assert isinstance(answer, CallError)
    assert sorted(invocation.prefix[0] for invocation in session.invocations) == ["m0", "m1", "m2"]
    assert session.spent_usd == pytest.approx(0.03)
    assert session.trace()[-1]["note"].endswith("no other model is left")


def test_an_engine_that_is_the_only_one_does_not_bar_its_other_models(annotated, wanted):
    """One gateway for all: its 503 on one model leaves the next best on the same gateway."""
    one = [model.model_copy(update={"engine": "gateway"}) for model in annotated.catalog.models]
    planner = Planner(type(annotated)(**{**_fields(annotated), "catalog": Catalog(one)}))
    vine = VineLM(planner.annotated.catalog, {"test": EchoBackend(failing(wanted))}, trie=planner.annotated)
    for retry in (None, RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False, retry_on=CallError)):
        session, path, answer = serve(planner.annotated, None, vine=vine, retry=retry)
        assert answer == f"{path[0]};"
        assert [invocation.prefix[0] for invocation in session.invocations] == [wanted, path[0]]
        assert f"left out after a failure: {wanted} (server)" in session.steps[1].note


def _fields(annotated):
    return {one.name: getattr(annotated, one.name) for one in fields(annotated) if one.init}


def test_after_the_deadline_the_failure_is_raised(annotated, wanted):
    objective = Objective(maximize="accuracy", max_latency_s=0.9)
    models = Planner(annotated).plan(objective, may_stop=False).next_model
    session, _, answer = serve(annotated, EchoBackend(failing(models)), objective=objective)
    assert isinstance(answer, CallError)
    assert len(session.invocations) == 1
    assert "the 0.9 s have passed" in session.trace()[-1]["note"]


def test_at_the_cap_the_failure_is_raised(annotated):
    objective = Objective(maximize="accuracy", max_cost_usd=0.009, mix=False)
    first = Planner(annotated).plan(objective, may_stop=False).next_model
    session, _, answer = serve(annotated, EchoBackend(failing(first)), objective=objective)
    assert isinstance(answer, CallError)
    assert len(session.invocations) == 1
    assert "the $0.009 are spent" in session.trace()[-1]["note"]


@pytest.mark.parametrize("settings", [{"fallback": False}, {"mode": "observe"}, {"mode": "off"}])
def test_it_is_off_where_nothing_is_to_be_changed(annotated, settings):
    backend = EchoBackend(failing(*annotated.catalog))
    vine = VineLM(annotated.catalog, {"test": backend}, trie=annotated, **settings)
    for policy in (None, vine.session(OBJECTIVE)):
        graph = App(turns=1).build(vine).compile()
        with pytest.raises(CallError):
            graph.invoke({"q": "?"}, context=vine.context(None if policy is None else OBJECTIVE, policy=policy))
    assert len(backend.calls) == 2


def test_without_a_trie_the_next_model_of_the_template_answers():
    backend = EchoBackend(failing("m0", "m1"))
    vine = VineLM(make_catalog(3), {"test": backend}, template=make_template(3, 3))
    assert App(turns=1).build(vine).compile().invoke({"q": "?"})["a"] == "m2;"
    assert [call.prefix for call in backend.calls] == [("m0",), ("m1",), ("m2",)]


@pytest.mark.parametrize("bound", [{"max_latency_s": 0.9}, {"max_cost_usd": 0.009}])
def test_without_a_trie_deadline_and_cap_bound_it_too(bound):
    backend = EchoBackend(failing("m0"))
    vine = VineLM(make_catalog(3), {"test": backend}, template=make_template(3, 3))
    with pytest.raises(CallError):
        App(turns=1).build(vine).compile().invoke({"q": "?"}, context=vine.context({"maximize": "accuracy", **bound}))
    assert len(backend.calls) == 1


def test_a_forced_model_is_never_replaced(annotated):
    backend = EchoBackend(failing("m0"))
    vine = VineLM(annotated.catalog, {"test": backend}, trie=annotated)
    forced = ForcedPolicy(vine.template, ["m0"], clock=vine.new_clock())
    assert isinstance(serve(annotated, backend, vine=vine, policy=forced)[2], CallError)
    assert len(backend.calls) == 1


# -- the application's own means come first --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_retry_policy_comes_first_and_attempts_do_not_multiply(mode):
    """Without a plan the retries run the default again; only at the last attempt another model follows."""
    backend = EchoBackend(failing("m0"))
    vine = VineLM(make_catalog(3), {"test": backend}, template=make_template(3, 3))
    retry = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False, retry_on=CallError)
    graph = App(mode=mode, retry=retry, turns=1).build(vine).compile()
    assert run(graph, mode, {"q": "?"})["a"] == "m1;"
    assert [call.prefix[0] for call in backend.calls] == ["m0", "m0", "m0", "m1"]


def test_a_retry_policy_for_other_errors_is_none():
    backend = EchoBackend(failing("m0"))
    vine = VineLM(make_catalog(3), {"test": backend}, template=make_template(3, 3))
    retry = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False, retry_on=OSError)
    assert App(retry=retry, turns=1).build(vine).compile().invoke({"q": "?"})["a"] == "m1;"
    assert len(backend.calls) == 2


# -- what a model cannot take ------------------------------------------------------------------------------------------

CANNOT = [
    WorkflowError("a message has content that the API cannot represent: send text", code=UNSUPPORTED_CALL),
    ConfigError("model 'm': takes no tools", code=UNSUPPORTED_CALL),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("error", CANNOT)
def test_a_call_that_a_model_cannot_take_is_taken_by_another(annotated, wanted, error, mode):
    """The whole request died with the backend's own error, which is no failed call."""
    session, path, answer = serve(annotated, EchoBackend({wanted: error}), mode)
    assert answer == f"{path[0]};"
    assert path[0] != wanted
    assert [one.failure for one in session.invocations] == ["malformed", None]


@pytest.mark.parametrize("error", CANNOT)
def test_where_no_model_can_take_it_its_own_error_is_raised(annotated, error):
    backend = EchoBackend(dict.fromkeys(annotated.catalog, error))
    vine = VineLM(annotated.catalog, {"test": backend}, trie=annotated)
    with pytest.raises(type(error), match=str(error)):
        App(turns=1).build(vine).compile().invoke({"q": "?"}, context=vine.context(OBJECTIVE))
    assert len(backend.calls) == 3


@pytest.mark.parametrize("error", [WorkflowError("the caller's own"), ConfigError("no key"), NotImplementedError()])
def test_other_errors_of_the_caller_are_hidden_by_no_other_model(annotated, wanted, error):
    backend = EchoBackend({wanted: error})
    vine = VineLM(annotated.catalog, {"test": backend}, trie=annotated)
    with pytest.raises(type(error)):
        App(turns=1).build(vine).compile().invoke({"q": "?"}, context=vine.context(OBJECTIVE))
    assert len(backend.calls) == 1


class Toolless(Echo):
    def bind_tools(self, tools, **kwargs):
        raise NotImplementedError


class SomeToolless(EchoBackend):
    def chat_model(self, model, call):
        self.calls.append(call)
        return (Toolless if model.name == "m0" else ScriptedTools)(name_=model.name, call=call)


class ScriptedTools(Echo):
    def bind_tools(self, tools, **kwargs):
        return self.bind(tools=tools)


@pytest.mark.parametrize("mode", MODES)
def test_a_model_without_tools_leaves_the_call_to_one_that_has_them(mode):
    backend = SomeToolless()
    vine = VineLM(make_catalog(3), {"test": backend}, template=make_template(3, 3))
    chat = vine.chat_model("generate").bind_tools([lookup])
    answer = chat.invoke("?") if mode == "sync" else asyncio.run(chat.ainvoke("?"))
    assert answer.text == "m1"
    assert [call.prefix for call in backend.calls] == [("m0",), ("m1",)]


def test_a_repeated_call_of_a_chat_model_is_planned_around_what_it_cannot_take(annotated, wanted):
    backend = EchoBackend({wanted: CANNOT[0]})
    vine = VineLM(annotated.catalog, {"test": backend}, trie=annotated)
    with vine.request(OBJECTIVE):
        assert vine.chat_model("generate", max_retries=1).invoke("?").text != wanted


class Prices(EchoBackend):
    """A call of each model may cost so many dollars, and does; ``fail`` fails before anything is paid."""

    def __init__(self, usd, fail):
        super().__init__(fail)
        self.usd = usd

    def chat_model(self, model, call):
        self.calls.append(call)
        return Priced(name_=model.name, call=call, fail=self.fail.get(model.name), usd=self.usd[model.name])


class Priced(Echo):
    usd: float

    def _spend(self):
        if self.fail is not None:
            raise self.fail
        usage = Usage(model=self.name_, cost_usd=self.usd, latency_s=1.0)
        self.call.guard.authorize(self.usd).settle(usage)
        self.call.on_usage(usage)


def test_where_the_cap_refuses_a_model_that_stands_in_the_next_one_is_asked():
    """The small model's window is too short, the second costs more than is left, and the third fits."""
    backend = Prices({"m0": 0.1, "m1": 5.0, "m2": 0.5}, failing("m0", kind="context_length"))
    vine = VineLM(make_catalog(3), {"test": backend}, template=make_template(3, 3))
    capped = Objective(maximize="accuracy", max_cost_usd=1.0, cost_budget="per_request")
    assert App(turns=1).build(vine).compile().invoke({"q": "?"}, context=vine.context(capped))["a"] == "m2;"
    too_little = Objective(maximize="accuracy", max_cost_usd=0.3, cost_budget="per_request")
    with pytest.raises(CallRefused):
        App(turns=1).build(vine).compile().invoke({"q": "?"}, context=vine.context(too_little))


class State(BaseModel):
    a: str = ""


def one_stage(vine, fn):
    graph = StateGraph(State)
    graph.add_node("generate", vine.stage("generate", fn, state=State))
    graph.add_edge(START, "generate")
    graph.add_edge("generate", END)
    return graph.compile()


def off_the_record(backend):
    return VineLM(make_catalog(3), {"test": backend}, template=make_template(3, 3))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("chain", ["model", "prompt | model", "bound"])
def test_with_fallbacks_of_the_application_comes_first(chain, mode):
    backend = EchoBackend(failing("m0"))
    own = RunnableLambda(lambda _: AIMessage("own"))

    def built(model):
        forms = {"model": model, "prompt | model": RunnableLambda(str) | model, "bound": model.bind(stop=["x"])}
        return forms[chain].with_fallbacks([own])

    def generate(state, model):
        return {"a": built(model).invoke("?").content}

    async def agenerate(state, model):
        return {"a": (await built(model).ainvoke("?")).content}

    graph = one_stage(off_the_record(backend), generate if mode == "sync" else agenerate)
    assert run(graph, mode, {})["a"] == "own"
    assert len(backend.calls) == 1


def test_with_retry_of_the_application_comes_first():
    backend = EchoBackend(failing("m0"))

    def generate(state, model):
        return {"a": model.with_retry(stop_after_attempt=2, wait_exponential_jitter=False).invoke("?").content}

    with pytest.raises(CallError):
        one_stage(off_the_record(backend), generate).invoke({})
    assert len(backend.calls) == 1


def test_a_graph_inside_with_fallbacks_still_falls_back():
    def generate(state, model):
        return {"a": model.invoke("?").content}

    graph = one_stage(off_the_record(EchoBackend(failing("m0"))), generate)
    assert graph.with_fallbacks([RunnableLambda(lambda _: {"a": "own"})]).invoke({})["a"] == "m1"


# -- every way to call a model ---------------------------------------------------------------------------------------


def test_a_stream_goes_over_before_its_first_chunk_only():
    class Torn(EchoBackend):
        """m1 breaks off after the first chunk."""

        def chat_model(self, model, call):
            made = super().chat_model(model, call)
            if model.name == "m1":
                whole = type(made)._stream

                class Broken(type(made)):
                    def _stream(self, *args, **kwargs):
                        yield next(whole(self, *args, **kwargs))
                        raise CallError("torn", kind="server")

                made = Broken(name_="m1", call=call)
            return made

    def generate(state, model):
        seen.append("begun")
        for chunk in model.stream("?"):
            seen.append(chunk.content)
        return {"a": "".join(seen)}

    seen = []
    one_stage(off_the_record(EchoBackend(failing("m0"))), generate).invoke({})
    assert [text for text in seen if text] == ["begun", "one ", "two ", "three"]
    seen = []
    with pytest.raises(CallError, match="torn"):
        one_stage(off_the_record(Torn(failing("m0"))), generate).invoke({})
    assert seen == ["begun", "one "]


def test_an_asynchronous_stream_goes_over():
    async def generate(state, model):
        return {"a": "".join([chunk.content async for chunk in model.astream("?")])}

    graph = one_stage(off_the_record(EchoBackend(failing("m0"))), generate)
    assert asyncio.run(graph.ainvoke({}))["a"] == "one two three"


def test_tokens_are_streamed_by_the_graph():
    def generate(state, model):
        return {"a": model.invoke("?").content}

    graph = one_stage(off_the_record(EchoBackend(failing("m0"))), generate)
    tokens = [chunk.content for chunk, _ in graph.stream({}, stream_mode="messages")]
    assert [token for token in tokens if token] == ["one ", "two ", "three"]


def test_calls_at_once_go_over_together(monkeypatch):
    """Three calls on the model that fails: one failed attempt, and all of them answered by the next."""
    backend = EchoBackend(failing("m0"))
    all_under_way, spend = Barrier(3), Echo._spend

    def together(self):
        if self.name_ == "m0":
            all_under_way.wait(30)
        spend(self)

    monkeypatch.setattr(Echo, "_spend", together)

    def generate(state, model):
        return {"a": ";".join(answer.content for answer in model.batch(["1", "2", "3"]))}

    vine = off_the_record(backend)
    policy = vine.adapter.finder._policy_of(vine.context())
    graph = one_stage(vine, generate)
    assert graph.invoke({}, context=vine.context(policy=policy))["a"] == "m1;m1;m1"
    assert [(one.prefix, one.failure) for one in policy.invocations] == [(("m0",), "server"), (("m1",), None)]
    assert policy.spent_usd == pytest.approx(0.06)  # late answers of the first attempt count, too


class Verdict(BaseModel):
    """A verdict."""

    good: bool


def lookup(word: str) -> str:
    """Look a word up."""
    return word


def test_tools_are_bound_in_the_form_of_the_model_that_answers():
    backend = ScriptedBackend(calls_then("done", ("lookup", {"word": "x"})), fail=failing("m0"))

    def generate(state, model):
        return {"a": model.bind_tools([lookup]).invoke("?").tool_calls[0]["name"]}

    assert one_stage(off_the_record(backend), generate).invoke({})["a"] == "lookup"
    assert [next(iter(options["tools"][0])) for _, _, options in backend.log] == ["function", "input_schema"]


@pytest.mark.parametrize("first", ["m0", "m1"])
@pytest.mark.parametrize("include_raw", [False, True])
def test_structured_output_of_the_model_that_answers_is_parsed(first, include_raw):
    def answer(name, messages, options):
        if name == "m1":
            return AIMessage('{"good": true}')
        return AIMessage("", tool_calls=[{"name": "Verdict", "args": {"good": True}, "id": "1"}])

    def generate(state, model):
        found = model.with_structured_output(Verdict, include_raw=include_raw).invoke("?")
        return {"a": str((found["parsed"] if include_raw else found).good)}

    backend = ScriptedBackend(answer, fail=failing(first))
    vine = off_the_record(backend)
    vine.adapter.declare("generate", first)
    graph = StateGraph(State)
    graph.add_node("generate", vine.stage("generate", generate, state=State, default=first))
    graph.add_edge(START, "generate")
    assert graph.compile().invoke({})["a"] == "True"
    assert len(backend.log) == 2


def test_a_chat_model_at_module_level_falls_back():
    vine = off_the_record(EchoBackend(failing("m0", kind="timeout")))
    assert VineChatModel(vine=vine, stage="generate").invoke("?").content == "m1"


def test_the_chat_models_own_retries_come_first():
    backend = EchoBackend(failing("m0", "m1", "m2"))
    with pytest.raises(CallError):
        VineChatModel(vine=off_the_record(backend), stage="generate", max_retries=2).invoke("?")
    assert [call.prefix[0] for call in backend.calls] == ["m0", "m0", "m0", "m1", "m2"]


def test_branches_of_a_fan_out_fall_back_each_and_leave_one_entry(annotated, wanted):
    """Every branch fails on the same model from its own thread; no cent is lost."""
    vine = VineLM(annotated.catalog, {"test": EchoBackend(failing(wanted))}, trie=annotated)
    session = vine.session(OBJECTIVE)
    run_ = vine.adapter.finder.runs.alone(vine.context(policy=session))
    scopes = [
        InvocationScope(vine.models, vine.adapter.observers, run_, "generate", run_.decide(1, "generate", ())) for _ in range(4)
    ]

    def answer(scope):
        with scope:
            return scope.model.invoke("?").content

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(answer, scopes))
    assert wanted not in answers
    assert len(set(answers)) == 1
    assert {scope.entry()["model"] for scope in scopes} == set(answers)
    assert run_.path == (answers[0],)
    assert session.spent_usd == pytest.approx(0.08)
