"""What serving engines say of their own load: SGLang and vLLM over HTTP. Blocks; meant for an ``EnginePoller``'s thread."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from vinelm.errors import ConfigError, VineLMError

_RUNNING_AND_WAITING = re.compile(
    r"^(?:vllm:num_requests_(?:running|waiting)|sglang[:_]num_(?:running|queue)_reqs)(?:\{[^}]*\})?\s+([0-9.eE+-]+)",
    re.MULTILINE,
)


def sglang_requests(base_url: str, *, timeout_s: float = 2.0) -> Callable[[], float]:
    """A function that asks an SGLang server how many requests it runs and holds waiting, over all its workers.

    Tries ``/v1/loads`` (0.5.9 and later), then ``/get_load``, then ``/metrics``, and keeps to the first that answers.
    """
    root = _checked(base_url)
    ways: list[Callable[[], float]] = [
        lambda: _sum_of(_json(f"{root}/v1/loads?include=core", timeout_s)),
        lambda: _sum_of(_json(f"{root}/get_load", timeout_s)),
        lambda: requests_in_metrics(_text(f"{root}/metrics", timeout_s)),
    ]

    def ask() -> float:
        while len(ways) > 1:
            try:
                return ways[0]()
            except HTTPError as error:
                if error.code not in (404, 405, 501):
                    raise
                ways.pop(0)  # this version does not know it
        return ways[0]()

    return ask


def vllm_requests(base_url: str, *, timeout_s: float = 2.0) -> Callable[[], float]:
    """A function that asks a vLLM server (``/metrics``) how many requests it runs and holds waiting."""
    root = _checked(base_url)
    return lambda: requests_in_metrics(_text(f"{root}/metrics", timeout_s))


def requests_in_metrics(text: str) -> float:
    """Running and waiting requests in a page of Prometheus metrics, over all its label sets."""
    found = _RUNNING_AND_WAITING.findall(text)
    if not found:
        raise VineLMError("the engine's metrics name no running or waiting requests: start it with metrics enabled")
    return sum(map(float, found))


def _sum_of(plain: Any) -> float:
    """Running and waiting requests of one worker's record, a list of them, or an object that holds the list."""
    records: Iterable[Any] = plain if isinstance(plain, list) else plain.get("loads") or [plain]
    total, is_known = 0.0, False
    for record in records:
        core = record.get("core", record)
        if "num_reqs" in core and "num_running_reqs" not in core:
            total, is_known = total + float(core["num_reqs"]), True
            continue
        for name in ("num_running_reqs", "num_waiting_reqs"):
            if name in core:
                total, is_known = total + float(core[name]), True
    if not is_known:
        raise VineLMError("the engine's load report names no requests: is it an SGLang server?")
    return total


def _checked(base_url: str) -> str:
    if not base_url.startswith(("http://", "https://")):
        raise ConfigError(f"the engine's address {base_url!r} is no URL: give it as http://host:port")
    return base_url.rstrip("/").removesuffix("/v1")


def _text(url: str, timeout_s: float) -> str:
    with urlopen(url, timeout=timeout_s) as answer:
        body: bytes = answer.read()
    return body.decode("utf-8", "replace")


def _json(url: str, timeout_s: float) -> Any:
    return json.loads(_text(url, timeout_s))
