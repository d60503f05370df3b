"""The server of all peers: replays recorded answers, simulates the rest, and meters the dollars of each question.

python -m peers_parts.server SEED DATA    # prints its port; DATA "-" without recorded tables

``POST /APP.NAME/v1/chat/completions`` answers for an application; ``GET /APP.NAME/used`` says the dollars of each question and
the calls under that name. A peer does not meter itself.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

from first_trial_parts.model_answers import Reply, _text
from first_trial_parts.server import Handler, _chunks, _usage, _whole
from first_trial_parts.stranger_answers import StrangerAnswerer
from peers_parts.questions import APPS, EASY_SKILL, PRICES, Question, draw, questions

SPEED = 1000
"""Recorded seconds are waited for in milliseconds."""
Usage = dict[str, int]


class Replies:
    """What the models of one application answer."""

    def __init__(self, app: str, asked: Sequence[Question], seed: int) -> None:
        self.app, self.asked, self.seed = app, asked, seed
        self.known: dict[str, Question | None] = {}

    def question(self, prompt: str) -> Question | None:
        """The question that a prompt contains; of several, the longest."""
        if prompt not in self.known:
            found = [one for one in self.asked if one.text in prompt]
            self.known[prompt] = max(found, key=lambda one: len(one.text), default=None)
        return self.known[prompt]

    def __call__(self, body: Mapping[str, Any]) -> tuple[Reply, Usage, Question | None, float]:
        """The reply to a call, its tokens, the question that it belongs to, and the seconds to wait."""
        prompt = "\n".join(_text(message) for message in body["messages"])
        question = self.question(prompt)
        if self.app == "agent":
            reply = StrangerAnswerer(body, self.seed).reply()
            return reply, _usage(dict(body), reply), question, 0.004
        call = None if question is None or question.recorded is None else question.recorded.get(body["model"])
        if question is None or call is None:
            reply = Reply("I do not know this question.")
            return reply, _usage(dict(body), reply), question, 0.0
        is_easy_right = draw(self.seed, self.app, body["model"], prompt) < EASY_SKILL
        if self.app == "linear":
            if "Fill in the answer sheet" in prompt:
                read = prompt.rpartition("The answer is ")[2][:1] if "The answer is " in prompt else "-"
                reply = Reply(read if is_easy_right else "-")
                return reply, _usage(dict(body), reply), question, 0.0
            reply = Reply(f"The answer is {call.letter}." if call.letter else "I cannot decide.")
        elif "Is this a question of science or of commonsense?" in prompt:
            kinds = ("science", "commonsense")
            reply = Reply(kinds[(question.kind == kinds[1]) == is_easy_right])
            return reply, _usage(dict(body), reply), question, 0.0
        else:
            reply = Reply(call.letter if f"You work at the {question.kind} desk" in prompt else "Ask another desk.")
        usage = {"prompt_tokens": call.tokens_in, "completion_tokens": call.tokens_out}
        return reply, usage | {"total_tokens": call.tokens_in + call.tokens_out}, question, call.latency_s / SPEED


class Meter:
    """Dollars of each question and calls under each name; any number of threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._usd: dict[str, Counter[str]] = {}
        self._calls: Counter[str] = Counter()

    def add(self, name: str, question: str, usd: float) -> None:
        """Count one call."""
        with self._lock:
            self._usd.setdefault(name, Counter())[question] += usd  # type: ignore[assignment]  # a Counter of floats
            self._calls[name] += 1

    def used(self, name: str) -> dict[str, Any]:
        """``usd`` by question, ``total_usd`` and ``calls``."""
        with self._lock:
            usd = dict(self._usd.get(name, {}))
            return {"usd": usd, "total_usd": sum(usd.values()), "calls": self._calls[name]}


def price(app: str, model: str, usage: Mapping[str, int]) -> float:
    """Dollars of one call."""
    price_in, price_out = PRICES[app][model]
    return (usage["prompt_tokens"] * price_in + usage["completion_tokens"] * price_out) / 1e6


class PeersHandler(Handler):
    """Answers under ``/APP.NAME``."""

    replies: ClassVar[dict[str, Replies]] = {}
    meter: ClassVar[Meter] = Meter()

    def do_POST(self) -> None:  # noqa: N802  # the library's name
        """Answer one call."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = self.path.split("/")[1]
        app = name.split(".")[0]
        if app not in self.replies or body.get("model") not in PRICES[app]:
            self.send_error(404, "no such application or model")
            return
        reply, usage, question, seconds = self.replies[app](body)
        self.meter.add(name, question.id if question else "", price(app, body["model"], usage))
        time.sleep(seconds)
        if body.get("stream"):
            *lines, last = _chunks(body, reply)
            sent = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in [*lines, last | {"usage": usage}])
            self._send("text/event-stream", (sent + "data: [DONE]\n\n").encode())
        else:
            self._send("application/json", json.dumps(_whole(body, reply) | {"usage": usage}).encode())

    def do_GET(self) -> None:  # noqa: N802  # the library's name
        """Say what was used under a name."""
        self._send("application/json", json.dumps(self.meter.used(self.path.split("/")[1])).encode())


def ready(seed: int, data: Path | None) -> ThreadingHTTPServer:
    """The server on a free port of the loopback interface, for the applications that have their questions."""
    apps = APPS if data else ("agent",)
    PeersHandler.replies = {
        app: Replies(app, [one for part in questions(app, data, seed) for one in part], seed) for app in apps
    }
    ThreadingHTTPServer.request_queue_size = 128
    return ThreadingHTTPServer(("127.0.0.1", 0), PeersHandler)


def main() -> None:
    """Serve until the process is ended."""
    server = ready(int(sys.argv[1]), None if sys.argv[2] == "-" else Path(sys.argv[2]))
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
