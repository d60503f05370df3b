"""What VineLM adds to an invocation (stage, chat model, agent), and to throughput against a local server of 50 ms.

Added time is the median difference between routed and bare, taken in turns in the same process, per invocation; it includes
planning over 584 paths. Throughput runs whole requests of three calls over the real OpenAI SDK and loopback.
"""

from __future__ import annotations

import asyncio
import datetime
import gc
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict

import numpy as np
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langgraph.graph import END, START, StateGraph
from studies import Options, study

from vinelm import AnnotatedTrie, Catalog, Loop, Model, Objective, Price, Stage, Template, VineChatModel, VineLM, VineMiddleware
from vinelm.backends import OfflineChatModel, create_backends
from vinelm.clock import VirtualClock, WallClock
from vinelm.controller import InFlightLoadMonitor
from vinelm.requests.protocols import CallContext
from vinelm.rows.observation import Usage
from vinelm.trie.trie import Trie

MODELS, DEPTH, SERVER_S = 8, 3, 0.05


def objective():
    """A new one for each request, as a service makes them."""
    return Objective(maximize="accuracy", max_latency_s=1000.0, max_cost_usd=10.0)


class State(TypedDict, total=False):
    """A question and the answers so far."""

    question: str
    answers: Annotated[list, lambda old, new: [*old, *new]]


class Instant:
    """A backend whose models answer at once; as an agent's model they call a tool until the third turn."""

    is_simulated = is_virtual_time = True  # a real clock cannot sleep for 0 s
    script = json.dumps(
        {"calls": [{"name": "add", "args": {"a": 1, "b": turn}} for turn in range(DEPTH - 1)], "answer": "done"}
    )

    def chat_model(self, model, call):
        """See the protocol."""
        return OfflineChatModel.bound(self, model, call)

    def answer(self, model, call, prompt_chars):
        """What the chat model says."""
        return self.script, Usage(model=model.name, cost_usd=0.0, latency_s=0.0)

    def bare(self):
        """The same chat model as an application without VineLM would hold it: one for all calls."""
        models = catalog("instant")
        call = CallContext(stage="bare", prefix=("m0",), clock=VirtualClock(), on_usage=lambda usage: None)
        return OfflineChatModel.bound(self, models["m0"], call)


def catalog(provider, **fields):
    price = Price(input=1.0, output=4.0, source="bench", as_of=datetime.date(2026, 1, 1))
    models = (
        Model(name=f"m{i}", provider=provider, model_id=f"m{i}", engine=f"e{i % 2}", price=price, max_tokens=64, **fields)
        for i in range(MODELS)
    )
    return Catalog(models, {provider: {"stream": False}} if provider == "openai" else {})


def routed(models, stages, backends=None):
    """A VineLM that plans over all paths of the template: to the last invocation, for nothing ends before."""
    template = Template(stages, "workflow").bind(tuple(models))
    trie = Trie.from_template(template)
    rng = np.random.default_rng(0)
    depth, zeros = trie.depth, np.zeros(len(trie))
    success = np.where(depth > 0, 0.1 + 0.25 * depth + 0.02 * rng.random(len(trie)), 0.0)
    some = np.where(depth > 0, 0.01, 0.0)
    annotated = AnnotatedTrie(trie, template, models, success, zeros, zeros, some, zeros, some, zeros)
    return VineLM(models, backends, trie=annotated, load=InFlightLoadMonitor())


TWO_STAGES = (Stage("generate"), Loop((Stage("repair"),), times=DEPTH - 1))


def graph_of(stage, route, is_async):
    """generate, then repair twice; ``stage(name, fn)`` and ``route(fn)`` make nodes and the edge."""

    def call(state, model):
        return {"answers": [model.invoke(state["question"]).text]}

    async def acall(state, model):
        return {"answers": [(await model.ainvoke(state["question"])).text]}

    def finished(state):
        return len(state["answers"]) >= DEPTH

    for fn in (call, acall, finished):
        fn.__annotations__ = {"state": State}
    graph = StateGraph(State)
    for name in ("generate", "repair"):
        graph.add_node(name, stage(name, acall if is_async else call))
    graph.add_edge(START, "generate")
    graph.add_conditional_edges("generate", route(finished), ["repair", END])
    graph.add_conditional_edges("repair", route(finished), ["repair", END])
    return graph.compile()


