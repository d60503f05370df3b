"""A ``with`` block in which LangChain's models cannot be called: reading an application must not spend money."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables.config import var_child_runnable_config

from vinelm.adapters.langgraph.nodes.signature import is_user_code
from vinelm.errors import WorkflowError
from vinelm.io.import_limit import import_limited


@contextmanager
def no_model_calls(what: str) -> Iterator[None]:
    """Inside the block, refuse every call of a LangChain model before anything is sent.

    It uses LangChain's callbacks, so it cannot refuse calls through other clients, or in a thread without the caller's
    context.

    Args:
        what: What the block does, for the message: ``importing 'app'``.

    Raises:
        WorkflowError: A model call was refused; the message names the line. Or the block took too long, see
            :func:`~vinelm.io.import_limit.import_limited`.
    """
    token = var_child_runnable_config.set({"callbacks": [_Refusing()]})
    try:
        with import_limited(what, _here):
            yield
    except _ModelCalledError as called:
        raise WorkflowError(
            f"{what} calls a model{called}: nothing was sent; move the call into a function, or below "
            '`if __name__ == "__main__":`'
        ) from None
    finally:
        var_child_runnable_config.reset(token)


class _ModelCalledError(BaseException):
    """A model was called; not an ``Exception``, so that neither the application nor LangChain catches it."""


class _Refusing(BaseCallbackHandler):
    raise_error = True
    run_inline = True

    def on_chat_model_start(self, *_: Any, **__: Any) -> NoReturn:
        raise _ModelCalledError(_here())

    def on_llm_start(self, *_: Any, **__: Any) -> NoReturn:
        raise _ModelCalledError(_here())


def _here() -> str:
    """Return the line of the application's code that is running, as `` (at app.py:7)``; empty if there is none."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        if is_user_code(str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename):
            return f" (at {Path(frame.f_code.co_filename).name}:{frame.f_lineno})"
        frame = frame.f_back
    return ""
