"""Turns a function or LangChain tool into a declared tool, which looks for a prefetched result before it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from functools import lru_cache, partial, wraps
from types import ModuleType
from typing import Any, TypeVar, get_args, get_type_hints
from weakref import ref

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, Tool, tool
from langchain_core.tools.base import get_all_basemodel_annotations
from langgraph.prebuilt import ToolRuntime
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph.types import Command, interrupt
from pydantic import PrivateAttr

from vinelm.adapters.tools.read_ahead import Read, ReadAhead
from vinelm.adapters.tools.shadow import IS_AHEAD, ToolCode, apaid, paid, settled
from vinelm.adapters.tools.tool_box import DeclaredTool, FixedCall, ToolBox
from vinelm.adapters.tools.undeclared import IN_DECLARED
from vinelm.errors import ConfigError, WorkflowError
from vinelm.foreign_code import answered
from vinelm.one_process import OneProcess, refuse_pickle
from vinelm.requests.protocols import CallGuard
from vinelm.tools.declaration import Scope, ToolDeclaration

T = TypeVar("T")
FindMemory = Callable[[], ReadAhead | None]
FindGuard = Callable[[str], CallGuard | None]
CALLS = "_vinelm_calls"
"""The private attribute of a declared tool that holds its :class:`_Calls`."""


def declare_tool(
    box: ToolBox,
    find: FindMemory,
    given: BaseTool | Callable[..., Any],
    *,
    guard: FindGuard = lambda name: None,
    read_only: bool = False,
    writes: Scope | None = None,
    cost_usd: float = 0.0,
    ttl_s: float | None = None,
    ahead: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] | None = None,
    before: str | Sequence[str] = "",
    unchecked: bool = False,
) -> BaseTool:
    """Return a declared tool of the same type and with the same fields as ``given``, and register it in ``box``.

    Args:
        box: the adapter's declared tools.
        find: returns the prefetched reads of the run in which a call is made.
        given: the tool, or a function with a docstring, which LangChain turns into a tool.
        guard: given the tool's name, returns the guard that must authorize the cost of a call outside of a known run. The
            result is None if no cap applies.
        read_only: whether calls change nothing. For details of this argument and the next three see
            :class:`~vinelm.tools.declaration.ToolDeclaration`.
        writes: the prefetched reads that a call makes stale: those of the run ("session") or of all runs ("all").
        cost_usd: cost of one call in dollars.
        ttl_s: seconds for which a result stays valid.
        ahead: if a node of the graph calls the tool, a function that returns the call's arguments, given the state; its result
            is None if they are not known yet. None if no node calls the tool.
        before: names of the stages that come right after the node that calls the tool.
        unchecked: allow prefetching although an interrupt, a middleware or a node may still refuse or change the call.

    Raises:
        ConfigError: ``given`` cannot be made a tool, is read-only but cannot be prefetched, or has another tool's name.
    """
    plain = _tool_of(given)
    says = ToolDeclaration(
        name=plain.name, read_only=read_only, writes=writes, cost_usd=cost_usd, ttl_s=ttl_s, unchecked=unchecked
    )
    if says.read_only:
        _require_callable_ahead(plain)
    declared = DeclaredTool(says, _code_of(plain), _fixed_call(says, ahead, before))
    box.add(declared)
    made = _as_tool(declared, _Calls(box, find, declared, guard))
    declared.tool, declared.fields = ref(made), dict(vars(made))
    return made


def _fixed_call(says: ToolDeclaration, ahead: Any, before: str | Sequence[str]) -> FixedCall | None:
    stages = (before,) if isinstance(before, str) else tuple(before)
    if ahead is None and not any(stages):
        return None
    label = f"tool {says.name!r}"
    if not says.read_only:
        raise ConfigError(f"{label} writes, and is never called ahead: leave ahead= and before= out, or say read_only=True")
    if not callable(ahead) or inspect.iscoroutinefunction(ahead):
        raise ConfigError(f"{label}: give ahead= a function that returns the arguments from the state, or None")
    if not stages or not all(stages):
        raise ConfigError(f"{label}: ahead= needs before=: the stage that comes after the node that calls the tool")
    return FixedCall(ahead, stages)


def declaration_of(given: BaseTool) -> ToolDeclaration | None:
    """Return the declaration of a tool, no matter which ``VineLM`` it was made with; None if the tool is not declared."""
    calls: _Calls | None = (given.__pydantic_private__ or {}).get(CALLS)
    return None if calls is None else calls.says


def declared_in(box: ToolBox, given: Any) -> DeclaredTool | None:
    """Return the declared tool of ``box`` whose tool object is ``given``; None if ``given`` is not a tool that was declared in
    this box.

    A copy of a declared tool also gives None, since it may serve another user.
    """
    calls: _Calls | None = (given.__pydantic_private__ or {}).get(CALLS) if isinstance(given, BaseTool) else None
    return calls.declared if calls is not None and calls.is_of(box) and calls.declared.tool() is given else None


def _tool_of(given: Any) -> BaseTool:
    if isinstance(given, BaseTool):
        if CALLS in (given.__pydantic_private__ or {}):
            raise ConfigError(f"tool {given.name!r} is declared already: declare the tool that it was made of")
        return given
    if not callable(given) or inspect.isclass(given):
        raise ConfigError(f"vine.tool takes a function or a LangChain tool, and was given a {type(given).__name__}")
    try:
        made: BaseTool = tool(given)
        return made
    except ValueError as error:
        name = getattr(given, "__name__", type(given).__name__)
        raise ConfigError(f"tool {name!r}: LangChain makes no tool of it: {str(error).partition(chr(10))[0]}") from None


def _code_of(plain: BaseTool) -> ToolCode:
    names = inspect.signature(plain._run).parameters
    hints = _hints(plain._run)
    has_own_async = type(plain)._arun is not BaseTool._arun
    is_simple = isinstance(plain, StructuredTool | Tool)
    return ToolCode(
        tool=plain,
        config_names=tuple(name for name, kind in hints.items() if kind is RunnableConfig and name != "return"),
        takes_manager="run_manager" in names,
        is_async=plain.coroutine is not None if isinstance(plain, StructuredTool | Tool) else has_own_async,
        is_sync=not is_simple or plain.func is not None,  # type: ignore[attr-defined]
    )


def _as_tool(declared: DeclaredTool, calls: _Calls) -> BaseTool:
    """Return the declared tool: an instance of a subclass of the tool's class, with the same fields."""
    plain = declared.code.tool
    kind = _kind_of(type(plain))
    made: BaseTool = kind.__new__(kind)
    made.__setstate__(plain.__getstate__())
    object.__setattr__(made, "__pydantic_private__", {**(made.__pydantic_private__ or {}), CALLS: calls})
    return made


