"""The models that an application runs today, read off its objects where they exist and off its source where they do not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

from vinelm.adapters.langgraph.path.path_channel import WITHIN
from vinelm.adapters.langgraph.structure.chat_search import HeldStages
from vinelm.scaffold.model_calls import PREFIXES, ModelCall, named_model


def models_today(
    stages: Collection[str], held: Mapping[str, HeldStages], calls: Sequence[ModelCall]
) -> dict[str, tuple[str, ...]]:
    """Return the models that each stage may run before VineLM chooses, as ``provider:model``; none where it is not known.

    Args:
        stages: The stages.
        held: What the nodes of the graph hold, LangChain's chat models among it.
        calls: The places of the source where models are made.
    """
    found: dict[str, dict[str, None]] = {stage: {} for stage in stages}
    unknown: set[str] = set()
    for (name, path), node in _nodes(held):
        stage = path if path in found else name
        models = [*(model_of(chat) for chat in node.chats), *(one for code in node.makers for one in _made_in(code, calls))]
        found.setdefault(stage, {}).update(dict.fromkeys(model for model in models if model is not None))
        if None in models:
            unknown.add(stage)
    return {stage: () if stage in unknown else tuple(models) for stage, models in found.items() if stage in stages}


def model_of(chat: Any) -> str | None:
    """Return a LangChain chat model as ``provider:model``; None where it does not say, or its maker is not known."""
    settings = getattr(chat, "_default_config", None)  # what init_chat_model's configurable model begins with
    if isinstance(settings, Mapping):
        name = settings.get("model")
        return named_model(name, settings.get("model_provider")) if isinstance(name, str) else None
    prefix = next((PREFIXES[kind.__name__] for kind in type(chat).__mro__ if kind.__name__ in PREFIXES), None)
    names = (getattr(chat, field, None) for field in ("model_name", "model", "model_id"))
    name = next((one for one in names if isinstance(one, str) and one), None)
    return None if name is None or prefix is None else f"{prefix}:{name.removeprefix('models/')}"


def _nodes(held: Mapping[str, HeldStages], around: str = "") -> Iterator[tuple[tuple[str, str], HeldStages]]:
    """Each stage, and the same behind the nodes around it, with a node that runs it, those of inner graphs included."""
    for node, found in held.items():
        for stage in found.names | found.on_edges | ({node} if found.makes_some else set()):
            yield (stage, around + stage), found
        for inner in found.inner:
            yield from _nodes(inner.held, f"{around}{node}{WITHIN}")


def _made_in(code: CodeType, calls: Sequence[ModelCall]) -> Iterator[str | None]:
    """The models that a function makes; None for one that its source does not name."""
    lines = [line for _, _, line in code.co_lines() if line is not None]
    for call in calls:
        if call.path == Path(code.co_filename) and lines and code.co_firstlineno <= call.line <= max(lines):
            yield call.model
