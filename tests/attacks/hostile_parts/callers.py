"""Callers of the example service who use the names of others, and states of a store that name functions."""

from __future__ import annotations

import inspect
import itertools
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import ormsgpack

from hostile_parts.service import ROOT, _make_trie, _wait
from vinelm.errors import StoreError
from vinelm.profiler.execution.state_types import StateSerializer
from vinelm.requests.names import scoped
from vinelm.traces import ObservationStore

TENANTS = {"acme": "0123456789abcdef-acme", "mallory": "0123456789abcdef-mallory"}
NAMES = ("r1", "r2", "a/b", "[", '["acme", "r1"]', "é" * 50, "1", "true")
LOADED = ("os", "subprocess", "builtins", "shutil", "pickle", "ctypes", "importlib", "runpy", "socket", "threading", "sys")
WORDS: tuple[object, ...] = (True, False, 1, 0.5, None, [], {}, "yes", -1, 2, "nan")


def run(progress: Callable[[str], None]) -> dict[str, Any]:
    """What got through is a word of another tenant that counts, an answer that is no expected one, a function that is data."""
    attempts, through = _states()
    progress(f"{attempts} states")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "app"
        shutil.copytree(ROOT / "docs" / "examples", home)
        data_id = _make_trie(home)
        (home / "tokens.toml").write_text("".join(f'{name} = "{token}"\n' for name, token in TENANTS.items()), encoding="utf-8")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, str(ROOT / "deploy" / "service.py"), "my_app:workflow", "--models", "models.toml"]
        command += ["--trie", "my-app.vine", "--port", str(port), "--tokens", "tokens.toml", "--evidence", "served.db"]
        process = subprocess.Popen(command, cwd=home, env={**os.environ, "PYTHONPATH": str(home)}, stdout=subprocess.DEVNULL)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30.0) as client:
                _wait(client, process)
                asked, wrong = _attack(client, data_id)
        finally:
            process.terminate()
            process.wait(60)
        with ObservationStore.open(home / "served.db") as store:
            said = {row.request_id: row.success for row in store.observations() if row.failure is None}
    changed = [f"acme's word on {name!r} does not stand" for name in NAMES if said.get(scoped(name, "acme")) is not True]
    return {"attempts": attempts + asked, "through": [*through, *wrong, *changed]}


def _attack(client: httpx.Client, data_id: str) -> tuple[int, list[str]]:
    rng, wrong, count = random.Random(0), list[str](), 0

    def post(path: str, body: object, token: str, expected: tuple[int, ...]) -> None:
        nonlocal count
        count += 1
        told = client.post(path, json=body, headers={"Authorization": f"Bearer {token}"})
        if told.status_code not in expected or "\n" in told.text.strip():
            wrong.append(f"{path} {str(body)[:80]}: {told.status_code}")

    for name in NAMES:
        post("/ask", {"id": name, "data_id": data_id, "conversation": name}, TENANTS["acme"], (200,))
        post("/feedback", {"id": name, "success": True}, TENANTS["acme"], (200,))
    for name, word in itertools.product((*NAMES, *(scoped(one, "acme") for one in NAMES)), WORDS):
        post("/feedback", {"id": name, "success": word}, TENANTS["mallory"], (200, 400))
        post("/feedback", {"id": name, "success": word, "tenant": "acme", "caller": "acme"}, TENANTS["mallory"], (200, 400))
        guessed = "".join(rng.sample(TENANTS["acme"], len(TENANTS["acme"])))
        post("/feedback", {"id": name, "success": word}, guessed, (401,))
    for name in NAMES:
        post("/ask", {"id": name, "data_id": data_id, "tenant": "acme"}, TENANTS["mallory"], (400,))
        post("/ask", {"id": name, "data_id": data_id, "conversation": scoped(name, "acme")}, TENANTS["mallory"], (200,))
    return count, wrong


def _states() -> tuple[int, list[str]]:
    """States that name each function of some modules of Python; only their names are looked at, none is called."""
    serializer, through, count = StateSerializer(), list[str](), 0
    for (module, name), code in itertools.product(_functions(), range(6)):
        count += 1
        # Its own arguments cannot be read, so that it is not called even if it is let through.
        content = ormsgpack.packb({"a": [ormsgpack.Ext(code, ormsgpack.packb((module, name, {"no such": "argument"})))]})
        try:
            serializer.loads_typed(("msgpack", content))
        except StoreError:
            continue
        through.append(f"{module}.{name} by extension {code}")
    return count, through


def _functions() -> Iterator[tuple[str, str]]:
    for module in LOADED:
        for name, found in vars(import_module(module)).items():
            if inspect.isfunction(found) or inspect.isbuiltin(found):
                yield module, name
