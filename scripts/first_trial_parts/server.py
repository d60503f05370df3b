"""A server with the chat completions API on the loopback interface: streams or not, with tools, schemas and usage.

python -m first_trial_parts.server SEED              # prints its port
python -m first_trial_parts.server SEED strangers    # the models of the strangers' trial

``POST /v1/...`` and ``POST /NAME/v1/...`` are the same; ``GET /NAME/used`` says what was used under a name.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any, ClassVar

from first_trial_parts.model_answers import LATENCIES_S, Answerer, Reply
from first_trial_parts.stranger_answers import STRANGER_LATENCIES_S, StrangerAnswerer


class Handler(BaseHTTPRequestHandler):
    """Answers ``POST /v1/chat/completions``, and counts what it answered under each name."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # header and body are sent apart
    seed = 0
    answerer: type[Answerer] = Answerer
    latencies_s = LATENCIES_S
    used: ClassVar[dict[str, dict[str, Counter[str]]]] = {}
    lock = Lock()

    def do_POST(self) -> None:
        """Answer one call."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply = self.answerer(body, self.seed).reply()
        self._count(body, reply)
        time.sleep(self.latencies_s[body["model"]])
        if body.get("stream"):
            lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in _chunks(body, reply)]
            self._send("text/event-stream", "".join([*lines, "data: [DONE]\n\n"]).encode())
        else:
            self._send("application/json", json.dumps(_whole(body, reply)).encode())

    def do_GET(self) -> None:
        """Say what was used under a name, by model: calls and tokens."""
        with self.lock:
            content = json.dumps(self.used.get(self.path.split("/")[1], {})).encode()
        self._send("application/json", content)

    def _count(self, body: dict[str, Any], reply: Reply) -> None:
        usage = _usage(body, reply)
        with self.lock:
            models = self.used.setdefault(self.path.split("/")[1], {})
            models.setdefault(body["model"], Counter()).update({"calls": 1, **usage})

    def _send(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _usage(body: dict[str, Any], reply: Reply) -> dict[str, int]:
    tokens_in = len(json.dumps(body["messages"])) // 4
    tokens_out = max((len(reply.text) + len(json.dumps(reply.calls))) // 4, 1)
    return {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}


def _tool_calls(reply: Reply) -> list[dict[str, Any]]:
    return [{"index": i, "id": f"call_{i}", "type": "function", "function": call} for i, call in enumerate(reply.calls)]


def _whole(body: dict[str, Any], reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.calls:
        message["tool_calls"] = _tool_calls(reply)
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if reply.calls else "stop"}
    return {**_head(body, "chat.completion"), "choices": [choice], "usage": _usage(body, reply)}


def _chunks(body: dict[str, Any], reply: Reply) -> Iterator[dict[str, Any]]:
    head = _head(body, "chat.completion.chunk")
    delta: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.calls:
        delta["tool_calls"] = _tool_calls(reply)
    yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if reply.calls else "stop"}]}
    yield {**head, "choices": [], "usage": _usage(body, reply)}


def _head(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1_700_000_000, "model": body["model"]}


def main() -> None:
    """Serve until the process is ended."""
    Handler.seed = int(sys.argv[1])
    if sys.argv[2:] == ["strangers"]:
        Handler.answerer, Handler.latencies_s = StrangerAnswerer, STRANGER_LATENCIES_S
    ThreadingHTTPServer.request_queue_size = 128
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
