"""Rehearsed calls: an SDK's lazy imports and the types it builds on first use, done before the first real call."""

from __future__ import annotations

import logging
from contextlib import suppress
from importlib import import_module

from vinelm.backends.base import bound_instance
from vinelm.backends.limits.rate_limits import EngineRateLimiter, RateLimits
from vinelm.backends.remote.chat_model import RemoteChatModel
from vinelm.backends.remote.retry import RetryPolicy
from vinelm.backends.remote.transport import CallBinding, Transport
from vinelm.catalog import Model
from vinelm.clock import WallClock
from vinelm.requests.protocols import CallContext

_LOGGER = logging.getLogger(__name__)
_LAZY = ("anyio._backends._asyncio", "encodings.ascii", "encodings.idna")
"""Modules of asynchronous clients and host names, which no rehearsal comes to."""
_SCHEMA = {"title": "Rehearsal", "description": "none", "type": "object", "properties": {"a": {"type": "string"}}}


def rehearse(transport: Transport, model: Model) -> None:
    """Make a whole and a streamed call on a twin of the transport that answers from memory, if it has one. Spends nothing.

    A rehearsal that fails is logged at debug level: the first real call then does the work itself.
    """
    try:
        stage = transport.rehearsal()
    except Exception as error:  # such as an SDK that is not installed: the real call says so
        _LOGGER.debug("no rehearsal of %s: %s", type(transport).__name__, type(error).__name__)
        return
    if stage is None:
        return
    for name in _LAZY:
        with suppress(ImportError):
            import_module(name)
    for streams in (False, True):
        try:
            _call(stage, model, streams=streams)
        except Exception as error:
            _LOGGER.debug("rehearsal of %s failed: %s", type(transport).__name__, type(error).__name__)


def _call(transport: Transport, model: Model, *, streams: bool) -> None:
    context = CallContext(stage="rehearsal", prefix=(model.name,), clock=WallClock(), on_usage=lambda _: None)
    chat = bound_instance(
        RemoteChatModel,
        CallBinding(
            transport=transport,
            model=model,
            call=context,
            rate_limiter=EngineRateLimiter(RateLimits()),
            policy=RetryPolicy(max_retries=0),
            streams=streams,
        ),
    )
    chat.invoke("rehearsal")
    chat.with_structured_output(_SCHEMA)
