"""A client of the openai SDK whose chat completions are invocations of a stage. The SDK itself sends nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.prompt_values import ChatPromptValue

from vinelm.adapters.langchain.openai_form import OpenAIAnswer, aevents, asked_of, events, told, whole_answer
from vinelm.adapters.langgraph.structure.chat_search import CHAT_MARK
from vinelm.errors import ConfigError, VineLMError, WorkflowError
from vinelm.extras import required_extra
from vinelm.one_process import OneProcess

ONE = {name: getattr(OneProcess, name) for name in ("__copy__", "__deepcopy__", "__reduce_ex__")}
_REFUSED = "VineLM serves chat.completions.create of the openai SDK, and nothing else: use it, or vine.chat_model()"


def openai_client(vine: Any, chat_of: Callable[[str], BaseChatModel], stage: str | None, *, is_async: bool) -> Any:
    """Return an ``OpenAI`` or ``AsyncOpenAI`` whose ``chat.completions`` call the chat models that ``chat_of`` returns.

    Args:
        vine: the ``vine`` object that the calls belong to.
        chat_of: returns the chat model for the model name in a call.
        stage: name of the stage; None for the stage of the calling node.
        is_async: whether to return an ``AsyncOpenAI``.

    Raises:
        ConfigError: the openai SDK is not installed.
    """
    try:
        import openai
    except ImportError as error:
        raise ConfigError("a client of the openai SDK needs that: pip install openai") from error
    from vinelm.backends.openai.http_library import http_library

    httpx = http_library()

    def begun(request: Any) -> tuple[BaseChatModel, Any, list[BaseMessage], dict[str, Any]]:
        if not request.url.path.endswith("/chat/completions"):
            raise WorkflowError(_REFUSED)
        body = json.loads(request.content)
        chat = chat_of(str(body.get("model", "")))
        return chat, body, *asked_of(chat, body)

    def answer(request: Any) -> Any:
        try:
            chat, body, messages, options = begun(request)
            if body.get("stream"):
                return httpx.Response(
                    200, headers=_EVENTS, content=events(OpenAIAnswer(body), chat.stream(messages, **options))
                )
            found = chat.generate_prompt([ChatPromptValue(messages=messages)], **options)
            return httpx.Response(
                200, headers=_JSON, content=json.dumps(whole_answer(OpenAIAnswer(body), found.generations[0]))
            )
        except VineLMError as error:
            return httpx.Response(**told(error))

    async def aanswer(request: Any) -> Any:
        try:
            chat, body, messages, options = begun(request)
            if body.get("stream"):
                return httpx.Response(
                    200, headers=_EVENTS, content=aevents(OpenAIAnswer(body), chat.astream(messages, **options))
                )
            found = await chat.agenerate_prompt([ChatPromptValue(messages=messages)], **options)
            return httpx.Response(
                200, headers=_JSON, content=json.dumps(whole_answer(OpenAIAnswer(body), found.generations[0]))
            )
        except VineLMError as error:
            return httpx.Response(**told(error))

    kind, client = (openai.AsyncOpenAI, httpx.AsyncClient) if is_async else (openai.OpenAI, httpx.Client)
    marked = type(f"Vine{kind.__name__}", (kind,), {CHAT_MARK: True, "stage": stage, "vine": vine, **ONE})
    return marked(
        api_key="none",
        base_url="http://vinelm.invalid/v1",
        max_retries=0,  # VineLM repeats calls itself
        http_client=client(transport=httpx.MockTransport(aanswer if is_async else answer)),
    )


def chats_of(client: Any) -> Callable[[str], BaseChatModel]:
    """Return a function that makes a ``ChatOpenAI`` for a model name, with the settings of the openai SDK's ``client``.

    Raises:
        ConfigError: ``langchain-openai`` is not installed; raised when the client is wrapped, not at its first call.
    """
    with required_extra("openai", "vine.around of a client of the openai SDK"):
        from langchain_openai import ChatOpenAI
        from openai import DEFAULT_TIMEOUT

    settings = {
        "api_key": getattr(client, "_api_key_provider", None) or client.api_key,
        "base_url": str(client.base_url),
        "organization": client.organization,
        "timeout": None if client.timeout == DEFAULT_TIMEOUT else client.timeout,
        "default_headers": client._custom_headers,
        "default_query": client._custom_query,
    }
    if not type(client._client).__module__.startswith("openai."):  # the application's own: proxies, certificates
        settings["http_async_client" if hasattr(client._client, "aclose") else "http_client"] = client._client
    given = {name: value for name, value in settings.items() if value}
    return lambda name: ChatOpenAI(model=name, **given)


def with_clients(llm: Any, around: Callable[[Any], Any]) -> Any:
    """Return a copy of LlamaIndex's ``OpenAI`` that calls models through what ``around`` makes of its clients.

    Raises:
        ConfigError: the object's class makes its clients in another way, such as those for Azure.
    """
    try:
        clients = {"_client": llm._get_client(), "_aclient": llm._get_aclient()}
    except AttributeError as error:
        raise ConfigError(
            f"vine.around of {type(llm).__name__}: this version of LlamaIndex makes its clients in a way that VineLM does not "
            "know: give it openai_client=vine.around(OpenAI()) and async_openai_client=vine.around(AsyncOpenAI())"
        ) from error
    copied = llm.model_copy(update={"reuse_client": True})
    for name, client in clients.items():
        setattr(copied, name, around(client))
    return copied


_EVENTS = {"content-type": "text/event-stream"}
_JSON = {"content-type": "application/json"}