@lru_cache(maxsize=256)  # an application may make classes for each user
def _kind_of(kind: Any) -> type[BaseTool]:
    """Return the subclass of the tool class ``kind`` that declared tools are instances of; cached, since pydantic takes
    milliseconds to make it.
    """

    @wraps(kind._run)
    def _run(self: Any, *args: Any, **given: Any) -> Any:
        return getattr(self, CALLS).call(self, args, given)

    @wraps(kind._arun)
    async def _arun(self: Any, *args: Any, **given: Any) -> Any:
        return await getattr(self, CALLS).acall(self, args, given)

    @wraps(kind.run)
    def run(self: Any, *args: Any, **given: Any) -> Any:
        token = IN_DECLARED.set(getattr(self, CALLS).memory())
        try:
            return kind.run(self, *args, **given)
        finally:
            IN_DECLARED.reset(token)

    @wraps(kind.arun)
    async def arun(self: Any, *args: Any, **given: Any) -> Any:
        token = IN_DECLARED.set(getattr(self, CALLS).memory())
        try:
            return await kind.arun(self, *args, **given)
        finally:
            IN_DECLARED.reset(token)

    own: dict[str, Any] = {"_run": _run, "_arun": _arun, "run": run, "arun": arun, CALLS: PrivateAttr(default=None)}
    own["__reduce_ex__"] = refuse_pickle  # its class is made here, so another process does not know it
    made: type[BaseTool] = type(kind)(kind.__name__, (kind,), {**own, "__module__": kind.__module__, "__doc__": kind.__doc__})
    return made


# -- refusals ----------------------------------------------------------------------------------------------------


