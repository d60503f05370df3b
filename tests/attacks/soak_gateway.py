"""Calls two gateways for minutes while they are killed and their disk is full, and compares dollars with those that were due.

    python tests/attacks/soak_gateway.py --seconds 120

Two processes of `vinelm gateway` share one file of keys, before a simulated provider that refuses some calls, cuts some answers
off and forgets some usages. A seed decides what happens every few seconds: one gateway is killed with `kill -9` and started
again; no file of it can be written, as on a full disk; the file of keys is locked by another process. Callers ask by the
unmodified SDK of OpenAI, for chat completions and Responses, whole and streamed, under a cap that is ample and one that is not.

At the end each call was answered with its own answer, or by an error in OpenAI's form; without either only if its gateway was
killed meanwhile. No key has spent more than its cap, nor less than the provider has billed for it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import attack_paths  # noqa: F401 - first: where the rest is
import openai
from kit.servers.gateways import COST, KEY, KEY_ENV
from kit.wire import openai_format, responses_format
from kit.wire.server import WireServer
from studies import Options, named, study

from vinelm.backends.openai.http_library import http_library
from vinelm.gateway import KeyBook
from vinelm.replay import read_calls

CAPS_USD = {"ample": 1000.0, "tight": 0.04}
WAIT_S = 60.0
"""Seconds after which a call without any answer is lost."""
FATES = {"good": 0.8, "refused": 0.08, "cut": 0.07, "no usage": 0.05}
TROUBLES = {"kill": 0.5, "full disk": 0.25, "locked file": 0.25}
MODELS = """
[[model]]
name = "big"
provider = "openai"
model = "big-1"
api_base = "{url}"
api_key_env = "{key_env}"
max_tokens = 100
price = {{ input = 1.0, output = 10.0, cached = 0.1, source = "made up", as_of = 2026-01-01 }}
"""


class Provider:
    """Answers with the number of the call, and notes what it bills each key for: the price of one answer, once that begins."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self.billed_usd, self.asked = rng, Counter[str](), 0
        self._server = WireServer().answers(self._reply)
        self.url = self._server.url

    async def _reply(self, asked: Any, out: Any) -> None:
        self.asked += 1
        (fate,) = self._rng.choices(list(FATES), list(FATES.values()))
        await asyncio.sleep(self._rng.uniform(0.0, 0.05))
        if fate == "refused":
            return await out.whole(openai_format.problem("overloaded", "busy"), status=503)
        is_chat = asked.path.endswith("completions")
        key, number = (asked.json["messages"][0]["content"] if is_chat else asked.json["input"]).split()
        self.billed_usd[key] += COST
        wire: Any = openai_format if is_chat else responses_format
        usage = None if fate == "no usage" else wire.USAGE
        if fate == "cut":
            await out.chunked()
            pieces = openai_format.chunks(number) if is_chat else responses_format.events(number, responses_format.response())
            for piece in list(pieces)[:-2]:
                await out.chunk(f"data: {json.dumps(piece)}\n\n".encode())
            return out.close()
        await (openai_format.answering if is_chat else responses_format.responding)(number, usage=usage)(asked, out)

    def stop(self) -> None:
        """End the server."""
        self._server.stop()


class GatewayProcess:
    """``vinelm gateway`` on a port of its own, which it keeps when it is started again.

    Attributes:
        downs: when it was killed and when it listened again, in seconds of the clock; the last may be open.
    """

    def __init__(self, folder: Path, number: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._folder, self.record, self.downs = folder, folder / f"calls-{number}.jsonl", list[list[float]]()
        self._errors = (folder / f"gateway-{number}.log").open("ab")
        self.start()

    def start(self) -> None:
        """Start it; returns once it listens."""
        command = [sys.executable, "-m", "vinelm.cli.main", "gateway", "--models", "models.toml", "--port", str(self.port)]
        command += ["--keys", "keys.db", "--record", str(self.record)]
        environment = {**os.environ, KEY_ENV: KEY, "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, cwd=self._folder, env=environment, stdout=subprocess.DEVNULL, stderr=self._errors
        )
        until = time.monotonic() + 120
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.05)
        raise TimeoutError("a gateway does not start")

    def kill(self) -> None:
        """Kill it and start it again."""
        self.downs.append([time.monotonic(), float("inf")])
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.start()
        self.downs[-1][1] = time.monotonic()

    def fill_disk(self, seconds: float) -> None:
        """Have every write to a file fail for so long."""
        with suppress(ProcessLookupError):
            before = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            time.sleep(seconds)
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, before)

    def stop(self) -> None:
        """End it, with the calls under way."""
        self.process.terminate()
        self.process.wait(60)
        self._errors.close()

    def was_down(self, begun_s: float, ended_s: float) -> bool:
        """Whether it was killed in this time."""
        return any(down <= ended_s and up >= begun_s for down, up in self.downs)


