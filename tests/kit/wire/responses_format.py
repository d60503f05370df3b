"""The wire format of OpenAI's Responses, as the API reference documents it; the unmodified SDK parses the bytes.

https://platform.openai.com/docs/api-reference/responses and https://platform.openai.com/docs/api-reference/responses-streaming
"""

import json

USAGE = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 8},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 27,
}


def said(text):
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


def called(name, args):
    return {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": name, "arguments": json.dumps(args)}


def response(*output, status="completed", usage=USAGE, **more):
    whole = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": status, "output": list(output)}
    rest = {"error": None, "incomplete_details": None, "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
    return {**whole, **rest, "usage": usage, **more}


def events(text, last):
    """A stream: the text in two pieces, and the response in its last event."""
    begun = response(status="in_progress", usage=None)
    at, part = {"output_index": 0}, {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    empty = {"type": "output_text", "text": "", "annotations": []}
    kinds = [{"type": "response.created", "response": begun}, {"type": "response.in_progress", "response": begun}]
    kinds += [{"type": "response.output_item.added", "item": {**said(""), "content": []}, **at}] if text else []
    kinds += [{"type": "response.content_part.added", "part": empty, **part}] if text else []
    for piece in (text[:2], text[2:]):
        kinds += [{"type": "response.output_text.delta", "delta": piece, "logprobs": [], **part}] if piece else []
    kinds += [{"type": "response.output_text.done", "text": text, "logprobs": [], **part}] if text else []
    kinds += [{"type": "response.output_item.done", "item": said(text), **at}] if text else []
    kinds += [{"type": f"response.{last['status']}", "response": last}]
    return [{**one, "sequence_number": number} for number, one in enumerate(kinds)]


def as_bytes(one):
    return f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode()


def responding(text="four", *output, **how):
    """A server that answers so, streamed or not, as it is asked."""
    whole = response(*(output or [said(text)]), **how)

    async def reply(asked, out):
        if not asked.json.get("stream"):
            return await out.whole(whole, x_request_id="req_1")
        await out.chunked()
        for one in events("" if output else text, whole):
            await out.chunk(as_bytes(one))
        await out.finish()

    return reply
