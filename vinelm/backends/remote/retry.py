"""Decides for all remote providers whether to retry a failed attempt, and how long to wait. Built on tenacity.

It also decides whether the failed attempt may be billed.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, TypeAlias

from tenacity import AsyncRetrying, RetryCallState, Retrying, wait_random_exponential

from vinelm.backends.settings import ProviderSettings
from vinelm.errors import ConfigError, FailureKind

RETRIES: Mapping[FailureKind, int] = MappingProxyType({"rate_limit": 5, "server": 3, "timeout": 1, "malformed": 1})
"""Number of retries by kind of failure. Other kinds are not retried: they would fail again."""
BILLED_ATTEMPTS = 2
"""A call is not retried after this many attempts that the provider may have billed."""
SETTINGS = ("max_retries", "backoff_s", "max_wait_s")
"""Keys of a ``[backend.NAME]`` table that :meth:`RetryPolicy.of` reads."""
_UNSENT = frozenset(
    {
        "ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "LocalProtocolError", "ProxyError",
        "ClientConnectorError", "ConnectTimeoutError", "EndpointConnectionError", "NameResolutionError", "NewConnectionError",
        "ProxyConnectionError", "ConnectionRefusedError", "gaierror", "SSLCertVerificationError",
    }
)  # fmt: skip
"""Errors raised before anything of a request is sent, by httpx, urllib3, botocore, aiohttp and the standard library."""
_WORKED_ON = (408, 424, 499)
"""Statuses 4xx after which a server may have worked on the request."""
_TURNED_DOWN = (501, 505, 529)
"""Statuses 5xx with which a server refuses a request before working on it. 503 also counts if the API itself sent it."""
_MOST_LINKS = 32


class AttemptFailed(Exception):
    """One attempt of a call failed. The message contains neither text of the prompt or response nor a key.

    Attributes:
        kind: The type of the failure.
        detail: The message.
        retry_after_s: Number of seconds that the server asked to wait; None if it did not ask.
        is_final: Whether all further attempts would fail.
        may_be_billed: False only if the request certainly costs nothing: it was not sent, or the server refused it.
    """

    def __init__(
        self,
        kind: FailureKind,
        detail: str,
        *,
        retry_after_s: float | None = None,
        is_final: bool = False,
        may_be_billed: bool = True,
    ) -> None:
        super().__init__(detail)
        self.kind: FailureKind = kind
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.is_final = is_final
        self.may_be_billed = may_be_billed


@dataclass(frozen=True)
class RetryPolicy:
    """The rules for retries: exponential backoff with full jitter, starting at ``backoff_s`` seconds. A server's
    ``Retry-After`` header sets the minimum wait.

    If the server asks to wait longer than ``max_wait_s``, the call fails at once. The number of retries for each type of
    failure is in :data:`RETRIES`, but at most ``max_retries``.
    """

    max_retries: int = 5
    backoff_s: float = 0.5
    max_wait_s: float = 60.0

    @classmethod
    def of(cls, settings: ProviderSettings) -> RetryPolicy:
        """Create the policy from the provider's table in the catalog. Raise :class:`ConfigError` for a value out of range."""
        policy = cls(
            settings.setting("max_retries", int, cls.max_retries),
            settings.setting("backoff_s", float, cls.backoff_s),
            settings.setting("max_wait_s", float, cls.max_wait_s),
        )
        for key in SETTINGS:
            value = getattr(policy, key)
            if not (value >= 0 and math.isfinite(value)):
                raise ConfigError(f"[backend.{settings.provider}]: {key} is {value}: it must be a finite number >= 0")
        return policy

    def may_repeat(self, failed: AttemptFailed, attempts: int, billed: int) -> bool:
        """Return whether to retry after ``attempts`` attempts, ``billed`` of which may have cost money."""
        # The reservation of a call covers two billed attempts, so that a third could exceed the cap. A server that asks for a
        # longer wait than we allow is not asked early: it would only refuse again.
        if failed.is_final or billed >= BILLED_ATTEMPTS or (failed.retry_after_s or 0.0) > self.max_wait_s:
            return False
        return attempts <= min(RETRIES.get(failed.kind, 0), self.max_retries)

    def sync(self, may_repeat: Callable[[AttemptFailed], bool], sleep: Callable[[float], None]) -> Iterator[_Attempt]:
        """Yield a context manager for each attempt of one call, as long as an attempt fails and ``may_repeat`` returns True.

        The last attempt's error is raised again. ``sleep`` waits between two attempts.
        """
        first = _First()
        yield first
        if first.error is not None:
            for attempt in Retrying(retry=_asks(may_repeat), wait=self._wait, sleep=sleep, reraise=True):
                if not first.is_told_to(attempt):
                    yield attempt

    def asynchronous(
        self, may_repeat: Callable[[AttemptFailed], bool], sleep: Callable[[float], Awaitable[None]]
    ) -> AsyncIterator[_Attempt]:
        """Yield a context manager for each attempt of one call, like :meth:`sync`; ``sleep`` does not block the event loop."""
        return _Attempts(lambda: AsyncRetrying(retry=_asks(may_repeat), wait=self._wait, sleep=sleep, reraise=True))

    def _wait(self, state: RetryCallState) -> float:
        jitter_s = wait_random_exponential(multiplier=self.backoff_s, max=self.max_wait_s)(state)
        failed = state.outcome.exception() if state.outcome is not None else None
        asked_s = failed.retry_after_s if isinstance(failed, AttemptFailed) and failed.retry_after_s else 0.0
        # Jitter is added to the time that the server asked for, or all callers that it refused together would come back
        # together.
        return min(asked_s + jitter_s, self.max_wait_s) if asked_s else jitter_s


