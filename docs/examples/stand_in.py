"""A server on this machine that answers chat completions as a page tells it to, so that the page's code can be run by anyone.

Importing it starts the server, and sets OPENAI_BASE_URL and OPENAI_API_KEY for this process.
"""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

asked: list[str] = []
"""The models that were asked, in order."""
_turns: list[str | tuple[str, dict]] = []


def says(*turns: str | tuple[str, dict]) -> None:
    """Set the next answers: each a text, or the name and the arguments of the tool that the model calls."""
    asked.clear()
    _turns[:] = turns


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        turn = _turns[min(len(asked), len(_turns) - 1)]
        asked.append(body["model"])
        message: dict = {"role": "assistant", "content": turn if isinstance(turn, str) else None}
        if not isinstance(turn, str):
            function = {"name": turn[0], "arguments": json.dumps(turn[1])}
            message["tool_calls"] = [{"index": 0, "id": f"call_{len(asked)}", "type": "function", "function": function}]
        usage = {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48}
        head = {"id": "c", "created": 1, "model": body["model"]}
        end = "stop" if isinstance(turn, str) else "tool_calls"
        if body.get("stream"):
            choices = [
                [{"index": 0, "delta": message, "finish_reason": None}],
                [{"index": 0, "delta": {}, "finish_reason": end}],
            ]
            pieces = [*({"choices": one} for one in choices), {"choices": [], "usage": usage}]
            events = [json.dumps({**head, "object": "chat.completion.chunk", **piece}) for piece in pieces]
            content, kind = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]), "text/event-stream"
        else:
            choice = {"index": 0, "message": message, "finish_reason": end}
            content, kind = (
                json.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage}),
                "application/json",
            )
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content.encode())))
        self.end_headers()
        self.wfile.write(content.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


_server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
Thread(target=_server.serve_forever, daemon=True).start()
os.environ["OPENAI_BASE_URL"] = f"http://127.0.0.1:{_server.server_port}/v1"
os.environ["OPENAI_API_KEY"] = "none"