def bare_graph(model, is_async):
    def stage(name, fn):
        async def anode(state: State):
            return await fn(state, model)

        def node(state: State):
            return fn(state, model)

        return anode if is_async else node

    return graph_of(stage, lambda fn: lambda state: END if fn(state) else "repair", is_async)


def routed_graph(vine, is_async):
    return graph_of(vine.stage, lambda fn: vine.route(fn, again="repair", end=END), is_async)


# -- what is added to one invocation -----------------------------------------------------------------------------


def added_us(bare, with_vine, repeats):
    """Median difference between routed and bare, and median of bare, in µs per invocation; the two run in turns.

    Of this process's CPU time: the work is all CPU, and other processes on the machine must not count.
    """
    for _ in range(max(repeats // 10, 5)):
        bare()
        with_vine()
    gc.collect()
    gc.disable()
    try:
        differences, alone = [], []
        for i in range(repeats):
            first, second = (bare, with_vine) if i % 2 else (with_vine, bare)
            started = time.process_time()
            first()
            middle = time.process_time()
            second()
            ended = time.process_time()
            a, b = middle - started, ended - middle
            differences.append((b - a if i % 2 else a - b) / DEPTH * 1e6)
            alone.append((a if i % 2 else b) / DEPTH * 1e6)
            if i % 50 == 0:
                gc.collect()
    finally:
        gc.enable()
    return statistics.median(differences), statistics.median(alone)


def both_ways(make, repeats):
    """Added and bare µs, each as {"sync": µs, "async": µs}, of ``make(is_async) -> (bare, routed)``."""
    loop = asyncio.new_event_loop()
    added, alone = {}, {}
    for name in ("sync", "async"):
        bare, with_vine = make(name == "async")
        if name == "async":
            bare, with_vine = (lambda run=run: loop.run_until_complete(run()) for run in (bare, with_vine))
        added[name], alone[name] = (round(us, 1) for us in added_us(bare, with_vine, repeats))
    loop.close()
    return added, alone


def stage(is_async):
    vine = routed(catalog("instant"), TWO_STAGES, {"instant": Instant()})
    bare, app = bare_graph(Instant().bare(), is_async), routed_graph(vine, is_async)
    value = {"question": "?", "answers": []}
    if is_async:
        return lambda: bare.ainvoke(value), lambda: app.ainvoke(value, context=vine.context(objective()))
    return lambda: bare.invoke(value), lambda: app.invoke(value, context=vine.context(objective()))


def chat_model(is_async):
    vine = routed(catalog("instant"), (Loop((Stage("chat"),), times=DEPTH),), {"instant": Instant()})
    bare, model = Instant().bare(), VineChatModel(vine=vine, stage="chat")

    def run(one):
        def sync():
            with vine.request(objective()):
                for _ in range(DEPTH):
                    one.invoke("?")

        async def asynchronous():
            with vine.request(objective()):
                for _ in range(DEPTH):
                    await one.ainvoke("?")

        return asynchronous if is_async else sync

    return run(bare), run(model)


def noop_middleware(is_async):
    """What an agent pays for any middleware around its model calls, be it ours or one that does nothing."""
    return agents(is_async, lambda vine: Nothing())


def middleware(is_async):
    return agents(is_async, VineMiddleware)


class Nothing(AgentMiddleware):
    """Hands every call on."""

    def wrap_model_call(self, request, handler):
        """As it is."""
        return handler(request)

    async def awrap_model_call(self, request, handler):
        """As it is."""
        return await handler(request)


def agents(is_async, make):
    vine = routed(catalog("instant"), (Loop((Stage("model"),), times=DEPTH),), {"instant": Instant()})

    def add(a: int, b: int) -> int:
        """The sum."""
        return a + b

    bare = create_agent(Instant().bare(), [add])
    app = create_agent(Instant().bare(), [add], middleware=[make(vine)])
    value = {"messages": [("user", "?")]}
    if is_async:
        return lambda: bare.ainvoke(value), lambda: app.ainvoke(value, context=vine.context(objective()))
    return lambda: bare.invoke(value), lambda: app.invoke(value, context=vine.context(objective()))


# -- throughput --------------------------------------------------------------------------------------------------


REPLY = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 8, "completion_tokens": 1, "total_tokens": 9},
    }
).encode()


