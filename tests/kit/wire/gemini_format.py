"""The wire format of ``generateContent`` and ``streamGenerateContent``, as the API reference documents it.

https://ai.google.dev/api/generate-content and https://ai.google.dev/gemini-api/docs/troubleshooting. Parsed by the unmodified
google-genai.
"""

import json

USAGE = {
    "promptTokenCount": 20,
    "candidatesTokenCount": 4,
    "thoughtsTokenCount": 3,
    "cachedContentTokenCount": 8,
    "totalTokenCount": 27,
}


def content(*parts, finish="STOP", usage=USAGE):
    """A whole answer, or one chunk of a stream."""
    parts = [{"text": part} if isinstance(part, str) else part for part in parts]
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}}
    if finish is not None:
        candidate["finishReason"] = finish
    whole = {"candidates": [candidate], "modelVersion": "m", "responseId": "req_1"}
    return whole if usage is None else {**whole, "usageMetadata": usage}


def thought(text):
    return {"text": text, "thought": True}


def call(name, args, **more):
    return {"functionCall": {"name": name, "args": args}, **more}


def is_stream(asked):
    return ":streamGenerateContent" in asked.path


def answering(*parts, finish="STOP", usage=USAGE):
    async def reply(asked, out):
        if not is_stream(asked):
            return await out.whole(content(*parts, finish=finish, usage=usage))
        await out.chunked()
        for part in parts:
            early = None if usage is None else {"promptTokenCount": 20, "totalTokenCount": 20}
            await out.event(content(part, finish=None, usage=early))
        await out.event(content("", finish=finish, usage=usage))
        return await out.finish()

    return reply


def problem(status, name, message="something with s3cret words", **more):
    return {"error": {"code": status, "message": message, "status": name, **more}}


def refusing(status, name="INTERNAL", *, times=10**6, then=None, message="something with s3cret words", details=(), **headers):
    async def reply(asked, out):
        if asked.number < times:
            return await out.whole(problem(status, name, message, details=list(details)), status, **headers)
        return await then(asked, out)

    return reply


def spelled(value):
    """A request with the keys as the reference spells them: the API takes ``mime_type``, too, and the SDK sends both."""
    if isinstance(value, dict):
        words = {key: key.split("_") for key in value}
        return {words[key][0] + "".join(map(str.title, words[key][1:])): spelled(inner) for key, inner in value.items()}
    return [spelled(inner) for inner in value] if isinstance(value, list) else value


# -- the same words in every wire format, for faults that every provider is tried with


HALF = b'{"candidates": [{"s3cret'
ODD = {"candidates": "s3cret"}
NAMES = {401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}


def prompt_of(asked):
    return asked.json["contents"][0]["parts"][0]["text"]


def calling(name, args):
    """A server that answers with one tool call."""
    return answering(call(name, args))


def result_of(asked):
    """What the last message gives back to the model as a tool's result."""
    (part,) = [part for part in asked.json["contents"][-1]["parts"] if "functionResponse" in part]
    return json.dumps(part["functionResponse"]["response"])  # langchain-google-genai sends the object that a result's text is


def refusal(status):
    return problem(status, NAMES.get(status, "INTERNAL")), {}


async def begin(out):
    await out.chunked()


async def say(out, piece):
    await out.event(content(piece, finish=None, usage=None))


async def say_half(out):
    await out.event('{"candidates": [{"s3cret')


async def say_odd(out):
    await out.event(ODD)
