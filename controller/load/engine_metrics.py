"""Asks SGLang and vLLM servers over HTTP for their number of requests.

The calls block, so they belong in the threads of ``EnginePoller``.
"""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from http.client import HTTPException, IncompleteRead
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

from vinelm.errors import ConfigError, VineLMError
from vinelm.extras import required_extra

if TYPE_CHECKING:
    from prometheus_client import Metric

MOST_BYTES = 16 * 2**20
"""Largest page that is read from a server."""
MOST_LINE = 4096
"""Longest line of a metrics page that is parsed."""
_GAUGES = (
    *(f"vllm:num_requests_{state}" for state in ("running", "waiting", "swapped")),
    *(f"llamacpp:requests_{state}" for state in ("processing", "deferred")),
    *(f"sglang{separator}num_{state}_reqs" for separator in ":_" for state in ("running", "queue")),
)
_SAME_REQUESTS = {"tp_rank", "pp_rank", "moe_ep_rank"}
"""Workers that differ only in these labels run the same requests together."""


def sglang_requests(base_url: str, *, timeout_s: float = 2.0, api_key_env: str | None = None) -> Callable[[], float]:
    """Return a function that asks an SGLang server for the number of running and waiting requests of all its workers.

    The function tries ``/v1/loads`` (SGLang 0.5.9 and later), ``/get_load`` and ``/metrics`` and keeps using the first page
    that the server has. It raises :class:`~vinelm.errors.VineLMError` if the server cannot be reached, returns an error, or
    reports no number.

    Args:
        base_url: The server's address, such as ``http://host:port``.
        timeout_s: The maximum number of seconds to wait for each piece of an answer.
        api_key_env: The environment variable that holds the server's API key.

    Raises:
        ConfigError: The address is not a URL, or the variable is not set.
    """
    get = _getter(base_url, timeout_s, api_key_env)
    ways: tuple[Callable[[], float], ...] = (
        lambda: requests_in_loads(_json(get("/v1/loads?include=core"))),
        lambda: requests_in_loads(_json(get("/get_load"))),
        lambda: requests_in_metrics(get("/metrics")),
    )
    working: Callable[[], float] | None = None

    def ask() -> float:
        nonlocal working
        if working is not None:
            try:
                return working()
            except _UnknownPage:  # the server was replaced by another version
                working = None
        for way in ways[:-1]:
            try:
                count = way()
            except _UnknownPage:
                continue
            working = way
            return count
        count = ways[-1]()
        working = ways[-1]
        return count

    return ask


def vllm_requests(base_url: str, *, timeout_s: float = 2.0, api_key_env: str | None = None) -> Callable[[], float]:
    """Return a function that asks a vLLM or llama.cpp server (``/metrics``) for its number of running and waiting requests.

    Needs the extra ``metrics``. Arguments and errors are the same as for :func:`sglang_requests`.
    """
    _prometheus_parser()  # a missing extra is reported here rather than in a thread
    get = _getter(base_url, timeout_s, api_key_env)
    return lambda: requests_in_metrics(get("/metrics"))


def requests_in_metrics(text: str) -> float:
    """Count the running and waiting requests in a page of Prometheus metrics of vLLM, SGLang or llama.cpp.

    Counts are summed over models, engines and data-parallel workers. Tensor- and pipeline-parallel workers of one engine
    all report the same requests, and SGLang with priority scheduling reports a total (``priority=""``) as well as its
    parts; such duplicates are counted once. Needs the extra ``metrics``.

    Raises:
        VineLMError: The page is malformed or lacks these numbers.
        ConfigError: The package ``prometheus-client`` is not installed.
    """
    found: dict[tuple[str, frozenset[tuple[str, str]]], dict[str, float]] = defaultdict(dict)
    for name, labels, value in _samples(text):
        priority = labels.pop("priority", "")
        counts = found[name, frozenset(item for item in labels.items() if item[0] not in _SAME_REQUESTS)]
        counts[priority] = max(counts.get(priority, 0.0), _count(value))
    if not found:
        raise VineLMError("the engine's metrics name no running or waiting requests: start it with metrics enabled")
    return sum(counts[""] if "" in counts else sum(counts.values()) for counts in found.values())


def _samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    """Return the name, labels and value of each sample of the gauges in ``_GAUGES``; other lines of ``text`` are ignored."""
    lines = [line for line in text.split("\n") if line.startswith(_GAUGES)]
    if any(len(line) > MOST_LINE for line in lines):
        raise VineLMError(f"the engine's metrics have a line of more than {MOST_LINE:,} characters: is it an engine?")
    try:
        families = list(_prometheus_parser()("\n".join(lines)))
    except (ValueError, IndexError):
        raise VineLMError("the engine's metrics are not in the Prometheus text format: is it an engine?") from None
    samples = (sample for family in families for sample in family.samples)
    return [(sample.name, dict(sample.labels), sample.value) for sample in samples if sample.name in _GAUGES]


def _prometheus_parser() -> Callable[[str], Iterable[Metric]]:
    with required_extra("metrics", "reading an engine's /metrics page"):
        from prometheus_client.parser import text_string_to_metric_families
    return text_string_to_metric_families


def requests_in_loads(plain: Any) -> float:
    """Count the running and waiting requests in SGLang's load report.

    Args:
        plain: The parsed JSON: one worker's record, a list of records, or an object with the list ``loads``. A record has
            ``num_running_reqs`` and ``num_waiting_reqs``, or (``/get_load``) ``num_reqs``, which counts both.

    Raises:
        VineLMError: The report lacks these numbers.
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
    """Raised if the server does not have the page."""


def _count(value: Any) -> float:
    try:
        count = float(value)
    except (TypeError, ValueError, OverflowError):
        count = math.nan
    if not 0.0 <= count < math.inf:
        raise VineLMError(f"the engine reports {str(value)[:20]!r} requests: that is not a valid number")
    return count


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise VineLMError("the engine's load report is not JSON: is it an SGLang server?") from None


def _getter(base_url: str, timeout_s: float, api_key_env: str | None) -> Callable[[str], str]:
    """Return a function that fetches a page of the server, given its path, and returns the page's text.

    Its errors name the server, but not the credentials in ``base_url``.
    """
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"the engine's address {base_url.rpartition('@')[2]!r} is not a URL: give it as http://host:port")
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
                body: bytes = answer.read(MOST_BYTES + 1)
                if answer.length and len(body) <= MOST_BYTES:  # with a limit, read() does not report a short answer itself
                    raise IncompleteRead(body, answer.length)
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
        if len(body) > MOST_BYTES:
            raise VineLMError(f"{where}: the page is larger than {MOST_BYTES // 2**20} MiB: is it an engine?")
        return body.decode("utf-8", "replace")

    return get