_Attempt: TypeAlias = AbstractContextManager[bool | None]


class _First(AbstractContextManager[bool]):
    """The first attempt of a call, as a context manager. It bypasses tenacity, the retry library, because most calls need only
    one attempt.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._is_told = False

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.error = error
        return error is not None

    def is_told_to(self, attempt: AbstractContextManager[Any]) -> bool:
        """If this first attempt has failed, report its failure to tenacity, once; return whether it was reported now.

        ``attempt`` is the attempt that tenacity has started. If the result is True, ``attempt`` has ended with the reported
        failure, and the caller must not send a request for it. If the result is False, the caller must send the request.
        """
        if self._is_told or self.error is None:
            return False
        self._is_told = True
        attempt.__exit__(type(self.error), self.error, self.error.__traceback__)
        return True


class _Attempts:
    """An asynchronous iterator over the attempts of one call. Not a generator, since a generator that is abandoned midway would
    have to be closed.
    """

    def __init__(self, make: Callable[[], AsyncRetrying]) -> None:
        self._make = make
        self._first: _First | None = None
        self._later: AsyncIterator[AbstractContextManager[Any]] | None = None

    def __aiter__(self) -> _Attempts:
        return self

    async def __anext__(self) -> _Attempt:
        if self._first is None:
            self._first = _First()
            return self._first
        if self._first.error is None:
            raise StopAsyncIteration
        if self._later is None:
            self._later = aiter(self._make())
        attempt = await anext(self._later)
        return await anext(self._later) if self._first.is_told_to(attempt) else attempt


def _asks(may_repeat: Callable[[AttemptFailed], bool]) -> Callable[[RetryCallState], bool]:
    def decide(state: RetryCallState) -> bool:
        failed = state.outcome.exception() if state.outcome is not None else None
        return isinstance(failed, AttemptFailed) and may_repeat(failed)

    return decide


def retry_after_s(headers: Mapping[str, str], *, now: Callable[[], float] = time.time) -> float | None:
    """Return the seconds that response headers ask to wait (RFC 9110 §10.2.3, or ``retry-after-ms``); None if no header asks.

    Reads ``headers`` by lower-case names. A date in the past gives 0.
    """
    for name, per_second in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / per_second
        except ValueError:
            continue
        return max(seconds, 0.0) if math.isfinite(seconds) else None
    try:
        return max(parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - now(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None


def was_sent(error: BaseException) -> bool:
    """Return whether any part of the request may have reached the server. It is False if the address lookup, the connection or
    the TLS handshake failed.
    """
    return not any(base.__name__ in _UNSENT for link in _chain(error) for base in type(link).__mro__)


def status_may_be_billed(status: object, *, is_api_error: bool = True) -> bool:
    """Return whether a response with this HTTP status may be billed.

    ``is_api_error``: the body is an error of the API, rather than a page that any gateway on the way could have written. A
    gateway may answer 500, 502 or 504 although the server behind it has worked and charged; a refusal (400, 401, 429, ...) is
    free.
    """
    if not isinstance(status, int):
        return True
    if 300 <= status < 500:
        return status in _WORKED_ON
    return not (status in _TURNED_DOWN or (status == 503 and is_api_error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    # Bounded, since causes may refer to each other in a circle.
    for _ in range(_MOST_LINKS):
        if link is None:
            return
        yield link
        link = link.__cause__ or link.__context__
