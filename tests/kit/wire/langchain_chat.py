"""A LangChain chat model as its packages make them: over the openai SDK, with the SDK's exceptions and metadata."""

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult


def usage_of(reply):
    if reply.usage is None:
        return None
    used = reply.usage
    return {
        "input_tokens": used.prompt_tokens,
        "output_tokens": used.completion_tokens,
        "total_tokens": used.total_tokens or 0,
        "input_token_details": {"cache_read": used.prompt_tokens_details.cached_tokens},
    }


class OverTheSDK(BaseChatModel):
    sync: Any = None
    asynchronous: Any = None
    max_tokens: int = 1024

    def __init__(self, url, key, timeout_s):
        import openai  # here: every worker collects what imports this file, and the SDK takes seconds

        how = {"base_url": url, "api_key": key, "max_retries": 0, "timeout": timeout_s}
        super().__init__(sync=openai.OpenAI(**how), asynchronous=lambda: openai.AsyncOpenAI(**how))

    @property
    def _llm_type(self):
        return "over-the-sdk"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        return whole(self.sync.chat.completions.create(**body(messages, stream=False)))

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        async with self.asynchronous() as client:
            return whole(await client.chat.completions.create(**body(messages, stream=False)))

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        with self.sync.chat.completions.create(**body(messages, stream=True)) as chunks:
            yield from map(piece, chunks)

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):
        async with self.asynchronous() as client, await client.chat.completions.create(**body(messages, stream=True)) as chunks:
            async for chunk in chunks:
                yield piece(chunk)


def body(messages, *, stream):
    return {"model": "model-1", "messages": [{"role": "user", "content": m.content} for m in messages], "stream": stream}


def whole(reply):
    choice = reply.choices[0]
    metadata = {"finish_reason": choice.finish_reason}
    message = AIMessage(choice.message.content or "", usage_metadata=usage_of(reply), response_metadata=metadata)
    return ChatResult(generations=[ChatGeneration(message=message)])


def piece(chunk):
    choice = chunk.choices[0] if chunk.choices else None
    reason = {"finish_reason": choice.finish_reason} if choice and choice.finish_reason else {}
    text = (choice.delta.content or "") if choice else ""
    return ChatGenerationChunk(message=AIMessageChunk(text, usage_metadata=usage_of(chunk), response_metadata=reason))
