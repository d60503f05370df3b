"""Frameworks copy what an application gives them: a copy pays from the same cap, and what cannot be copied says so."""

import copy
import pickle

import pytest
from kit.apps.echo import EchoBackend
from kit.apps.paying import OBJECTIVE, Till, vine_of
from kit.catalogs import make_catalog
from kit.templates import make_template
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from vinelm import VineLM
from vinelm.adapters.langchain import VineMiddleware
from vinelm.errors import CallRefused, ConfigError
from vinelm.policies import DefaultPolicy


@pytest.fixture
def till():
    return Till()


@pytest.fixture
def vine(till):
    return vine_of(till)


def deep(model):
    return model.model_copy(deep=True)


COPIES = [copy.deepcopy, copy.copy, deep, lambda model: copy.deepcopy([{"model": model}])[0]["model"]]
SCHEMA = {"title": "Answer", "type": "object", "properties": {"text": {"type": "string"}}}


def lookup(key: str) -> str:
    """Look a key up."""
    return key


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_of_a_chat_model_pays_from_the_same_request(vine, till, copied):
    """``TypeError: cannot pickle '_thread.RLock' object``."""
    model = vine.chat_model("solve", temperature=0.5)
    twin = copied(model)
    assert twin.vine is vine
    assert twin == model

    def calls():
        for one in (model, twin) * 6:
            one.invoke("?")

    with vine.request(OBJECTIVE), pytest.raises(CallRefused, match="left of the request"):
        calls()
    assert 0 < len(till.paid) <= 10


def test_a_copy_of_a_chat_model_has_settings_of_its_own(vine):
    model = vine.chat_model("solve", stop=["a"])
    twin = copy.deepcopy(model)
    twin.stop.append("b")
    assert model.stop == ["a"]


def test_copies_of_what_is_made_of_a_chat_model(vine, till):
    model = vine.chat_model("solve")
    made = [model.bind(stop=["a"]), model.with_retry(), model.with_fallbacks([model]), model | str]
    for one in made:
        copy.deepcopy(one).invoke("?")
    assert len(till.paid) == len(made)
    assert copy.deepcopy(model.bind_tools([lookup])).kwargs["tools"] == model.bind_tools([lookup]).kwargs["tools"]
    copy.deepcopy(model.with_structured_output(SCHEMA))


class State(TypedDict, total=False):
    q: str
    a: str


@pytest.mark.parametrize("fallback", [True, False])
def test_a_copy_of_a_stage_s_model_is_counted_in_the_same_invocation(fallback):
    backend = EchoBackend()
    vine = VineLM(make_catalog(3), {"test": backend}, template=make_template(3, 3), fallback=fallback)

    def generate(state: State, model):
        return {"a": copy.deepcopy(model).invoke("?").text + copy.copy(model).invoke("?").text}

    graph = StateGraph(State)
    graph.add_node("generate", vine.stage("generate", generate))
    graph.add_edge(START, "generate")
    graph.add_edge("generate", END)
    session = DefaultPolicy(lambda stage: "m0", template=vine.template, clock=vine.new_clock())
    assert graph.compile().invoke({"q": "?"}, context=vine.context(policy=session))["a"] == "m0m0"
    (invocation,) = session.invocations
    assert len(invocation.usages) == 2


def test_a_copied_context_is_of_the_same_request(vine, till):
    session = vine.session(OBJECTIVE)
    context = vine.context(OBJECTIVE, policy=session, user={"user": ["ann"]})
    twin = copy.deepcopy(context)
    assert twin["vinelm"].policy is session
    assert twin["user"] is not context["user"]


def test_a_copied_tool_pays_from_the_same_request(vine, till):
    tool = vine.tool(lookup, writes="session", cost_usd=0.3)
    with vine.request(OBJECTIVE):
        for one in (tool, copy.deepcopy(tool), copy.copy(tool)):
            assert one.invoke({"key": "k"}) == "k"
        with pytest.raises(CallRefused):
            copy.deepcopy(tool).invoke({"key": "k"})


def things(vine):
    tool = vine.tool(lookup, read_only=True)
    model = vine.chat_model("solve")
    return {
        "vine": vine,
        "model": model,
        "bound": model.bind_tools([lookup]),
        "structured": model.with_structured_output(SCHEMA),
        "client": vine.openai_client("solve"),
        "tool": tool,
        "middleware": VineMiddleware(vine),
        "session": vine.session(OBJECTIVE),
        "context with a session": vine.context(policy=vine.session(OBJECTIVE)),
    }


@pytest.mark.parametrize("name", things(VineLM(make_catalog(1), {"test": EchoBackend()})))
def test_pickle_is_refused_in_one_line(vine, name):
    """It was "cannot pickle '_thread.RLock' object", or the name of a wrapper of ours."""
    made = things(vine)[name]
    copy.deepcopy(made)
    with pytest.raises(ConfigError, match=r"cannot be pickled: .* in the process that uses it") as refused:
        pickle.dumps(made)
    assert isinstance(refused.value, TypeError)  # as pickle's own: libraries look for it
    assert "\n" not in str(refused.value)


def test_a_context_without_a_session_can_be_pickled(vine):
    context = pickle.loads(pickle.dumps(vine.context(OBJECTIVE, request_id="r")))  # noqa: S301 - our own
    assert (context.objective, context.request_id) == (OBJECTIVE, "r")
