"""An application's own chat model, which a stage calls if no plan chooses another model. It is called unchanged, and its
settings also apply to the models that replace it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableSequence, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.configurable import DynamicRunnable, RunnableConfigurableAlternatives, RunnableConfigurableFields

from vinelm.backends.remote.inner import InnerChat, limit_of
from vinelm.catalog import Model
from vinelm.errors import ConfigError

SHARED = ("temperature", "top_p", "top_k", "stop", "stop_sequences", "seed", "presence_penalty", "frequency_penalty", "n")
"""Settings that are copied to any other model that has them; the rest belongs to the model's provider."""
TOLD = ("callbacks", "tags", "metadata", "verbose", "cache")
"""LangChain's own settings, which apply whichever model answers."""


@dataclass(frozen=True, eq=False)
class OwnModel:
    """The chat model that an application has made.

    Attributes:
        inner: the application's object, which is called.
        entry: the model's name in the catalog.
        settings: the settings of the application's object that other models may have, by name.
        max_tokens: the maximum number of tokens of an answer; None if the application sets no limit.
    """

    inner: InnerChat
    entry: str
    settings: Mapping[str, Any]
    max_tokens: int | None

    @classmethod
    def of(cls, chat: BaseChatModel, entry: Model) -> OwnModel:
        """Return an :class:`OwnModel` for the application's chat model ``chat``; ``entry`` is its entry in the catalog."""
        given = {name: getattr(chat, name, None) for name in SHARED if name in chat.model_fields_set}
        inner = InnerChat(chat, entry_max_tokens=entry.max_tokens)
        return cls(inner, entry.name, {name: one for name, one in given.items() if one is not None}, _set_limit(chat))

    def __deepcopy__(self, memo: Any) -> OwnModel:
        """Return self: it is immutable, and the application's object has clients and locks that cannot be copied."""
        return self


def _set_limit(chat: BaseChatModel) -> int | None:
    """Return the application's limit on the tokens of an answer, as set on ``chat``.

    None if the application sets no limit. A limit equal to the model's own maximum counts as no limit.
    """
    found, most = limit_of(chat), (getattr(chat, "profile", None) or {}).get("max_output_tokens")
    return None if found == most else found


def told_of(chat: BaseChatModel) -> dict[str, Any]:
    """Return the LangChain settings (callbacks, tags, ...) of a chat model, for the model that replaces it."""
    return {name: one for name in TOLD if (one := getattr(chat, name, None)) is not None}


@dataclass(frozen=True, eq=False)
class Wrap:
    """The settings for wrapping chat models. Each call of a wrapped model is an invocation of a stage.

    Attributes:
        vine: the ``VineLM`` object that serves the calls.
        stage: name of the stage; None for the stage of the calling node.
        chat_model: returns the wrapped form of a chat model.
    """

    vine: Any
    stage: str | None
    chat_model: Callable[[BaseChatModel], BaseChatModel]


def wrapped(made: Runnable[Any, Any], wrap: Wrap) -> Runnable[Any, Any]:
    """Return ``made`` (a chat model, or a binding, fallback, retry or chain built from it) with the chat models inside wrapped.

    Raises:
        ConfigError: ``made`` contains no chat model.
    """
    met: list[BaseChatModel] = []

    def meets(chat: BaseChatModel) -> BaseChatModel:
        met.append(chat)
        return wrap.chat_model(chat)

    found: Runnable[Any, Any] = _wrapped(made, Wrap(wrap.vine, wrap.stage, meets))
    if found is made and not met:
        raise ConfigError(
            f"vine.around was given a {type(made).__name__} without a chat model inside: give it the chat model itself"
        )
    return found


