"""The wire format of Converse and ConverseStream, as AWS documents it; parsed by the unmodified botocore.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html and API_runtime_ConverseStream.html; the
framing of events: https://smithy.io/2.0/aws/amazon-eventstream.html. botocore only decodes them, so they are encoded here.
"""

import json
import struct
from binascii import crc32

USAGE = {"inputTokens": 12, "outputTokens": 7, "totalTokens": 27, "cacheReadInputTokens": 8}
STREAM = "application/vnd.amazon.eventstream"


def frame(payload, **headers):
    """One message: prelude (lengths, checksum), headers as strings, JSON payload, checksum."""
    head = b""
    for key, value in headers.items():
        name, text = f":{key.replace('_', '-')}".encode(), value.encode()
        head += struct.pack("!B", len(name)) + name + struct.pack("!BH", 7, len(text)) + text
    body = json.dumps(payload, ensure_ascii=False).encode()
    prelude = struct.pack("!II", 16 + len(head) + len(body), len(head))
    prelude += struct.pack("!I", crc32(prelude))
    return prelude + head + body + struct.pack("!I", crc32(prelude + head + body))


def event(kind, payload):
    return frame(payload, event_type=kind, content_type="application/json", message_type="event")


def trouble(kind, message="s3cret words"):
    """An exception inside a stream."""
    return frame({"message": message}, exception_type=kind, content_type="application/json", message_type="exception")


def text(piece, index=0):
    return event("contentBlockDelta", {"contentBlockIndex": index, "delta": {"text": piece}})


def thought(piece):
    return event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": piece}}})


def tool_start(index, name, call_id):
    return event("contentBlockStart", {"contentBlockIndex": index, "start": {"toolUse": {"toolUseId": call_id, "name": name}}})


def tool_piece(index, arguments):
    return event("contentBlockDelta", {"contentBlockIndex": index, "delta": {"toolUse": {"input": arguments}}})


def events(*pieces, stop="end_turn", usage=USAGE):
    yield event("messageStart", {"role": "assistant"})
    for piece in pieces:
        yield text(piece) if isinstance(piece, str) else piece
    yield event("contentBlockStop", {"contentBlockIndex": 0})
    yield event("messageStop", {"stopReason": stop})
    yield event("metadata", {"usage": usage, "metrics": {"latencyMs": 250}})


def turn(*content, stop="end_turn", usage=USAGE):
    """A whole Converse answer."""
    blocks = [{"text": block} if isinstance(block, str) else block for block in content]
    output = {"message": {"role": "assistant", "content": blocks}}
    return {"output": output, "stopReason": stop, "usage": usage, "metrics": {"latencyMs": 250}}


def is_stream(asked):
    return asked.path.endswith("/converse-stream")


def answering(*pieces, content=None, **how):
    """A server that answers so, streamed or not, as it is asked."""

    async def reply(asked, out):
        if not is_stream(asked):
            return await out.whole(turn(*(content or pieces), **how), x_amzn_RequestId="req_1")
        await out.chunked(STREAM, x_amzn_RequestId="req_1")
        for one in events(*pieces, **how):
            await out.chunk(one)
        return await out.finish()

    return reply


def refusing(code, status, *, times=10**6, then=None, message="s3cret words", **headers):
    async def reply(asked, out):
        if asked.number >= times:
            return await then(asked, out)
        return await out.whole({"message": message}, status, x_amzn_ErrorType=code, **headers)

    return reply


# -- the same words in every wire format, for faults that every provider is tried with


HALF = b'{"output": {"message": "s3cret'
ODD = {"output": {"s3cret": 1}}
CODES = {401: "UnrecognizedClientException", 429: "ThrottlingException", 503: "ServiceUnavailableException"}


def prompt_of(asked):
    return asked.json["messages"][0]["content"][0]["text"]


def calling(name, args):
    """A server that answers with one tool call."""
    whole = {"toolUse": {"toolUseId": "c1", "name": name, "input": args}}
    return answering(tool_start(0, name, "c1"), tool_piece(0, json.dumps(args)), content=[whole], stop="tool_use")


def result_of(asked):
    """What the last message gives back to the model as a tool's result."""
    (part,) = [part for part in asked.json["messages"][-1]["content"] if "toolResult" in part]
    (said,) = part["toolResult"]["content"]
    return said["text"]


def refusal(status):
    return {"message": "s3cret words"}, {"x_amzn_ErrorType": CODES.get(status, "InternalServerException")}


async def begin(out):
    await out.chunked(STREAM)


async def say(out, piece):
    await out.chunk(text(piece))


async def say_half(out):
    """A message whose checksum is wrong: the format's own truncation."""
    await out.chunk(text("four")[:-3] + b"xyz")


async def say_odd(out):
    await out.chunk(event("messageStop", {"s3cret": 1}))
