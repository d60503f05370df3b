"""VineLM chooses the model of every stage invocation of a LangGraph application while a request runs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "AnnotatedTrie": "vinelm.annotated_trie",
    "Catalog": "vinelm.catalog.catalog",
    "Loop": "vinelm.template",
    "Model": "vinelm.catalog.catalog",
    "Objective": "vinelm.objective",
    "Observation": "vinelm.observation",
    "Price": "vinelm.catalog.catalog",
    "Request": "vinelm.workflow",
    "Stage": "vinelm.template",
    "Template": "vinelm.template",
    "TextWriter": "vinelm.backends.offline.text_writer",
    "Trie": "vinelm.trie",
    "VineChatModel": "vinelm.adapters.langchain.chat_model",
    "VineLM": "vinelm.api.application",
    "VineLMError": "vinelm.errors",
    "VineMiddleware": "vinelm.adapters.langchain.middleware",
    "Workflow": "vinelm.workflow",
    "read_jsonl": "vinelm.workflow",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - the names are in _HOME, once
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import on first use, so that ``import vinelm`` costs nothing and the CLI answers at once."""
    if name not in _HOME:
        raise AttributeError(f"module 'vinelm' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
