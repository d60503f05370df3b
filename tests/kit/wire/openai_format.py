"""The wire format of chat completions, as the API reference documents it.

https://platform.openai.com/docs/api-reference/chat/object, https://platform.openai.com/docs/api-reference/chat-streaming
and https://platform.openai.com/docs/guides/error-codes. The bytes are parsed by the unmodified SDK.
"""

import json

USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 7,
    "total_tokens": 27,
    "prompt_tokens_details": {"cached_tokens": 8},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
HEADERS = {"x_request_id": "req_1", "openai_processing_ms": "250"}


def completion(text="four", *, finish_reason="stop", usage=USAGE, **message):
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish_reason}
    whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return whole if usage is None else {**whole, "usage": usage}


def chunk(delta=None, *, finish_reason=None, usage=None):
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": choices,
        "usage": usage,
    }


def chunks(*pieces, finish_reason="stop", usage=USAGE, **last):
    """A whole stream: a role, the pieces, a finish reason, the usage."""
    yield chunk({"role": "assistant", "content": ""})
    for piece in pieces:
        yield chunk({"content": piece} if isinstance(piece, str) else piece)
    yield chunk(last, finish_reason=finish_reason)
    if usage is not None:
        yield chunk(usage=usage)


def answering(*pieces, **how):
    """A server that answers so, streamed or not, as it is asked."""

    async def reply(asked, out):
        if not is_stream(asked):
            texts = [piece for piece in pieces if isinstance(piece, str)]
            more = {key: value for piece in pieces if not isinstance(piece, str) for key, value in piece.items()}
            return await out.whole(completion("".join(texts) or None, **how, **more), **HEADERS)
        return await stream(out, *pieces, **how)

    return reply


async def stream(out, *pieces, **how):
    await out.chunked(**HEADERS)
    for event in chunks(*pieces, **how):
        await out.event(event)
    await out.event("[DONE]")
    await out.finish()


def problem(code, message="something with s3cret words"):
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


# -- the same words in every wire format, for faults that every provider is tried with


HALF = b'{"id": "s3cret", "choices": [{"mess'
ODD = {"answer": ["s3cret"], "choices": "s3cret", "usage": 7}


def is_stream(asked):
    return bool(asked.json.get("stream"))


def prompt_of(asked):
    return asked.json["messages"][0]["content"]


def calling(name, args):
    """A server that answers with one tool call."""
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
    return answering({"tool_calls": [call]}, finish_reason="tool_calls")


def result_of(asked):
    """What the last message gives back to the model as a tool's result."""
    return asked.json["messages"][-1]["content"]


def refusal(status):
    return problem("some_code"), {}


async def begin(out):
    await out.chunked(**HEADERS)


async def say(out, piece):
    await out.event(chunk({"content": piece}))


async def say_half(out):
    await out.event('{"id": "s3cret", "choices": [{"del')


async def say_odd(out):
    await out.event(ODD)
