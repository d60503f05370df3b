"""The wire format of SGLang's native ``/generate``, as its documentation and its server's source have it.

https://docs.sglang.io/basic_usage/native_api.html, https://docs.sglang.io/basic_usage/sampling_params.html; finish reasons and errors:
python/sglang/srt/entrypoints/http_server.py and managers/schedule_batch.py of sgl-project/sglang. Parsed by the unmodified SDK's SSE.
"""  # noqa: E501


def generation(text, *, finish=None, tokens_out=7, **facts):
    reason = {"type": finish, "matched": 151645} if isinstance(finish, str) else finish
    info = {"id": "req_1", "finish_reason": reason, "prompt_tokens": 20, "completion_tokens": tokens_out, "cached_tokens": 8}
    if reason is not None:
        info["e2e_latency"] = 0.25
    return {"text": text, "output_ids": [1] * tokens_out, "meta_info": {**info, **facts}}


def events(*pieces, finish="stop", is_incremental=False, **facts):
    """Each event has the text so far; the last one says how it ended."""
    text = ""
    for number, piece in enumerate(pieces or [""], 1):
        text = piece if is_incremental else text + piece
        is_last = number == max(len(pieces), 1)
        yield generation(text, finish=finish if is_last else None, tokens_out=7 if is_last else number, **facts)


def answering(*pieces, **how):
    async def reply(asked, out):
        if not asked.json["stream"]:
            how.pop("is_incremental", None)
            return await out.whole(generation("".join(pieces), **{"finish": "stop", **how}))
        return await stream(out, *pieces, **how)

    return reply


async def stream(out, *pieces, **how):
    await out.chunked()
    for event in events(*pieces, **how):
        await out.event(event)
    await out.event("[DONE]")
    await out.finish()


def trouble(message="something with s3cret words"):
    return {"error": {"message": message}}


def refusing(status, *, times=10**6, then=None, message="something with s3cret words", **headers):
    async def reply(asked, out):
        if asked.number < times:
            return await out.whole(trouble(message), status, **headers)
        return await then(asked, out)

    return reply


# -- the same words in every wire format, for faults that every provider is tried with


HALF = b'{"text": "s3cret'
ODD = {"text": 5, "meta_info": "s3cret"}


def is_stream(asked):
    return asked.json["stream"]


def prompt_of(asked):
    """What stands between the words of the template ``chatml``."""
    return asked.json["text"].partition("<|im_start|>user\n")[2].partition("<|im_end|>")[0]


def refusal(status):
    return trouble(), {}


async def begin(out):
    await out.chunked()


async def say(out, piece):
    await out.event(generation(piece))


async def say_half(out):
    await out.event('{"text": "s3cret')


async def say_odd(out):
    await out.event({"text": ["s3cret"], "meta_info": {}})