def _require_callable_ahead(plain: BaseTool) -> None:
    """Raise :class:`ConfigError` if a tool cannot be called before the model asks for it, or if it does more than read."""
    label = f"tool {plain.name!r} cannot be read_only"
    cure = 'declare it with writes="session"'
    own: list[Any] = [one for name in ("func", "coroutine") if (one := getattr(plain, name, None)) is not None]
    written = own or [plain._run, plain._arun]
    hints: dict[str, Any] = {}
    of_json: dict[str, Any] = {}  # a schema in JSON has no annotations
    hints.update(answered(lambda: get_all_basemodel_annotations(plain.get_input_schema()), of_json))
    for code in written:
        hints.update(_hints(code))
        if inspect.isasyncgenfunction(code) or inspect.isgeneratorfunction(code):
            raise ConfigError(f"{label}: it is a generator: return its result as a whole, or {cure}")
        if _interrupts(code):
            raise ConfigError(f"{label}: it interrupts the run: {cure}")
    if _mentions(hints.pop("return", None), (Command,)):
        raise ConfigError(f"{label}: it returns a Command, which steers the graph: {cure}")
    for name, kind in hints.items():
        if _is_injected(kind):
            raise ConfigError(f"{label}: its argument {name!r} is injected from the graph: take it out, or {cure}")


def _is_injected(kind: Any) -> bool:
    metadata = getattr(kind, "__metadata__", ())
    if any(isinstance(one, InjectedToolArg) or (inspect.isclass(one) and issubclass(one, InjectedToolArg)) for one in metadata):
        return True
    return _mentions(kind, (ToolRuntime, Runtime, BaseStore))


def _mentions(kind: Any, wanted: tuple[type, ...]) -> bool:
    """Return whether a type is, or contains, one of ``wanted``."""
    origin = getattr(kind, "__origin__", kind)
    if inspect.isclass(origin) and issubclass(origin, wanted):
        return True
    return any(_mentions(part, wanted) for part in get_args(kind))


def _interrupts(code: Any) -> bool:
    """Return whether a function's code names LangGraph's ``interrupt``: as a global, a module attribute, or a local import."""
    names: tuple[str, ...] = getattr(getattr(code, "__code__", None), "co_names", ())
    known = [value for name in names if (value := getattr(code, "__globals__", {}).get(name)) is not None]
    modules = [one.__name__ for one in known if isinstance(one, ModuleType)]
    is_near = any(name.partition(".")[0] == "langgraph" for name in (*names, *modules))
    return any(one is interrupt for one in known) or ("interrupt" in names and is_near)


def _hints(code: Any) -> dict[str, Any]:
    # Names that only type checkers know; annotations written as text are the application's own code.
    return answered(lambda: get_type_hints(code, include_extras=True), {})


# -- calls -------------------------------------------------------------------------------------------------------


