"""Tells LangChain's tracers, and so LangSmith, which model answered a call whose model was chosen after the call began.

A tracer asks a chat model for its provider and name before the call (``_get_ls_params``). What an answer carries under
:data:`RESOLVED` replaces them in the run: LangChain's own way for gateways, which it removes from the message that callers see.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib.util import find_spec

from langchain_core.language_models import BaseChatModel
from langchain_core.outputs import ChatGeneration

RESOLVED = "lc_gateway_metadata"


def name_model(generation: ChatGeneration, model: BaseChatModel) -> None:
    """Write provider and name of the model into its answer, or the first chunk of it, unless they are there.

    Without effect where LangChain is too old to read it: callers would find it in their messages. Never raises: what a tracer
    shows is no reason to fail a call that was answered.
    """
    with suppress(Exception):
        _write_name(generation, model)


def _write_name(generation: ChatGeneration, model: BaseChatModel) -> None:
    if not _is_read() or RESOLVED in (generation.generation_info or {}):
        return
    facts = model._get_ls_params()
    resolved = {"provider": facts.get("ls_provider"), "model": facts.get("ls_model_name")}
    generation.generation_info = {**(generation.generation_info or {}), RESOLVED: resolved}


@cache
def _is_read() -> bool:
    return find_spec("langchain_core.utils._gateway") is not None
