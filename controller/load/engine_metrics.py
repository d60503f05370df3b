"""What serving engines say of their own load: SGLang and vLLM over HTTP. Blocks; meant for an ``EnginePoller``'s thread."""

from __future__ import annotations

import json
import math
import os
import re
from collections import defaultdict
from collections.abc import Callable
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

from vinelm.errors import ConfigError, VineLMError

_SAMPLE = re.compile(
    r"^(vllm:num_requests_(?:running|waiting|swapped)|sglang[:_]num_(?:running|queue)_reqs)(?:\{(.*)\})?[ \t]+(\S+)",
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_SAME_REQUESTS = {"tp_rank", "pp_rank", "moe_ep_rank"}
"""Workers that differ in these alone run the same requests together."""


def sglang_requests(base_url: str, *, timeout_s: float = 2.0, api_key_env: str | None = None) -> Callable[[], float]:
    """A function that asks an SGLang server how many requests it runs and holds waiting, over all its workers.

    Tries ``/v1/loads`` (0.5.9 and later), then ``/get_load``, then ``/metrics``, and keeps to the first that the server knows.
    ``api_key_env`` names the environment variable that holds the server's ``--api-key``. The function raises
    :class:`~vinelm.errors.VineLMError` where the server is not reached, refuses, or says no such number.
    """
    get = _getter(base_url, timeout_s, api_key_env)
    ways: tuple[Callable[[], float], ...] = (
        lambda: requests_in_loads(_json(get("/v1/loads?include=core"))),
        lambda: requests_in_loads(_json(get("/get_load"))),
        lambda: requests_in_metrics(get("/metrics")),
    )
    known: Callable[[], float] | None = None

    def ask() -> float:
        nonlocal known
        if known is not None:
            try:
                return known()
            except _UnknownPage:  # another version of the server, since
                known = None
        for way in ways[:-1]:
            try:
                count = way()
            except _UnknownPage:
                continue
            known = way
            return count
        count = ways[-1]()
        known = ways[-1]
        return count

    return ask


def vllm_requests(base_url: str, *, timeout_s: float = 2.0, api_key_env: str | None = None) -> Callable[[], float]:
    """A function that asks a vLLM server (``/metrics``) how many requests it runs and holds waiting.

    Settings and errors are those of :func:`sglang_requests`.
    """
    get = _getter(base_url, timeout_s, api_key_env)
    return lambda: requests_in_metrics(get("/metrics"))


def requests_in_metrics(text: str) -> float:
    """Running and waiting requests in a page of Prometheus metrics of vLLM or SGLang.

    Summed over models, engines and data-parallel workers. Tensor- and pipeline-parallel workers of one engine report the same
    requests each, and SGLang with priority scheduling a total (``priority=""``) beside its parts: these count once.
    """
    found: dict[tuple[str, frozenset[tuple[str, str]]], dict[str, float]] = defaultdict(dict)
    for name, text_of_labels, value in _SAMPLE.findall(text):
        labels = dict(_LABEL.findall(text_of_labels))
        priority = labels.pop("priority", "")
        counts = found[name, frozenset(item for item in labels.items() if item[0] not in _SAME_REQUESTS)]
        counts[priority] = max(counts.get(priority, 0.0), _count(value))
    if not found:
        raise VineLMError("the engine's metrics name no running or waiting requests: start it with metrics enabled")
    return sum(counts[""] if "" in counts else sum(counts.values()) for counts in found.values())


def requests_in_loads(plain: Any) -> float:
    """Running and waiting requests in SGLang's load report: one worker's record, a list of them, or an object with ``loads``.

    A record has ``num_running_reqs`` and ``num_waiting_reqs``, or (``/get_load``) ``num_reqs``, which counts both.
    """
    records = plain.get("loads") or [plain] if isinstance(plain, dict) else plain
    counts: list[float] = []
    for record in records if isinstance(records, list) else []:
        if not isinstance(record, dict):
            continue
        names = ("num_running_reqs", "num_waiting_reqs") if "num_running_reqs" in record else ("num_reqs",)
        counts += [_count(record[name]) for name in names if name in record]
    if not counts:
        raise VineLMError("the engine's load report names no requests: is it an SGLang server?")
    return sum(counts)


class _UnknownPage(VineLMError):
    """The server does not have that page."""


def _count(value: Any) -> float:
    try:
        count = float(value)
    except (TypeError, ValueError):
        count = math.nan
    if not 0.0 <= count < math.inf:
        raise VineLMError(f"the engine reports {str(value)[:20]!r} requests: that is no number of them")
    return count


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise VineLMError("the engine's load report is no JSON: is it an SGLang server?") from None


def _getter(base_url: str, timeout_s: float, api_key_env: str | None) -> Callable[[str], str]:
    """A function from a page to its text. Its errors name the server without what its address may hold of a key."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"the engine's address {base_url.rpartition('@')[2]!r} is no URL: give it as http://host:port")
    root = base_url.rstrip("/").removesuffix("/v1")
    server = parts.netloc.rpartition("@")[2]
    headers = {}
    if api_key_env is not None:
        key = os.environ.get(api_key_env, "").strip()
        if not key:
            raise ConfigError(f"engine {server}: environment variable {api_key_env} is not set: put the API key there")
        headers["Authorization"] = f"Bearer {key}"

    def get(page: str) -> str:
        where = f"{server}{page.partition('?')[0]}"
        try:
            with urlopen(HttpRequest(root + page, headers=headers), timeout=timeout_s) as answer:
                body: bytes = answer.read()
        except HTTPError as error:
            with error:
                if error.code in (404, 405, 501):
                    raise _UnknownPage(f"{where}: the engine does not have this page ({error.code})") from None
                if error.code in (401, 403):
                    raise VineLMError(f"{where}: the engine refused ({error.code}): name its key in api_key_env") from None
                raise VineLMError(f"{where}: the engine answered {error.code}") from None
        except (URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", None)
            raise VineLMError(f"{where}: no answer ({type(reason or error).__name__})") from None
        return body.decode("utf-8", "replace")

    return get