def serve(port_to):
    """A chat completions server that takes 50 ms a call, whatever the load."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(REPLY)}\r\n\r\n".encode()

    async def answer(reader, writer):
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                lines = request.lower().split(b"\r\n")
                length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
                await reader.readexactly(length)
                await asyncio.sleep(SERVER_S)
                writer.write(head + REPLY)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main():
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=512)
        port_to.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


async def requests_per_s(run, concurrent, seconds):
    """Finished requests a second, ``concurrent`` of them always under way."""
    stop_at = time.perf_counter() + seconds
    done = 0

    async def worker():
        nonlocal done
        while time.perf_counter() < stop_at:
            await run()
            done += 1

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(concurrent)))
    return done / (time.perf_counter() - started)


def throughput(seconds, rounds):
    """Ratio with ÷ without VineLM by concurrency, and requests a second of both; both over the same SDK, in turns."""
    os.environ["VINELM_BENCH_KEY"] = "none"
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    models = catalog("openai", api_base=f"http://127.0.0.1:{ours.recv()}/v1", api_key_env="VINELM_BENCH_KEY")
    try:
        return asyncio.run(_throughput(models, seconds, rounds))
    finally:
        server.terminate()
        server.join()


async def _throughput(models, seconds, rounds):
    backends = create_backends(models)
    call = CallContext(stage="generate", prefix=("m0",), clock=WallClock(), on_usage=lambda usage: None)
    bare = bare_graph(backends["openai"].chat_model(models["m0"], call), True)
    vine = routed(models, TWO_STAGES, backends)
    app = routed_graph(vine, True)
    value = {"question": "?", "answers": []}
    runs = {"bare": lambda: bare.ainvoke(value), "routed": lambda: app.ainvoke(value, context=vine.context(objective()))}
    found = {}
    for concurrent in (1, 16, 128):
        rates = {name: [] for name in runs}
        for run in runs.values():
            await requests_per_s(run, concurrent, seconds / 3)
        for i in range(rounds):
            for name in sorted(runs, reverse=bool(i % 2)):
                rates[name].append(await requests_per_s(runs[name], concurrent, seconds))
        ratios = [b / a for a, b in zip(rates["bare"], rates["routed"], strict=True)]
        found[str(concurrent)] = {
            "ratio": round(statistics.median(ratios), 3),
            **{f"{name}_per_s": round(statistics.median(values), 1) for name, values in rates.items()},
        }
    return found


def main() -> int:
    options = {
        "--repeats": (400, "runs of three invocations per figure"),
        "--seconds": (3.0, "of each throughput measurement"),
        "--rounds": (5, "throughput measurements of each kind"),
    }
    return study(__doc__, options, all_measured, lines)


def all_measured(options: Options) -> dict[str, Any]:
    measured = {make.__name__: both_ways(make, options.repeats) for make in (stage, chat_model, middleware, noop_middleware)}
    added = {f"{name}_us": ours for name, (ours, _) in measured.items()}
    added["bare_stage_us"] = measured["stage"][1]
    ours, anyones = added["middleware_us"], added["noop_middleware_us"]
    added["middleware_over_noop_us"] = {way: round(ours[way] - anyones[way], 1) for way in ours}
    over_bare = {way: round(added["stage_us"][way] / us, 3) for way, us in added["bare_stage_us"].items()}
    rates = throughput(options.seconds, options.rounds)
    ratios = {n: row["ratio"] for n, row in rates.items()}
    return {**added, "stage_over_bare": over_bare, "throughput_ratio": ratios, "throughput": rates}


def lines(found: dict[str, Any]) -> Iterator[str]:
    yield "added per invocation, µs (aim: at most 150)"
    for name, values in found.items():
        if name.endswith("_us"):
            yield f"  {name:23} sync {values['sync']:7.1f}   async {values['async']:7.1f}"
    over = found["stage_over_bare"]
    yield f"  {'stage over bare stage':23} sync {over['sync']:7.3f}   async {over['async']:7.3f}   (aim: at most 0.30)"
    yield "requests a second against a server of 50 ms, three calls each (aim: ratio at least 0.95)"
    for concurrent, row in found["throughput"].items():
        per_s = f"bare {row['bare_per_s']:7.1f}  routed {row['routed_per_s']:7.1f}"
        yield f"  {concurrent:>4} at once  {per_s}  ratio {row['ratio']:.3f}"


if __name__ == "__main__":
    raise SystemExit(main())
