"""Caches answers of served calls, for ``vine.stage(cache=...)``, so that equal calls are made only once.

Two calls are equal by the same rules as in a batch; see :mod:`vinelm.backends.remote.equal_calls`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from langchain_core.caches import BaseCache, InMemoryCache
from langchain_core.outputs import Generation

from vinelm.backends.remote.equal_calls import EqualCalls
from vinelm.backends.remote.inner import InnerChat
from vinelm.backends.remote.meter import ModelRequest
from vinelm.catalog import Model
from vinelm.errors import ConfigError

AGE_S = 7 * 86_400.0
"""The default age after which an answer is no longer used."""
ANSWERS = 10_000
"""How many answers a cache in memory keeps."""
LEFT_ALONE_S = 30.0
"""Seconds for which a cache that has failed is not used."""
LEAST_ASKED = 50
"""How many calls of a stage and model are needed before its hit rate is known."""
FORGET = 1_000
"""Number of calls after which earlier calls count half."""
_KIND = "vinelm equal calls"
_LOG = logging.getLogger(__name__)

Rates = Mapping[tuple[str, str], float]
"""The share of the calls of a stage and model that the cache answers, in [0, 1)."""


class CallCache:
    """Keeps answers to stages' calls, and reuses them for equal calls. Thread-safe.

    A repeatable call (temperature 0, or a ``deterministic`` stage) is looked up by its model, messages, tools and settings. An
    answer from the cache costs $0. If the cache fails, the model is called. Lookups run in the call's thread or event loop, so
    give the client of a remote cache a timeout.

    Args:
        place: where answers are kept: any of LangChain's caches, such as a cache that several processes share. None keeps the
            latest 10,000 answers in this process.
        age_s: maximum age of an answer in seconds, > 0.
        across_tenants: whether a call may get the answer to another tenant's call. By default tenants share no answers.

    Raises:
        ConfigError: ``place`` is not one of LangChain's caches, or ``age_s`` is not above 0.
    """

    def __init__(self, place: BaseCache | None = None, *, age_s: float = AGE_S, across_tenants: bool = False) -> None:
        if not (place is None or isinstance(place, BaseCache)):
            raise ConfigError(f"the cache is a {type(place).__name__}: give one of LangChain's, such as InMemoryCache()")
        if not age_s > 0.0:
            raise ConfigError(f"age_s is {age_s!r}: give seconds above 0")
        self._place = InMemoryCache(maxsize=ANSWERS) if place is None else place
        self._age_s, self.across_tenants = age_s, across_tenants
        self._lock = threading.Lock()
        # LangChain's in-memory cache evicts without a lock: two threads could drop the same answer, and the cache would grow
        # from then on.
        is_in_memory = isinstance(self._place, InMemoryCache)
        self._writes: AbstractContextManager[Any] = threading.Lock() if is_in_memory else nullcontext()
        self._counts: dict[tuple[str, str], list[float]] = {}
        self._alone_until_s = -math.inf

    @classmethod
    def of(cls, cache: CallCache | BaseCache) -> CallCache:
        """Return ``cache`` itself if it is a :class:`CallCache`, or a :class:`CallCache` over one of LangChain's caches. Raise
        :class:`ConfigError` for anything else.
        """
        return cache if isinstance(cache, CallCache) else cls(cache)

    # -- what is kept: vinelm.backends.remote.equal_calls.KeepsCalls --------------------------------------------------

    def find(self, digest: str) -> str | None:
        """Return the cached answer to a call; None if it is missing or too old, or the cache fails."""
        if time.monotonic() < self._alone_until_s:
            return None
        said: str | None = None
        with self._surviving():
            found = self._place.lookup(digest, _KIND)
            told = json.loads(found[0].text) if found else None
            if told is not None and time.time() - self._age_s <= told["kept_s"]:
                said = told["said"]
        return said

    def keep(self, digest: str, said: str) -> None:
        """Store the answer of a call under the call's digest; ``said`` is the answer as text (see :func:`kept_text`).

        If the cache fails, nothing is stored.
        """
        if time.monotonic() < self._alone_until_s:
            return
        with self._surviving(), self._writes:
            self._place.update(digest, _KIND, [Generation(text=json.dumps({"kept_s": time.time(), "said": said}))])

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        """Catch and log any error that the cache raises in the block, and stop using the cache for a while."""
        try:
            yield
        except Exception as error:
            self._fails(error)

    def _fails(self, error: Exception) -> None:
        with self._lock:
            self._alone_until_s = time.monotonic() + LEFT_ALONE_S
        # The error's text may contain a key or an answer.
        _LOG.warning("the cache of calls failed (%s): calls are made for %.0f s", type(error).__name__, LEFT_ALONE_S)

    # -- what the cache saves ----------------------------------------------------------------------------------------

    def count(self, where: tuple[str, str], *, asked: int = 0, hits: int = 0) -> None:
        """Add ``asked`` calls, of which the cache answered ``hits``, to the counts of ``where``, a pair (stage, model).

        Old calls count less: both counts are halved whenever the number of calls reaches :data:`FORGET`.
        """
        with self._lock:
            counts = self._counts.setdefault(where, [0.0, 0.0])
            counts[0] += asked
            counts[1] += hits
            if counts[0] >= FORGET:
                counts[:] = [one / 2 for one in counts]

    @property
    def rates(self) -> Rates:
        """Return the share of calls answered from this cache, by stage and model, for each pair with at least 50 calls."""
        with self._lock:
            return {where: min(hits / asked, 0.99) for where, (asked, hits) in self._counts.items() if asked >= LEAST_ASKED}


class CachedCalls:
    """Finds the answers to equal calls in a cache, for one execution of a step and only among calls of the same tenant.

    Works like :class:`EqualCalls`. All tenants share answers if the cache allows that (``across_tenants``).

    Args:
        equal: the :class:`EqualCalls` object that stores its answers in a :class:`CallCache`.
        tenant: the request's tenant; empty without a tenant.
    """

    __slots__ = ("_cache", "_equal", "_tenant", "_where")

    def __init__(self, equal: EqualCalls, tenant: str) -> None:
        cache = equal.kept
        assert isinstance(cache, CallCache)
        self._equal, self._cache, self._tenant = equal, cache, "" if cache.across_tenants else tenant
        self._where = ("", "")

    def digest(self, stage: str, model: Model, inner: InnerChat, request: ModelRequest) -> str | None:
        """Return the digest under which the answer to this tenant's call is stored; None if the call is not repeatable."""
        found = self._equal.digest(stage, model, inner, request)
        if found is None:
            return None
        self._where = (stage, model.name)
        self._cache.count(self._where, asked=1)
        # The tenant's name is a part of the digest, so no tenant can name itself into another's answers.
        return hashlib.sha256(json.dumps([self._tenant, found]).encode()).hexdigest()[:40] if self._tenant else found

    def ask(self, digest: str, *, leads: bool) -> Future[str | None]:
        """Return a future of the answer to the call ``digest``; see :meth:`EqualCalls.ask`."""
        future = self._equal.ask(digest, leads=leads)
        future.add_done_callback(self._note)
        return future

    def end(self, digest: str, said: str | None) -> None:
        """Store the answer of a call that was made, and pass it to the equal calls that wait for it; see
        :meth:`EqualCalls.end`.
        """
        self._equal.end(digest, said)

    def _note(self, future: Future[Any]) -> None:
        if not future.cancelled() and future.exception() is None and future.result() is not None:
            self._cache.count(self._where, hits=1)
