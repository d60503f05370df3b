"""Processor time and seconds that `vinelm gateway` adds to a call, beside a bare pass-through of the same server.

    pip install 'vinelm[gateway]'
    python scripts/bench_gateway.py --calls 1000 --results results/gateway.json
    python scripts/bench_gateway.py --litellm other-env/bin/litellm   # beside LiteLLM's proxy, installed elsewhere

Each server is a process of its own, and so is the simulated provider, which answers at once. `bare` is the same HTTP server
and client without anything between: it reads a body, sends it on, and passes the answer back. `gateway` records each call;
`keys` asks for a key with a cap of dollars as well. Rounds of calls take turns between the servers. Processor time is that of
the server's process; what is added is the difference to `bare`. Then `--at-once` calls are made at a time. All figures are
medians of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from local_openai import local_openai
from studies import Options, study

from vinelm.errors import ConfigError

PRICE = {"input": 1.0, "output": 10.0, "source": "bench", "as_of": "2026-01-01"}
ASKED = [{"role": "system", "content": "You answer in one word. " * 20}, {"role": "user", "content": "2 + 2?"}]
MODEL, KEY_ENV = "big", "BENCH_GATEWAY_KEY"
WARM, ROUNDS, LATE_ROUNDS = 50, 5, 3
TICKS = os.sysconf("SC_CLK_TCK")


def serve_bare(upstream: str) -> None:
    """Pass every call on."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    from vinelm.backends.openai.http_library import http_library
    from vinelm.backends.remote.idle_connections import probe_cheaply

    library = http_library()
    client: Any = None

    async def passed(request: Request) -> Response:
        nonlocal client
        if client is None:
            client = library.AsyncClient(
                timeout=None, limits=library.Limits(max_connections=None, max_keepalive_connections=1000)
            )
            probe_cheaply(client)
        headers = {"content-type": "application/json", "authorization": "Bearer x"}
        asking = client.build_request("POST", f"{upstream}/chat/completions", content=await request.body(), headers=headers)
        answer = await client.send(asking, stream=True)
        kind = answer.headers["content-type"]
        if "event-stream" not in kind:
            return Response(await answer.aread(), answer.status_code, media_type=kind)

        async def pieces() -> Any:
            try:
                async for piece in answer.aiter_bytes():
                    yield piece
            finally:
                await answer.aclose()

        return StreamingResponse(pieces(), media_type=kind)

    _run(Starlette(routes=[Route("/v1/chat/completions", passed, methods=["POST"])]))


def serve_gateway(upstream: str, folder: Path, *, has_keys: bool) -> None:
    """The gateway over the same server; prints the key of its caller, too."""
    from vinelm import Catalog, VineLM
    from vinelm.gateway import Gateway, KeyBook

    os.environ[KEY_ENV] = "bench"
    entry = {"name": MODEL, "provider": "openai", "model": MODEL, "api_base": upstream, "api_key_env": KEY_ENV, "price": PRICE}
    book = KeyBook(folder / "keys.db") if has_keys else None
    key = "none" if book is None else book.add("bench", daily_usd=1e5)
    catalog = Catalog.from_dict({"model": [{**entry, "max_tokens": 100}]})
    _run(Gateway(VineLM(catalog), keys=book, record=folder / f"calls-{has_keys}.jsonl"), key)


def _run(application: Any, key: str = "none") -> None:
    import socket

    import uvicorn

    from vinelm.gateway.app import LIMITS
    from vinelm.gateway.server import server_config

    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    config = server_config(application, LIMITS)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/v1 {key}", flush=True)
    uvicorn.Server(config).run(sockets=[listening])


