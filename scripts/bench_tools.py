"""What declared tools cost and save in real time: a loopback HTTP tool of 0.5 s under a scripted model of 1 s.

    python scripts/bench_tools.py [--json] [--results FILE]

`saved` compares a run with its reads started ahead (guessed while the model thinks; or taken from its stream) with the same run
without; `formula` is what it should save: reads * min(seconds of the tool, seconds of the model that are left when it starts).
`no_hit_us` is what a declared read-only tool adds to a call that nothing answers, inside a run, in time of a processor.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.request import urlopen

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import tool as plain_tool
from studies import Options, study

from vinelm import Catalog, Speculation, VineLM, VineMiddleware
from vinelm.adapters.tools.declaring import declared_in

TOOL_S, MODEL_S, WRITES_AT_S, READS = 0.5, 1.0, 0.6, 4


class Slow(BaseHTTPRequestHandler):
    """Answers after half a second."""

    def do_GET(self) -> None:
        """Answer."""
        time.sleep(TOOL_S)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"found")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class Scripted(BaseChatModel):
    """A scripted model: its tool call is complete in the stream after 0.6 s, its answer after 1 s."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Take any tools."""
        return self.bind(tools=["bound"])

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return generate_from_stream(self._stream(messages, stop, run_manager, **kwargs))

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        done = sum(isinstance(one, ToolMessage) for one in messages)
        time.sleep(WRITES_AT_S)
        if done < READS:
            call = {"name": "fetch", "args": json.dumps({"page": done}), "id": f"c{done}", "index": 0}
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))
        time.sleep(MODEL_S - WRITES_AT_S)
        text = "" if done < READS else "done"
        yield ChatGenerationChunk(message=AIMessageChunk(content=text, response_metadata={"finish_reason": "stop"}))


class Next:
    """Guesses the next page."""

    def candidates(self, history: Any) -> Any:
        """The page after those that were read."""
        return [("fetch", {"page": sum(not isinstance(one, str) for one in history)}, 0.9)]


def application(address: str, candidates: Any) -> tuple[VineLM, Any]:
    """An agent over the slow server."""
    chat = Scripted()
    price = {"input": 0.0, "output": 0.0, "source": "scripted", "as_of": time.strftime("%Y-%m-%d")}
    vine = VineLM(Catalog.from_chat_models({"scripted": chat}, prices={"scripted": price}))
    vine.adapter.tools.candidates = candidates

    @vine.tool(read_only=True)
    def fetch(page: int) -> str:
        """Fetch a page."""
        with urlopen(f"{address}/{page}") as answer:
            return str(answer.read().decode())

    return vine, create_agent(chat, [fetch], middleware=[VineMiddleware(vine)])


def seconds(address: str, candidates: Any, speculate: Speculation | None) -> float:
    """How long a run takes."""
    vine, agent = application(address, candidates)
    context = vine.context(speculate=speculate)
    started = time.perf_counter()
    agent.invoke({"messages": [HumanMessage("read all pages")]}, context=context)
    return time.perf_counter() - started


def no_hit_us(calls: int = 3000) -> float:
    """Median microseconds of a processor that a declared tool adds to a call, over five rounds."""

    @plain_tool
    def look(item: str, pieces: int = 1) -> str:
        """Look an item up."""
        return item

    chat = Scripted()
    price = {"input": 0.0, "output": 0.0, "source": "scripted", "as_of": time.strftime("%Y-%m-%d")}
    vine = VineLM(Catalog.from_chat_models({"scripted": chat}, prices={"scripted": price}))
    declared = vine.tool(look, read_only=True)

    def per_call(one: Any) -> float:
        started = time.process_time()
        for at in range(calls):
            one.invoke({"item": "tea", "pieces": at})
        return (time.process_time() - started) / calls * 1e6

    with vine.request(speculate=Speculation()):
        memory = vine.adapter.reads_finder.here()
        assert memory is not None
        known = declared_in(vine.adapter.tools, declared)
        assert known is not None
        assert memory.start(known, {"item": "milk"}, "eager", 1.0)
        rounds = [(per_call(look), per_call(declared)) for _ in range(5)]
    return statistics.median(mine - theirs for theirs, mine in rounds)


def main() -> int:
    return study(__doc__, {}, measured, lines)


def measured(options: Options) -> dict[str, Any]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    seconds(address, None, None)  # the first run imports
    bare_s = seconds(address, None, None)
    left_s = {"guessed": MODEL_S, "streamed": MODEL_S - WRITES_AT_S}
    took_s = {"guessed": seconds(address, Next(), Speculation()), "streamed": seconds(address, None, Speculation())}
    figures: dict[str, Any] = {"bare_s": round(bare_s, 3), "no_hit_us": round(no_hit_us(), 1)}
    for name, took in took_s.items():
        formula = READS * min(TOOL_S, left_s[name])
        figures[name] = {"took_s": round(took, 3), "saved_s": round(bare_s - took, 3), "formula_s": formula}
    server.shutdown()
    return figures


def lines(found: dict[str, Any]) -> Iterator[str]:
    for name in ("guessed", "streamed"):
        one = found[name]
        took = f"{one['took_s']:.2f} s against {found['bare_s']:.2f} s: saved {one['saved_s']:.2f} s"
        yield f"{name}: {took}, formula {one['formula_s']:.2f} s"
    yield f"a call that nothing answers: {found['no_hit_us']:.0f} us more"


if __name__ == "__main__":
    sys.exit(main())
