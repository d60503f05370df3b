"""A client of the openai SDK whose chat completions are invocations of a stage: nothing is sent by the SDK itself."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, convert_to_openai_messages

from vinelm.adapters.langgraph.structure.chat_search import CHAT_MARK
from vinelm.errors import ConfigError
from vinelm.one_process import OneProcess

_PASSED = ("tools", "tool_choice", "response_format", "stop", "parallel_tool_calls", "temperature", "top_p", "seed")
"""Parts of a request that its model is given as they are; ``max_tokens``, in both spellings, too."""
ONE = {name: getattr(OneProcess, name) for name in ("__copy__", "__deepcopy__", "__reduce_ex__")}
_REFUSED = "VineLM serves chat.completions.create of the openai SDK, and nothing else: use it, or vine.chat_model()"


def openai_client(vine: Any, chat: BaseChatModel, stage: str | None, *, is_async: bool) -> Any:
    """Return an ``OpenAI`` or ``AsyncOpenAI`` whose ``chat.completions`` call a chat model that ``vine`` made, of that stage.

    Raises:
        ConfigError: the openai SDK is not installed.
    """
    try:
        import openai
    except ImportError as error:
        raise ConfigError("vine.openai_client needs the openai SDK: pip install openai") from error
    from vinelm.backends.http.clients import library_of_openai

    httpx = importlib.import_module(library_of_openai())

    def answer(request: Any) -> Any:
        asked = _asked(request)
        return httpx.Response(**_answer(asked, asked and chat.invoke(asked["messages"], **_options(asked))))

    async def aanswer(request: Any) -> Any:
        asked = _asked(request)
        return httpx.Response(**_answer(asked, asked and await chat.ainvoke(asked["messages"], **_options(asked))))

    kind, client = (openai.AsyncOpenAI, httpx.AsyncClient) if is_async else (openai.OpenAI, httpx.Client)
    marked = type(f"Vine{kind.__name__}", (kind,), {CHAT_MARK: True, "stage": stage, "vine": vine, **ONE})
    return marked(
        api_key="none",
        base_url="http://vinelm.invalid/v1",
        max_retries=0,  # VineLM repeats calls itself
        http_client=client(transport=httpx.MockTransport(aanswer if is_async else answer)),
    )


def _asked(request: Any) -> dict[str, Any]:
    """The body of a request for a chat completion; empty for any other request."""
    if not request.url.path.endswith("/chat/completions"):
        return {}
    body: dict[str, Any] = json.loads(request.content)
    # A turn that only calls tools has no content, and the SDK's own objects leave it out.
    return body | {"messages": [{**message, "content": message.get("content") or ""} for message in body["messages"]]}


def _options(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the call, as LangChain's chat models take them."""
    most = asked.get("max_completion_tokens") or asked.get("max_tokens")
    return {key: asked[key] for key in _PASSED if asked.get(key) is not None} | ({} if most is None else {"max_tokens": most})


def _answer(asked: Mapping[str, Any], answer: Any) -> dict[str, Any]:
    """Status and body of the response to a request."""
    if not asked:
        return {"status_code": 400, "json": {"error": {"message": _REFUSED}}}
    assert isinstance(answer, AIMessage)
    said = convert_to_openai_messages(answer)
    assert isinstance(said, dict)
    said["content"] = answer.text or None
    calls = said.get("tool_calls") or []
    usage = answer.usage_metadata or {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    tokens = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens", "total_tokens": "total_tokens"}
    is_streamed = bool(asked.get("stream"))
    if is_streamed:
        said["tool_calls"] = [{"index": number, **call} for number, call in enumerate(calls)]
    whole = {
        "id": answer.id or "answer",
        "object": "chat.completion.chunk" if is_streamed else "chat.completion",
        "created": 0,
        "model": str(answer.response_metadata.get("model_name") or asked.get("model", "")),
        "choices": [
            {
                "index": 0,
                "delta" if is_streamed else "message": said,
                "finish_reason": "tool_calls" if calls else "length" if _is_cut(answer) else "stop",
            }
        ],
        "usage": {name: usage[field] for name, field in tokens.items()},  # type: ignore[literal-required]
    }
    if not is_streamed:
        return {"status_code": 200, "json": whole}
    text = f"data: {json.dumps(whole)}\n\ndata: [DONE]\n\n"
    return {"status_code": 200, "headers": {"content-type": "text/event-stream"}, "content": text.encode()}


def _is_cut(answer: AIMessage) -> bool:
    return answer.response_metadata.get("finish_reason") in ("length", "max_tokens")