@contextmanager
def served(kind: str, upstream: str, folder: Path) -> Iterator[tuple[str, str, int]]:
    """URL, key and process of a server."""
    command = [sys.executable, __file__, "--serve", kind, "--upstream", upstream, "--folder", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url, key = process.stdout.readline().split()
        yield url, key, process.pid
        process.kill()


@contextmanager
def litellm_served(program: str, upstream: str, folder: Path) -> Iterator[tuple[str, str, int]]:
    """The same for LiteLLM's proxy, with one worker."""
    config = folder / "litellm.yaml"
    entry = {"model": f"openai/{MODEL}", "api_base": upstream, "api_key": "bench"}
    config.write_text(json.dumps({"model_list": [{"model_name": MODEL, "litellm_params": entry}]}))
    port = 4000 + os.getpid() % 1000
    command = [program, "--config", str(config), "--port", str(port), "--host", "127.0.0.1", "--num_workers", "1"]
    key = "sk-bench"
    environment = {**os.environ, "LITELLM_MASTER_KEY": key, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as process:
        url = f"http://127.0.0.1:{port}/v1"
        for _ in range(120):
            time.sleep(1.0)
            try:
                asyncio.run(calls(url, key, 1, at_once=1, stream=False))
            except OSError:
                continue
            break
        else:
            process.kill()
            raise ConfigError(f"--litellm {program}: its proxy did not answer within two minutes")
        yield url, key, process.pid
        process.kill()


# -- the client: HTTP by hand costs the least, and all servers get the same bytes ---------------------------------------


async def _answer(reader: asyncio.StreamReader) -> int:
    """Read one answer; returns its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    fields = head.lower()
    if b"content-length:" in fields:
        await reader.readexactly(int(fields.split(b"content-length:")[1].split(b"\r\n")[0]))
    else:
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
        await reader.readline()
    return int(head.split()[1])


async def calls(url: str, key: str, count: int, *, at_once: int, stream: bool) -> list[float]:
    """Make so many calls, ``at_once`` at a time, each on a connection that is kept; returns the seconds of each."""
    body = json.dumps({"model": MODEL, "messages": ASKED, "max_tokens": 50, **({"stream": True} if stream else {})}).encode()
    host, _, port = url.removeprefix("http://").removesuffix("/v1").partition(":")
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n"
    data = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    left, seconds = [count], []

    async def one() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        while left[0] > 0:
            left[0] -= 1
            began = time.perf_counter()
            writer.write(data)
            status = await _answer(reader)
            seconds.append(time.perf_counter() - began)
            if status != 200:
                raise OSError(f"{url} answered {status}")
        writer.close()

    await asyncio.gather(*(one() for _ in range(at_once)))
    return seconds


def cpu_s(process: int) -> float:
    """Processor seconds that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def measure(options: Options) -> dict[str, Any]:
    """Processor time by server and kind of answer, then seconds at many calls at once."""
    found: dict[str, Any] = {"calls": options.calls, "at_once": options.at_once, "load_average": os.getloadavg()[0]}
    with ExitStack() as open_servers:
        folder = Path(open_servers.enter_context(tempfile.TemporaryDirectory()))
        upstream = open_servers.enter_context(local_openai(0.0))
        servers = {kind: open_servers.enter_context(served(kind, upstream, folder)) for kind in ("bare", "gateway", "keys")}
        if options.litellm:
            servers["litellm"] = open_servers.enter_context(litellm_served(options.litellm, upstream, folder))
        for form, stream in (("whole", False), ("stream", True)):
            spent: dict[str, list[float]] = {name: [] for name in servers}
            for url, key, _ in servers.values():
                asyncio.run(calls(url, key, WARM, at_once=1, stream=stream))
            for _ in range(ROUNDS):
                for name, (url, key, process) in servers.items():
                    before = cpu_s(process)
                    asyncio.run(calls(url, key, options.calls // ROUNDS, at_once=1, stream=stream))
                    spent[name].append(1000.0 * (cpu_s(process) - before) / (options.calls // ROUNDS))
            timed: dict[str, list[tuple[float, float, float]]] = {name: [] for name in servers}
            for _ in range(LATE_ROUNDS):
                for name, (url, key, _) in servers.items():
                    timed[name].append(_late(url, key, options, stream=stream))
            late = {name: np.median(rounds, axis=0).tolist() for name, rounds in timed.items()}
            bare_ms, bare_p99 = float(np.median(spent["bare"])), late["bare"][1]
            found[form] = {
                name: {
                    "cpu_ms": (cpu := float(np.median(spent[name]))),
                    "added_cpu_ms": cpu - bare_ms,
                    "p50_ms": late[name][0],
                    "p99_ms": late[name][1],
                    "added_p99_ms": late[name][1] - bare_p99,
                    "per_second": late[name][2],
                }
                for name in servers
            }
            options.say(f"{form}: done")
    return {**found, "load_average": max(found["load_average"], os.getloadavg()[0])}


def _late(url: str, key: str, options: Options, *, stream: bool) -> tuple[float, float, float]:
    """Median and 99th percentile, in milliseconds, and calls a second, at many calls at once."""
    asyncio.run(calls(url, key, options.at_once, at_once=options.at_once, stream=stream))
    began = time.perf_counter()
    seconds = asyncio.run(calls(url, key, 4 * options.at_once, at_once=options.at_once, stream=stream))
    p50, p99 = np.quantile(seconds, [0.5, 0.99])
    return 1000.0 * float(p50), 1000.0 * float(p99), len(seconds) / (time.perf_counter() - began)


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The table."""
    yield f"load average {found['load_average']:.1f}; {found['calls']} calls one by one, then {found['at_once']} at once"
    yield f"{'':18}{'cpu ms':>10}{'added':>10}{'p50 ms':>10}{'p99 ms':>10}{'added':>10}{'a second':>10}"
    for form in ("whole", "stream"):
        for name, one in found[form].items():
            figures = (one["cpu_ms"], one["added_cpu_ms"], one["p50_ms"], one["p99_ms"], one["added_p99_ms"], one["per_second"])
            yield f"{form:8}{name:10}" + "".join(f"{figure:10.2f}" for figure in figures)


def main() -> int:
    """Serve, as a child process of the study, or measure."""
    if "--serve" in sys.argv:
        parser = argparse.ArgumentParser()
        for flag in ("--serve", "--upstream", "--folder"):
            parser.add_argument(flag)
        given = parser.parse_args()
        if given.serve == "bare":
            serve_bare(given.upstream)
        else:
            serve_gateway(given.upstream, Path(given.folder), has_keys=given.serve == "keys")
        return 0
    options = {
        "--calls": (1000, "calls of each server and form, one after the other"),
        "--at-once": (128, "calls at once"),
        "--litellm": ("", "LiteLLM's program, to measure its proxy as well"),
    }
    return study(__doc__, options, measure, lines)


if __name__ == "__main__":
    sys.exit(main())