class _Calls(OneProcess):
    """The application's calls of one declared tool, which a prefetched read may answer.

    Attributes:
        declared: the tool.
        says: the declaration of the tool's effects.

    If VineLM's own code fails, the call is made normally; with the adapter's ``on_error="raise"``, the error is raised.
    """

    __slots__ = ("_box", "_code", "_find", "_find_guard", "declared", "says")

    def __init__(self, box: ToolBox, find: FindMemory, declared: DeclaredTool, guard: FindGuard) -> None:
        self._box, self._find, self.declared, self._find_guard = box, find, declared, guard
        self.says, self._code = declared.says, declared.code

    def is_of(self, box: ToolBox) -> bool:
        """Return whether the tool was declared in ``box``."""
        return self._box is box

    def call(self, tool: BaseTool, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """Return the result of ``tool``, from a prefetched read if one answers this call, otherwise from a normal call.

        ``args`` and ``given`` are the call's positional and keyword arguments.
        """
        memory = self._memory()
        if memory is None:
            with paid(self._guard(), self.says.cost_usd):
                return self.declared.body_of(tool)._run(*args, **given)
        key, plain = self._key(args, given)
        read = self._taken(memory, tool, key, blocks=True)
        if read is not None:
            if wait([read.shadow.result], memory.join_s).not_done:
                self._box.ours(partial(memory.left, read), None)
            elif self._box.ours(partial(memory.used, read), False):
                return read.shadow.result.result()
        call = _Call(self, memory, tool, key, plain)
        try:
            with paid(memory.guard(), self.says.cost_usd):
                call.result = self.declared.body_of(tool)._run(*args, **given)
            call.is_ok = True
        finally:
            call.end(read)
        return call.result

    async def acall(self, tool: BaseTool, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """Return the result of ``tool``, like :meth:`call`, without blocking the event loop."""
        memory = self._memory()
        if memory is None:
            async with apaid(self._guard(), self.says.cost_usd):
                return await self.declared.body_of(tool)._arun(*args, **given)
        key, plain = self._key(args, given)
        read = self._taken(memory, tool, key, blocks=False)
        if read is not None:
            try:
                has_ended = await settled(read.shadow.result, memory.join_s)
            except BaseException:  # the caller was cancelled, so its call is, too
                read.shadow.cancel()
                raise
            if not has_ended:
                self._box.ours(partial(memory.left, read), None)
            elif self._box.ours(partial(memory.used, read), False):
                return read.shadow.result.result()
        call = _Call(self, memory, tool, key, plain)
        try:
            async with apaid(memory.guard(), self.says.cost_usd):
                call.result = await self.declared.body_of(tool)._arun(*args, **given)
            call.is_ok = True
        finally:
            call.end(read)
        return call.result

    def _guard(self) -> CallGuard | None:
        """Return the guard that must authorize the cost of a call that belongs to no run of this adapter. None if the call
        costs nothing, is a prefetch, or no cap applies.
        """
        return None if IS_AHEAD.get() or not self.says.cost_usd else self._find_guard(self.says.name)

    def _memory(self) -> ReadAhead | None:
        if IS_AHEAD.get():
            if self.says.writes is not None:
                raise WorkflowError(f"tool {self.says.name!r} writes, and was called inside a read-only tool")
            return None
        return self.memory()

    def memory(self) -> ReadAhead | None:
        """Return the surrounding run's prefetched reads; None outside of a run."""
        return self._box.ours(self._find, None)

    def _key(self, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the key of a call and its arguments as JSON values.

        The key is empty if the arguments have no JSON form; no prefetched read is then used.
        """
        nothing: tuple[str, dict[str, Any]] = ("", {})
        return answered(lambda: self.declared.key_of(args, self._code.arguments_of(given)), nothing)

    def _taken(self, memory: ReadAhead, tool: BaseTool, key: str, *, blocks: bool) -> Read | None:
        if tool is not self.declared.tool():  # a copy, which may belong to another user
            return None
        self._box.ours(lambda: memory.has_called(self.declared), None)
        if not key or self.says.writes is not None:
            return None
        return self._box.ours(lambda: memory.take(self.declared, key, blocks=blocks), None)


class _Call:
    """The record of one call that the application makes. If the tool writes, nothing is prefetched while the call runs.

    The caller sets ``result``, and ``is_ok`` if the call succeeds, before :meth:`end`.

    Args:
        calls: the object that handles all calls of the tool.
        memory: the prefetched reads of the run.
        tool: the tool object that is called.
        key: a text that is the same for equal calls.
        plain: the call's arguments by name, as JSON values.
    """

    __slots__ = ("_calls", "_memory", "_read", "_write", "is_ok", "result")

    def __init__(self, calls: _Calls, memory: ReadAhead, tool: BaseTool, key: str, plain: Mapping[str, Any]) -> None:
        self._calls, self._memory = calls, memory
        self.is_ok, self.result = False, None
        says, scope = calls.says, calls.says.writes
        self._write = None if scope is None else calls._box.ours(lambda: memory.begin_write(scope), None)
        now_s = calls._box.ours(memory.now, 0.0)
        self._read = Read(says.name, key, "authoritative", plain, says.cost_usd, None, now_s, of=tool)

    def end(self, left: Read | None) -> None:
        """Record that the call has ended, successfully or not.

        ``left`` is a prefetched read of the same call whose result was not used, since the read took too long or failed. None
        if there is no such read.
        """
        memory, calls, scope, token = self._memory, self._calls, self._calls.says.writes, self._write
        if token is not None and scope is not None:
            calls._box.ours(lambda: memory.end_write(scope, token), None)
        if left is not None and self.is_ok:
            calls._box.ours(partial(memory.overtaken, left), None)
        if self._read.key:
            calls._box.ours(lambda: memory.ended(self._read, self.result, is_ok=self.is_ok), None)
