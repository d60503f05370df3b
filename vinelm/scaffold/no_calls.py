"""A ``with`` block in which models cannot be called: reading an application must not spend money."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables.config import var_child_runnable_config

from vinelm.adapters.langchain.other_clients import other_clients_refused
from vinelm.adapters.langgraph.nodes.signature import line_of_user
from vinelm.errors import WorkflowError
from vinelm.io.import_limit import import_limited


@contextmanager
def no_model_calls(what: str) -> Iterator[None]:
    """Inside the block, refuse every call of a LangChain model, and of a model by the openai SDK, before anything is sent.

    For LangChain's models it uses callbacks, so it cannot refuse their calls in a thread without the caller's context. Calls
    through clients of other SDKs are not refused.

    Args:
        what: What the block does, for the message: ``importing 'app'``.

    Raises:
        WorkflowError: A model call was refused; the message names the line. Or the block took too long, see
            :func:`~vinelm.io.import_limit.import_limited`.
    """
    token = var_child_runnable_config.set({"callbacks": [_Refusing()]})
    try:
        with import_limited(what, line_of_user), other_clients_refused(lambda: _ModelCalledError(line_of_user())):
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
        raise _ModelCalledError(line_of_user())

    def on_llm_start(self, *_: Any, **__: Any) -> NoReturn:
        raise _ModelCalledError(line_of_user())
