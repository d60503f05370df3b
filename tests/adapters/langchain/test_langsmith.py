"""What LangSmith is told of a call: provider and name of the model that answered, whoever chose it and when."""

import asyncio
from unittest.mock import MagicMock

import pytest
from kit.catalogs import make_catalog
from langchain_core.language_models import FakeListChatModel
from langchain_core.tracers import LangChainTracer
from langsmith import Client

from vinelm import Catalog, Stage, Template, VineLM
from vinelm.adapters.calls.delegating_model import RESOLVED
from vinelm.backends.base import langsmith_names
from vinelm.objective import Objective
from vinelm.policies import StaticPolicy


class Chat(FakeListChatModel):
    """A model of a provider that LangSmith knows."""

    of: str
    fails: bool = False

    def _get_ls_params(self, stop=None, **kwargs):
        provider, name = self.of.split("/")
        return {"ls_provider": provider, "ls_model_name": name, "ls_model_type": "chat"}

    def _call(self, *args, **kwargs):
        self._fail()
        return super()._call(*args, **kwargs)

    def _stream(self, *args, **kwargs):
        self._fail()
        yield from super()._stream(*args, **kwargs)

    async def _astream(self, *args, **kwargs):
        self._fail()
        async for chunk in super()._astream(*args, **kwargs):
            yield chunk

    def _fail(self):
        if self.fails:
            raise TimeoutError("down")


def vine_of(**chats):
    chats = {name: Chat(responses=["yes"], **fields) for name, fields in chats.items()}
    price = {"input": 1.0, "output": 2.0, "source": "a test", "as_of": "2026-11-01"}
    catalog = Catalog.from_chat_models(chats, prices=dict.fromkeys(chats, price))
    return VineLM(catalog, template=Template((Stage("write", tuple(chats)),)))


async def streamed(model, tracer):
    return [chunk async for chunk in model.astream("?", {"callbacks": [tracer]})]


CALLS = {
    "invoke": lambda model, tracer: [model.invoke("?", {"callbacks": [tracer]})],
    "ainvoke": lambda model, tracer: [asyncio.run(model.ainvoke("?", {"callbacks": [tracer]}))],
    "stream": lambda model, tracer: list(model.stream("?", {"callbacks": [tracer]})),
    "astream": lambda model, tracer: asyncio.run(streamed(model, tracer)),
}


def traced(call, model):
    """The messages, and what LangSmith's client is told at the end of the run."""
    client = MagicMock(spec=Client)
    client.tracing_queue = None
    tracer = LangChainTracer(client=client)
    said = call(model, tracer)
    tracer.wait_for_futures()
    return said, client.update_run.call_args.kwargs["extra"]["metadata"]


def policy_of(vine, model):
    return vine.request(Objective(maximize="accuracy"), policy=StaticPolicy(vine.template, (model,)))


@pytest.mark.parametrize("how", CALLS)
def test_langsmith_shows_the_model_that_the_policy_chose(how):
    vine = vine_of(small={"of": "openai/gpt-4.1-mini"}, large={"of": "anthropic/claude-sonnet-4-5"})
    for name, provider, model in (("small", "openai", "gpt-4.1-mini"), ("large", "anthropic", "claude-sonnet-4-5")):
        with policy_of(vine, name):
            said, metadata = traced(CALLS[how], vine.chat_model("write"))
        assert (metadata["ls_provider"], metadata["ls_model_name"]) == (provider, model)
        assert "".join(message.text for message in said) == "yes"
        assert not [message for message in said if RESOLVED in message.response_metadata]


@pytest.mark.parametrize("how", CALLS)
def test_langsmith_shows_the_model_that_answered_after_another_failed(how):
    vine = vine_of(small={"of": "openai/gpt-4.1-mini", "fails": True}, large={"of": "anthropic/claude-sonnet-4-5"})
    with vine.request():
        said, metadata = traced(CALLS[how], vine.chat_model("write"))
    assert "".join(message.text for message in said) == "yes"
    assert (metadata["ls_provider"], metadata["ls_model_name"]) == ("anthropic", "claude-sonnet-4-5")


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"provider": "openai", "model_id": "gpt-4.1-mini"}, ("openai", "gpt-4.1-mini")),
        ({"provider": "bedrock", "model_id": "amazon.nova-lite-v1:0"}, ("amazon_bedrock", "amazon.nova-lite-v1:0")),
        ({"provider": "gemini", "model_id": "gemini-2.5-flash"}, ("google_genai", "gemini-2.5-flash")),
        ({"provider": "vertex", "model_id": "gemini-2.5-flash"}, ("google_vertexai", "gemini-2.5-flash")),
        ({"provider": "langchain", "model_id": "mistralai:mistral-small"}, ("mistralai", "mistral-small")),
        ({"provider": "langchain", "model_id": "command-r", "engine": "cohere"}, ("cohere", "command-r")),
    ],
)
def test_names_are_those_of_langchains_integrations(fields, names):
    (model,) = make_catalog(1, **fields).models
    assert langsmith_names(model) == names


def test_an_offline_model_says_that_it_is_one():
    from vinelm.backends import OfflineChatModel
    from vinelm.backends.offline.chat_model import _Binding

    (model,) = make_catalog(1, provider="simulated", model_id="sim-7b").models
    chat = OfflineChatModel.model_construct(binding=_Binding(None, model, None))
    params = chat._get_ls_params()
    assert (params["ls_provider"], params["ls_model_name"], params["ls_model_type"]) == ("simulated", "sim-7b", "chat")
