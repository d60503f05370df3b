"""Odd objectives and bodies against the example service, really served over HTTP: each is refused with 400 and one line."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[3]
CASES = 600
EXPECTED = (200, 400, 413, 429)
"""What a caller may be told: an answer, or that the request was not one."""
FIELDS = (
    "maximize", "minimize", "min_accuracy", "max_cost_usd", "max_latency_s", "cost_budget", "risk", "z", "late_weight",
    "confidence", "on_infeasible", "shape", "__class__", "",
)  # fmt: skip
DEEP = "[" * 100_000 + "]" * 100_000
VALUES = (
    "null", "true", "false", "0", "-0.0", "1", "-1", "0.5", "1e-320", "1e308", "1e999", "-1e999", "NaN", "Infinity",
    "-Infinity",
    "9" * 400, "-" + "9" * 400, '""', '"1"', '"nan"', '"accuracy"', '"cost"', '"latency"', '"ACCURACY"', '"\\ud800"',
    '"\\u0000"',
    '"' + "a" * 10_000 + '"', "[]", "[1]", "[[[[]]]]", "{}", '{"a": 1}', '{"maximize": "accuracy"}', '"per_request"', '"dp"',
    '"mean+sd"', '"raise"', '"population"',
)  # fmt: skip
"""As JSON texts: some can only be written so."""
BODIES = (
    b"", b" ", b"null", b"[]", b"1", b'"a"', b"{", b'{"id": 1}', b'{"id": "\\ud800"}', b'{"id": []}', b'{"data_id": []}',
    b'{"data_id": {}}', b'{"tenant": 5, "data_id": "DATA"}', b'{"tenant": ["a"], "data_id": "DATA"}',
    b'{"conversation": {"a": 1}, "data_id": "DATA"}', b'{"objective": 5, "data_id": "DATA"}',
    b'{"objective": [], "data_id": "DATA"}',
    b'{"objective": "accuracy", "data_id": "DATA"}', b'{"objective": true, "data_id": "DATA"}', b"\xff\xfe", b"{\x00}",
    DEEP.encode(), b'{"objective": ' + DEEP.encode() + b"}", b'{"data": {"question": 5}, "data_id": "DATA"}',
)  # fmt: skip


def run(progress: Callable[[str], None]) -> dict[str, Any]:
    """Attack the service; what got through is each answer that is no expected one."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "app"
        shutil.copytree(ROOT / "docs" / "examples", home)
        data_id = _make_trie(home)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, str(ROOT / "deploy" / "service.py"), "my_app:workflow"]
        command += ["--models", "models.toml", "--trie", "my-app.vine", "--port", str(port)]
        process = subprocess.Popen(command, cwd=home, env={**os.environ, "PYTHONPATH": str(home)}, stdout=subprocess.DEVNULL)
        try:
            return _attack(f"http://127.0.0.1:{port}", data_id, process, progress)
        finally:
            process.terminate()
            process.wait(30)


def _make_trie(home: Path) -> str:
    """Profile and estimate the simulated example; return the id of one of its requests."""
    code = (
        "import vinelm; from my_app import workflow\n"
        "vinelm.profile(workflow, 'models.toml', 'my-app.db', budget_calls=120)\n"
        "vinelm.save_trie('my-app.vine', vinelm.estimate('my-app.db', max_error=None))\n"
        "print(workflow.requests[0].id)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=home, capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]


def _attack(url: str, data_id: str, process: subprocess.Popen[bytes], progress: Callable[[str], None]) -> dict[str, Any]:
    statuses: Counter[int] = Counter()
    through: list[str] = []
    with httpx.Client(base_url=url, timeout=30.0) as client:
        _wait(client, process)
        cases = list(itertools.chain(_bodies(data_id), _objectives(data_id)))
        for number, body in enumerate(cases):
            if number % 100 == 0:
                progress(f"{number} of {len(cases)}")
            told = client.post("/ask", content=body, headers={"Content-Type": "application/json"})
            statuses[told.status_code] += 1
            error = told.json().get("error", "") if told.status_code != 200 else ""
            if told.status_code not in EXPECTED or "\n" in error or "Traceback" in error:
                through.append(f"{told.status_code} {error[:80]!r} for {body[:100]!r}")
        healthy = client.post("/ask", json={"data_id": data_id}).status_code
    if healthy != 200:
        through.append(f"an ordinary request is answered with {healthy} afterwards")
    return {"attempts": len(cases), "through": through, "by_status": {str(code): n for code, n in sorted(statuses.items())}}


def _wait(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60.0
    while True:
        try:
            client.get("/health")
        except httpx.TransportError:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the service did not start") from None
            time.sleep(0.1)
        else:
            return


def _bodies(data_id: str) -> Iterator[bytes]:
    for body in BODIES:
        yield body.replace(b"DATA", data_id.encode())


def _objectives(data_id: str) -> Iterator[bytes]:
    """Objectives with each odd value in each field, then with several odd fields."""
    rng = random.Random(0)
    for name, value in itertools.product(FIELDS, VALUES):
        target = "" if name in ("maximize", "minimize") else '"maximize": "accuracy", '
        yield _asked(data_id, f"{{{target}{json.dumps(name)}: {value}}}")
    for _ in range(max(CASES - len(FIELDS) * len(VALUES), 100)):
        chosen = rng.sample(FIELDS, rng.randint(2, 5))
        yield _asked(data_id, "{" + ", ".join(f"{json.dumps(name)}: {rng.choice(VALUES)}" for name in chosen) + "}")


def _asked(data_id: str, objective: str) -> bytes:
    return f'{{"data_id": {json.dumps(data_id)}, "objective": {objective}}}'.encode("utf-8", "surrogatepass")
