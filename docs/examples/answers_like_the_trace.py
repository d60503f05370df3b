"""A stand-in for real models, so that anyone can try `vinelm replay`: it answers recorded prompts nearly as the trace does.

    python answers_like_the_trace.py traces.jsonl.gz

Serves chat completions at http://127.0.0.1:8790/v1 (a second argument is another port). Each model gives the recorded answer,
but for its share of the prompts below, where it gives another answer of the same step; the same prompts are hard for all. It is
no model: what is proven with it says nothing about a real one.
"""

import hashlib
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from vinelm.replay import read_calls

OTHERWISE = {"gpt-5-nano": 0.08, "gpt-5-mini": 0.02, "gpt-4o": 0.01}


def prompt_of(messages) -> str:
    """What tells prompts apart."""
    return json.dumps([(one["role"], one.get("content") or "") for one in messages])


recorded: dict[str, dict] = {}
answers: dict[str, list[dict]] = {}  # by system prompt
for call in read_calls(sys.argv[1]):
    if call.answer:
        recorded[prompt_of(call.messages)] = dict(call.answer)
        answers.setdefault(call.messages[0]["content"], []).append(dict(call.answer))


class Handler(BaseHTTPRequestHandler):
    """Answers `POST /v1/chat/completions`."""

    def do_POST(self) -> None:
        """Answer one call."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = prompt_of(body["messages"])
        drawn = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:8]) / 2**64
        same, said = recorded.get(prompt, {"content": "?"}), answers.get(body["messages"][0]["content"], [])
        differs = drawn < OTHERWISE.get(body["model"], 0.0)
        answer = next((one for one in said[int(1e6 * drawn) % len(said) :] + said if one != same), same) if differs else same
        tokens = len(prompt) // 4, len(json.dumps(answer)) // 4
        usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
        choice = {"index": 0, "message": {"role": "assistant", **answer}, "finish_reason": "stop"}
        whole = {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [choice],
            "usage": usage,
        }
        data = json.dumps(whole).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 8790), Handler) as server:
        server.serve_forever()
