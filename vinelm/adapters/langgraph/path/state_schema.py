"""Adds the path channel, in which LangGraph stores a request's path, to the user's state type, and removes it again.

LangGraph registers the channels of the type that annotates a node's first parameter. The wrapper is annotated with an extended
type; the user's function gets a state of exactly the type that it declares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, is_dataclass, make_dataclass
from functools import cache
from typing import Annotated, Any, cast, get_type_hints

from pydantic import BaseModel, Field, create_model
from typing_extensions import TypedDict, is_typeddict

from vinelm.adapters.langgraph.path.path_channel import PATH_KEY, PathChannel, PathValue
from vinelm.errors import WorkflowError
from vinelm.policies import OnError

_OWN: dict[type, Callable[[Any], Any]] = {}
"""Registered dataclasses and pydantic models, each with the function that restores the user's type."""


@cache
def announced(schema: type) -> type:
    """Return a type like ``schema`` that also has the path channel: a new TypedDict, or a subclass of the dataclass or pydantic
    model.

    Raises:
        WorkflowError: ``schema`` is neither a TypedDict nor a dataclass nor a pydantic model.
    """
    channel = Annotated[Any, PathChannel]
    if is_typeddict(schema):
        fields = {**get_type_hints(schema, include_extras=True), PATH_KEY: channel}
        return cast("type", cast("Any", TypedDict)(schema.__name__, fields, total=False))
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        entry: Any = (channel, Field(default=None, exclude=True, repr=False))
        model = create_model(schema.__name__, __base__=schema, __module__=schema.__module__, **{PATH_KEY: entry})
        _OWN[model] = lambda state: _own_pydantic(state, schema)
        return model
    if isinstance(schema, type) and is_dataclass(schema):
        spec: Any = (PATH_KEY, channel, field(default=None, kw_only=True, repr=False, compare=False))
        frozen = cast("Any", schema).__dataclass_params__.frozen
        cls = make_dataclass(schema.__name__, [spec], bases=(schema,), frozen=frozen)
        cls.__module__ = schema.__module__
        _OWN[cls] = _own_dataclass(schema)
        return cls
    raise WorkflowError(f"the state type {schema!r} is not supported: use a TypedDict, a dataclass or a pydantic model")


def own_state(state: Any, on_error: OnError = "raise") -> tuple[Any, PathValue | None]:
    """Return the state in the user's own type, and the path that was in it; the path is None if the state had none.

    If a state cannot be converted, it is returned unchanged with None; with ``on_error="raise"`` the error is raised instead.
    The argument is never changed.
    """
    try:
        return _parted(state)
    except Exception:  # a class of the application may refuse to be copied
        if on_error == "raise":
            raise
        return state, None


def _parted(state: Any) -> tuple[Any, PathValue | None]:
    if isinstance(state, dict):
        if PATH_KEY not in state:
            return state, None
        bare = dict(state)
        return bare, bare.pop(PATH_KEY)
    own = _OWN.get(type(state))
    if own is None:
        return state, None
    return own(state), getattr(state, PATH_KEY)


def _own_dataclass(schema: type) -> Callable[[Any], Any]:
    """Return a function that copies a dataclass's fields without calling its ``__init__``, which LangGraph has already run."""
    slots = tuple(name for cls in schema.__mro__ for name in _slots(cls))

    def own(state: Any) -> Any:
        bare: Any = object.__new__(schema)
        for name in slots:
            if hasattr(state, name):
                object.__setattr__(bare, name, getattr(state, name))
        if hasattr(bare, "__dict__"):
            bare.__dict__.update(state.__dict__)
            bare.__dict__.pop(PATH_KEY, None)
        return bare

    return own


def _slots(cls: type) -> tuple[str, ...]:
    names = cls.__dict__.get("__slots__", ())
    names = (names,) if isinstance(names, str) else tuple(names)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _own_pydantic(state: BaseModel, schema: type[BaseModel]) -> BaseModel:
    """Return a copy of ``state`` in the user's type ``schema``, without the path; the validators do not run again."""
    bare = schema.__new__(schema)
    values = {name: value for name, value in state.__dict__.items() if name != PATH_KEY}
    object.__setattr__(bare, "__dict__", values)
    object.__setattr__(bare, "__pydantic_fields_set__", state.__pydantic_fields_set__ - {PATH_KEY})
    object.__setattr__(bare, "__pydantic_extra__", state.__pydantic_extra__)
    object.__setattr__(bare, "__pydantic_private__", state.__pydantic_private__)
    return bare
