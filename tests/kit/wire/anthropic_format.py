"""The wire format of Anthropic's Messages API, as its reference documents it. Parsed by the unmodified SDK.

https://platform.claude.com/docs/en/api/messages, .../build-with-claude/streaming and .../api/errors
"""

import json

USAGE = {
    "input_tokens": 12,
    "cache_read_input_tokens": 8,
    "cache_creation_input_tokens": 0,
    "output_tokens": 7,
    "output_tokens_details": {"thinking_tokens": 3},
}
BEGUN = {**USAGE, "output_tokens": 1, "output_tokens_details": None}


def message(*blocks, stop="end_turn", usage=USAGE):
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": stop}
    return {**whole, "stop_sequence": None, "usage": usage}


def thought(text, signature="signed"):
    return {"type": "thinking", "thinking": text, "signature": signature}


def call(name, args, call_id="toolu_1"):
    return {"type": "tool_use", "id": call_id, "name": name, "input": args}


def is_stream(asked):
    return asked.json.get("stream") is True


def _empty(block):
    """A block as it begins, and the pieces that fill it."""
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "thinking":
        pieces = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
        return {**block, "thinking": "", "signature": ""}, pieces
    if block["type"] == "tool_use":
        text = json.dumps(block["input"])
        pieces = [
            {"type": "input_json_delta", "partial_json": part} for part in (text[: len(text) // 2], text[len(text) // 2 :])
        ]
        return {**block, "input": {}}, pieces
    return block, []


def answering(*blocks, stop="end_turn", usage=USAGE, begun=BEGUN):
    async def reply(asked, out):
        if not is_stream(asked):
            return await out.whole(message(*blocks, stop=stop, usage=usage), request_id="req_1")
        await begin(out)
        await start(out, begun)
        for index, given in enumerate(message(*blocks)["content"]):
            empty, pieces = _empty(given)
            await event(out, "content_block_start", index=index, content_block=empty)
            for piece in pieces:
                await event(out, "content_block_delta", index=index, delta=piece)
            await event(out, "content_block_stop", index=index)
        # The counts at the end are of the whole answer, but do not say how long a cache keeps what was written.
        last = {key: value for key, value in usage.items() if key != "cache_creation"}
        await event(out, "message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=last)
        await event(out, "message_stop")
        return await out.finish()

    return reply


async def event(out, name, **fields):
    await out.chunk(f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode())


async def start(out, usage=BEGUN):
    await event(out, "message_start", message=message(stop=None, usage=usage))


def problem(kind, text="something with s3cret words"):
    return {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_1"}


def refusing(status, kind, text="something with s3cret words", **headers):
    async def reply(asked, out):
        await out.whole(problem(kind, text), status, **headers)

    return reply


# -- the same words in every wire format, for faults that every provider is tried with


HALF = b'{"id": "msg_1", "type": "message", "content": [{"s3cret'
ODD = {"type": "s3cret"}
KINDS = {401: "authentication_error", 429: "rate_limit_error", 500: "api_error"}


def prompt_of(asked):
    said = asked.json["messages"][0]["content"]
    return said if isinstance(said, str) else said[0]["text"]


def calling(name, args):
    """A server that answers with one tool call."""
    return answering(call(name, args), stop="tool_use")


def result_of(asked):
    """What the last message gives back to the model as a tool's result."""
    (part,) = [part for part in asked.json["messages"][-1]["content"] if part["type"] == "tool_result"]
    said = part["content"]
    return said if isinstance(said, str) else said[0]["text"]


def refusal(status):
    return problem(KINDS.get(status, "api_error")), {}


async def begin(out):
    await out.chunked(request_id="req_1")


async def say(out, text):
    await start(out)
    await event(out, "content_block_start", index=0, content_block={"type": "text", "text": ""})
    await event(out, "content_block_delta", index=0, delta={"type": "text_delta", "text": text})


async def say_half(out):
    await out.chunk(b"event: content_block_delta\ndata: " + HALF + b"\n\n")


async def say_odd(out):
    await event(out, "content_block_delta", index=0, delta={"type": "s3cret"})