class Calls:
    """What callers have seen: how each call ended, and those that ended as none may."""

    def __init__(self, keys: dict[str, str], gateways: list[GatewayProcess], rng: random.Random) -> None:
        self._keys, self._gateways, self._rng = keys, gateways, rng
        self.ends, self.wrong, self.slowest_s, self._number = Counter[str](), list[str](), 0.0, 0

    async def run(self, callers: int, until_s: float) -> None:
        """Call until then, so many at once."""
        library = http_library()
        # A connection that is kept may be one to a gateway that was killed since.
        client = openai.DefaultAsyncHttpxClient(limits=library.Limits(max_keepalive_connections=0))
        async with client:
            await asyncio.gather(*(self._caller(client, until_s) for _ in range(callers)))

    async def _caller(self, client: Any, until_s: float) -> None:
        while time.monotonic() < until_s:
            self._number += 1
            name, gateway = self._rng.choice(list(self._keys)), self._rng.choice(self._gateways)
            asks = self._rng.choice([_chat, _chat_stream, _response, _response_stream])
            url = f"http://127.0.0.1:{gateway.port}/v1"
            sdk = openai.AsyncOpenAI(base_url=url, api_key=self._keys[name], max_retries=0, timeout=WAIT_S, http_client=client)
            begun_s, number = time.monotonic(), str(self._number)
            end = await self._ended(asks, sdk, f"{name} {number}", number)
            took_s = time.monotonic() - begun_s
            if end == "no answer":
                end = "lost" if not gateway.was_down(begun_s, time.monotonic()) else "killed"
                end = "not started" if gateway.was_down(begun_s, begun_s) else end
            self.slowest_s = max(self.slowest_s, took_s)
            self.ends[end] += 1
            if end in ("lost", "timeout", "another's answer") or end.startswith("not OpenAI's"):
                self.wrong.append(f"call {number} ({asks.__name__}): {end} after {took_s:.1f} s")
            await asyncio.sleep(self._rng.uniform(0.0, 0.2))

    async def _ended(self, asks: Callable[..., Any], sdk: Any, prompt: str, number: str) -> str:
        """How a call ends: "answered", the code of its error, or without either."""
        library = http_library()
        try:
            return "answered" if await asks(sdk, prompt) == number else "another's answer"
        except openai.APITimeoutError:
            return "timeout"
        except (openai.APIConnectionError, library.TransportError):
            return "no answer"
        except openai.APIError as error:
            body = error.body if isinstance(error.body, dict) else {}
            is_ours = {"message", "type", "code", "param"} <= body.keys()
            return str(body["code"]) if is_ours else f"not OpenAI's form: {error!r:.200}"


async def _chat(sdk: Any, prompt: str) -> Any:
    found = await sdk.chat.completions.create(model="big", messages=[{"role": "user", "content": prompt}])
    return found.choices[0].message.content


async def _chat_stream(sdk: Any, prompt: str) -> Any:
    stream = await sdk.chat.completions.create(model="big", messages=[{"role": "user", "content": prompt}], stream=True)
    return "".join([piece.choices[0].delta.content or "" async for piece in stream if piece.choices])


async def _response(sdk: Any, prompt: str) -> Any:
    return (await sdk.responses.create(model="big", input=prompt)).output_text