def _wrapped(made: Any, wrap: Wrap) -> Any:
    if isinstance(made, BaseChatModel):
        return wrap.chat_model(made)
    if isinstance(made, RunnableWithFallbacks):
        inner = _wrapped(made.runnable, wrap)
        others = [_wrapped(one, wrap) for one in made.fallbacks]
        is_same = inner is made.runnable and all(a is b for a, b in zip(others, made.fallbacks, strict=True))
        return made if is_same else made.model_copy(update={"runnable": inner, "fallbacks": others})
    if type(made).__name__ == "_ConfigurableModel" and type(made).__module__.startswith("langchain."):
        return _late(made, wrap)
    if isinstance(made, RunnableConfigurableFields):
        return made if _wrapped(made.default, wrap) is made.default else _configured(made, wrap)
    if isinstance(made, DynamicRunnable):
        update: dict[str, Any] = {"default": _wrapped(made.default, wrap)}
        if isinstance(made, RunnableConfigurableAlternatives):
            update["alternatives"] = {name: _alternative(one, wrap) for name, one in made.alternatives.items()}
        return made if update["default"] is made.default else made.model_copy(update=update)
    if isinstance(made, RunnableBindingBase):  # with_retry and with_config are bindings, too
        bound = _wrapped(made.bound, wrap)
        if bound is made.bound:
            return made
        if isinstance(bound, BaseChatModel) and "tools" in made.kwargs:
            # Tools were converted for the model inside. Another model may answer, which converts them again.
            options = {name: one for name, one in made.kwargs.items() if name != "tools"}
            return bound.bind_tools(made.kwargs["tools"], **options).with_config(made.config)
        return made.model_copy(update={"bound": bound})
    if isinstance(made, RunnableSequence):
        steps = [_wrapped(step, wrap) for step in made.steps]
        return made if all(a is b for a, b in zip(steps, made.steps, strict=True)) else RunnableSequence(*steps, name=made.name)
    return made


def _alternative(made: Any, wrap: Wrap) -> Any:
    """Wrap one of the models that a configurable model may be switched to. If ``made`` is a function that makes the model,
    return a function that makes and wraps it.
    """
    return _wrapped(made, wrap) if isinstance(made, Runnable) else lambda: _wrapped(made(), wrap)


def _configured(made: RunnableConfigurableFields[Any, Any], wrap: Wrap) -> Runnable[Any, Any]:
    """Return a configurable model like ``made`` (with fields such as ``model_name``) that wraps each configured model.

    LangChain configures the application's own model first, because VineLM's chat model does not have the same fields. The
    configured model is then wrapped.
    """

    class Configured(RunnableConfigurableFields):  # type: ignore[type-arg]
        __vinelm_chat__: ClassVar[bool] = True
        vine: ClassVar[Any] = wrap.vine
        stage: ClassVar[str | None] = wrap.stage
        own: ClassVar[None] = None

        def _prepare(self, config: Any = None) -> tuple[Runnable[Any, Any], Any]:
            found, config = super()._prepare(config)
            return _wrapped(found, wrap), config

        def configurable_fields(self, **kwargs: Any) -> Any:
            return _wrapped(super().configurable_fields(**kwargs), wrap)

        def __getattr__(self, name: str) -> Any:  # of the model inside: what bind_tools and others make of it is wrapped, too
            found = super().__getattr__(name)
            return (lambda *args, **kwargs: _wrapped(found(*args, **kwargs), wrap)) if callable(found) else found

    return Configured(default=made.default, fields=made.fields, config=made.config)


def _late(made: Any, wrap: Wrap) -> Any:
    """Wrap a configurable model of ``init_chat_model``, which creates its chat model at each call."""

    class Late(type(made)):  # type: ignore[misc] # a private class of LangChain's, by which libraries know it
        __vinelm_chat__: ClassVar[bool] = True
        vine, stage, own = wrap.vine, wrap.stage, None

        def _model(self, config: Any = None) -> Any:
            # What was recorded is applied to the wrapped model: a parser of the application's own provider could not read the
            # structured answer of another.
            bare = _of(Late, vars(self) | {"_queued_declarative_operations": []})
            found = _wrapped(super(Late, bare)._model(config), wrap)
            for name, args, options in self._queued_declarative_operations:
                found = getattr(found, name)(*args, **options)
            return found

        def with_config(self, config: Any = None, **kwargs: Any) -> Any:
            return _as(super().with_config(config, **kwargs), Late)

        def __getattr__(self, name: str) -> Any:
            found = super().__getattr__(name)
            return (lambda *args, **kwargs: _as(found(*args, **kwargs), Late)) if name in ON_EACH else found

    return _of(Late, vars(made))


def _of(kind: type, fields: Mapping[str, Any]) -> Any:
    """Return an object of the class ``kind`` whose attributes are ``fields``; ``__init__`` is not called."""
    found: Any = object.__new__(kind)
    found.__dict__.update(fields)
    return found


ON_EACH = ("bind_tools", "with_structured_output")
"""What a configurable model records and applies to each chat model that it makes."""


def _as(one: Any, kind: type) -> Any:
    one.__class__ = kind
    return one
