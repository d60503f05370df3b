"""Refuses calls of models through clients of the openai SDK that VineLM does not wrap, where nothing may be sent."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from vinelm.adapters.langgraph.structure.chat_search import CHAT_MARK

_MODELS = ("/chat/completions", "/responses", "/completions")
"""Ends of the paths of calls that a model answers."""


@contextmanager
def other_clients_refused(refuse: Callable[[], BaseException], *, but_langchain: bool = False) -> Iterator[None]:
    """Inside the block, clients of the openai SDK raise ``refuse()`` before they send a call to a model.

    Clients that ``vine.around`` has wrapped are not affected, and neither are calls that no model answers, such as embeddings.

    Args:
        refuse: Returns the exception to raise.
        but_langchain: Whether to let calls of LangChain's chat models through.
    """
    with ExitStack() as patches:
        try:
            import openai
        except ImportError:  # then the application has no such client either
            yield
            return
        for kind in (openai.OpenAI, openai.AsyncOpenAI):
            patches.enter_context(_replaced(kind, _guarded(kind.request, refuse, but_langchain=but_langchain)))
        yield


def _guarded(send: Callable[..., Any], refuse: Callable[[], BaseException], *, but_langchain: bool) -> Callable[..., Any]:
    """Return a method that replaces ``send``, the method with which a client of the openai SDK sends a request.

    The new method raises the error ``refuse()`` if the request calls a model and the client is not VineLM's own. Otherwise it
    calls ``send``. With ``but_langchain``, calls made by LangChain are also sent.
    """

    def request(self: Any, cast_to: Any, options: Any, *args: Any, **kwargs: Any) -> Any:
        is_ours = getattr(type(self), CHAT_MARK, False)
        if not is_ours and str(options.url).endswith(_MODELS) and not (but_langchain and _is_in_langchain()):
            raise refuse()
        return send(self, cast_to, options, *args, **kwargs)

    return request


@contextmanager
def _replaced(kind: type, request: Callable[..., Any]) -> Iterator[None]:
    """Inside the block, objects of the class ``kind`` have the method ``request``."""
    had = vars(kind).get("request")
    kind.request = request  # type: ignore[attr-defined]
    try:
        yield
    finally:
        if had is None:
            del kind.request  # type: ignore[attr-defined] # it is inherited again
        else:
            kind.request = had  # type: ignore[attr-defined]


def _is_in_langchain() -> bool:
    """Return whether the code that runs was called by LangChain."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("langchain"):
            return True
        frame = frame.f_back
    return False