async def _response_stream(sdk: Any, prompt: str) -> Any:
    text, last = "", ""
    async for event in await sdk.responses.create(model="big", input=prompt, stream=True):
        text, last = text + (event.delta if event.type == "response.output_text.delta" else ""), event.type
    return text if last == "response.completed" else None


def make_trouble(rng: random.Random, gateways: list[GatewayProcess], keys: Path, until_s: float, seen: Counter[str]) -> None:
    """Every few seconds one of :data:`TROUBLES`, until then."""
    while time.monotonic() < until_s - 3.0:
        time.sleep(rng.uniform(1.0, 4.0))
        (kind,), gateway = rng.choices(list(TROUBLES), list(TROUBLES.values())), rng.choice(gateways)
        seen[kind] += 1
        if kind == "kill":
            gateway.kill()
        elif kind == "full disk":
            gateway.fill_disk(rng.uniform(0.5, 2.0))
        else:
            with closing(sqlite3.connect(keys, isolation_level=None, timeout=10)) as other:
                other.execute("BEGIN IMMEDIATE")
                time.sleep(rng.uniform(0.5, 2.0))
                other.execute("ROLLBACK")


def measured(options: Options) -> dict[str, Any]:
    """Run it all."""
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        provider = Provider(random.Random(rng.random()))
        (folder / "models.toml").write_text(MODELS.format(url=provider.url, key_env=KEY_ENV), encoding="utf-8")
        book = KeyBook(folder / "keys.db")
        keys = {name: book.add(name, daily_usd=usd) for name, usd in CAPS_USD.items()}
        gateways = [GatewayProcess(folder, number) for number in range(2)]
        calls, troubles = Calls(keys, gateways, random.Random(rng.random())), Counter[str]()
        until_s = time.monotonic() + options.seconds
        breaking = threading.Thread(target=make_trouble, args=(rng, gateways, book.path, until_s, troubles))
        breaking.start()
        asyncio.run(calls.run(options.callers, until_s))
        breaking.join()
        for gateway in gateways:
            gateway.stop()
        provider.stop()
        days = {day.key.name: day for day in book.today()}
        recorded = sum(1 for gateway in gateways if gateway.record.exists() for _ in read_calls([gateway.record]))
        book.close()
    dollars = {
        name: {
            "cap": CAPS_USD[name],
            "billed": provider.billed_usd[name],
            "spent": day.spent_usd,
            "reserved": day.reserved_usd,
        }
        for name, day in days.items()
    }
    found = {
        "calls": sum(calls.ends.values()), "ends": dict(calls.ends.most_common()), "troubles": dict(troubles),
        "provider_asked": provider.asked, "recorded": recorded, "slowest_s": calls.slowest_s, "usd": dollars,
        "load_average": os.getloadavg()[0], "wrong": calls.wrong,
    }  # fmt: skip
    return {**found, "breaches": breaches(found)}


def breaches(found: dict[str, Any]) -> list[str]:
    """One line for each guarantee that was broken."""
    told = [f"{len(found['wrong'])} calls ended as none may, such as {found['wrong'][0]}"] if found["wrong"] else []
    for name, usd in found["usd"].items():
        counted = usd["spent"] + usd["reserved"]
        if counted > usd["cap"] + 1e-9:
            told.append(f"key {name} has spent ${counted:.6f} of ${usd['cap']:g}")
        if usd["billed"] > counted + 1e-9:
            told.append(f"key {name} was billed ${usd['billed']:.6f}, and ${counted:.6f} is counted")
    if not found["ends"].get("answered"):
        told.append("no call was answered")
    return told


def main() -> int:
    """Print what was found; 1 if a guarantee was broken."""
    options = {
        "--seconds": (120.0, ""),
        "--callers": (16, "calls at once"),
        "--seed": (0, ""),
        "--keep": (Path, "folder for what the gateways write; by default a temporary one", {"dest": "folder"}),
    }
    return study(__doc__, options, measured, named, fails=lambda found: found["breaches"])


if __name__ == "__main__":
    sys.exit(main())
