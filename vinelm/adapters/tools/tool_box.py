"""The declared tools of an application, with what all runs share: predictions, settings, counts and lists of reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import RLock
from typing import Any, Literal, NamedTuple, TypeVar
from weakref import WeakSet

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from pydantic_core import to_jsonable_python

from vinelm.adapters.tools.shadow import ToolCode
from vinelm.errors import ConfigError
from vinelm.foreign_code import answered
from vinelm.policies import OnError
from vinelm.telemetry import ObserverGroup
from vinelm.tools.call import SessionPart, canonical_key
from vinelm.tools.declaration import ToolDeclaration
from vinelm.tools.speculation import Candidates, Speculation

Record = Literal["digests", "values"]
"""How a call's arguments and result are reported: a digest of the arguments, or the values themselves."""


class FixedCall(NamedTuple):
    """A call of a tool that a node of the graph makes.

    Attributes:
        arguments: returns the call's arguments, given the state; None if they are not known yet.
        before: the stages that come right after the node, so that the call is made before them.
    """

    arguments: Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
    before: tuple[str, ...]


@dataclass(slots=True, eq=False)
class DeclaredTool:
    """A declared tool object: the declaration of its effects (``says``), and its code.

    If a node of the graph calls the tool, ``fixed`` describes this call; otherwise it is None.

    Tools are distinguished by object, not by name: an application may make one for each user from the same function.

    Attributes:
        tool: returns the application's tool object; None once that has been garbage-collected.
        fields: the fields of the tool object when it was made.
        can_run_ahead: whether the tool's code can run before the application's call; None if this is not checked yet.
    """

    says: ToolDeclaration
    code: ToolCode
    fixed: FixedCall | None = None
    tool: Callable[[], BaseTool | None] = lambda: None
    fields: Mapping[str, Any] = field(default_factory=dict)
    can_run_ahead: bool | None = None

    def body_of(self, held: BaseTool) -> BaseTool:
        """Return the tool without VineLM's declaration, with the fields that the tool object ``held`` has now."""
        if has_fields(held, self.fields):
            return self.code.tool
        kind = type(self.code.tool)
        body: BaseTool = kind.__new__(kind)
        body.__setstate__(held.__getstate__())
        return body

    def call_of(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Check a call's arguments as LangChain does, and return the positional and keyword arguments for ``_run``."""
        return self.code.tool._to_args_and_kwargs(dict(arguments), None)

    def key_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the key of a call, a text that is the same for equal calls, and the call's arguments as JSON values.

        Raises:
            WorkflowError, ValueError: an argument has no JSON form, so equal calls cannot be recognized.
        """
        plain: dict[str, Any] = to_jsonable_python({**kwargs, **({"*": args} if args else {})})
        return canonical_key(self.says.name, plain), plain


def has_fields(held: BaseTool, fields: Mapping[str, Any]) -> bool:
    """Return whether a tool has exactly these fields, each holding the identical object."""
    own = vars(held)
    return own.keys() == fields.keys() and all(own[name] is value for name, value in fields.items())


class DeclaredName(NamedTuple):
    """The properties that all tools of one name share: their declaration, their code, the JSON schema of their arguments (or
    None), and the stages before which nodes of the graph call them.

    It refers to no tool object, since an object may belong to one user.
    """

    says: ToolDeclaration
    source: Any
    schema: dict[str, Any] | None
    before: tuple[str, ...]


T = TypeVar("T")


class ToolBox:
    """The declared tools of an adapter, with the settings, predictions and counts that all runs share. Thread-safe.

    Attributes:
        declared: the declarations, by name. Only a run's graph shows which tool object it uses.
        held_at: returns the tools, by name, that may be prefetched at a graph's node, given LangGraph's config. Set by the
            adapter.
        outside: takes tools by name, and returns those that may be prefetched outside of a graph. Set by the adapter.
        stuck: names of tools that are no longer prefetched, because a prefetch was still waiting when the application's own
            call ended.
        candidates: predicts the next calls; None if only calls that a model is writing are started early.
        speculation: the settings for requests without any; None prefetches nothing for them.
        runs_ahead: whether prefetches are made; in mode "observe" this is False, and possible prefetches are only counted.
        record: which data of a call the observers and the recorder get: "digests" of its arguments, or the "values" of
            arguments and results.
        recorder: stores the calls of all tools and, if values are recorded, the user's messages; None stores nothing.
        observers, on_error: the adapter's settings.
        live: the ``ReadAhead`` of each run in progress.
        writing: writes in flight that make the reads of all runs stale.
        counts: numbers of calls, by name. "reads" are requested by the application. Some of them find a prefetch: "ready" if
            it has finished, "joined" if it still runs. "started" calls were prefetched; the results of "unused" ones were not
            used. "withheld" calls were not prefetched, since prefetching is off. "left" calls waited ``join_s`` seconds for a
            running prefetch, and were then made normally.
    """

    def __init__(self, observers: ObserverGroup, on_error: OnError) -> None:
        self.declared: dict[str, DeclaredName] = {}
        self.held_at: Callable[[RunnableConfig], Mapping[str, DeclaredTool]] = lambda config: {}
        self.outside: Callable[[Mapping[str, DeclaredTool]], Mapping[str, DeclaredTool]] = lambda tools: {}
        self.stuck: set[str] = set()
        self.candidates: Candidates | None = None
        self.speculation: Speculation | None = None
        self.runs_ahead = True
        self.record: Record = "digests"
        self.recorder: Callable[[SessionPart], None] | None = None
        self.observers, self.on_error = observers, on_error
        self.live: WeakSet[Any] = WeakSet()
        self.writing: set[object] = set()
        self.counts: Counter[str] = Counter()
        self._lock = RLock()  # where the garbage collector runs, the memory of a run that is over may end, in this thread

    def ours(self, part: Callable[[], T], otherwise: T) -> T:
        """Call ``part``, a piece of VineLM's own code, and return its result. If it raises, return ``otherwise``; with
        ``on_error="raise"`` the exception is raised.
        """
        return part() if self.on_error == "raise" else answered(part, otherwise)

    def add(self, tool: DeclaredTool) -> None:
        """Add a tool; raise :class:`ConfigError` if a different tool of that name is declared.

        A function that builds the graph may run again, perhaps for each user. Several tool objects may thus share a name, if
        their code and declarations are equal.
        """
        name, known, source = tool.says.name, self.declared.get(tool.says.name), _source(tool)
        if known is not None and (known.says != tool.says or known.source != source):
            raise ConfigError(f"two tools are called {name!r}: give one of them another name")
        schema, before = None, () if tool.fixed is None else tool.fixed.before
        if known is None:
            schema = answered(lambda: schema_of(tool.code.tool), None)  # arguments without a schema, such as functions
            self.declared[name] = DeclaredName(tool.says, source, schema, before)
        elif before not in ((), known.before):
            self.declared[name] = known._replace(before=tuple(dict.fromkeys((*known.before, *before))))

    @property
    def guesses(self) -> bool:
        """Whether calls can be predicted before a model writes them."""
        return self.candidates is not None or any(tool.before for tool in self.declared.values())

    def require_stages(self, stages: Collection[str]) -> None:
        """Raise :class:`ConfigError` if the ``before=`` of a tool names a stage that does not exist."""
        for name, tool in self.declared.items():
            wrong = [one for one in tool.before if one not in stages]
            if wrong:
                known = ", ".join(sorted(stages))
                raise ConfigError(f"tool {name!r}: before= names {wrong[0]!r}, which is no stage of the trie: it has {known}")

    def require_reads(self) -> None:
        """Raise :class:`ConfigError` if no declared tool is read-only, so that none could be prefetched."""
        if not any(tool.says.read_only for tool in self.declared.values()):
            raise ConfigError(
                "speculate= has no effect: no tool is declared to read only: vine.tool(fn, read_only=True), or leave it out"
            )

    def schemas(self) -> dict[str, dict[str, Any]]:
        """Return the JSON schema of each declared tool's arguments, as models get it, keyed by the tool's name."""
        return {name: known.schema for name, known in self.declared.items() if known.schema is not None}

    def count(self, what: str) -> None:
        """Increase the count ``what`` by one."""
        with self._lock:
            self.counts[what] += 1

    def write_begins(self, token: object) -> list[Any]:
        """Record that a call of a tool that writes has begun; ``token`` identifies the call.

        Until the call ends, it makes prefetched reads stale, also in runs that begin meanwhile. Returns the
        :class:`ReadAhead` of each run in progress.
        """
        with self._lock:
            self.writing.add(token)
            return list(self.live)

    def write_ends(self, token: object) -> list[Any]:
        """Record that the writing call ``token`` has ended; return the :class:`ReadAhead` of each run in progress."""
        with self._lock:
            self.writing.discard(token)
            return list(self.live)

    def opened(self, memory: Any) -> None:
        """Register ``memory``, the :class:`ReadAhead` of a new run."""
        with self._lock:
            self.live.add(memory)


def schema_of(tool: BaseTool) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments, as models see it."""
    schema: Any = tool.tool_call_schema
    return schema if isinstance(schema, dict) else schema.model_json_schema()


def _source(tool: DeclaredTool) -> Any:
    """Return a value that identifies a tool's code: the same whenever a graph is built again, different for other code. Holds
    no user data.
    """
    inner: Any = tool.code.tool
    written = getattr(inner, "func", None) or getattr(inner, "coroutine", None)
    while isinstance(written, partial):
        written = written.func
    kind = type(inner) if written is None else type(written)
    return getattr(written, "__code__", None) or (kind.__module__, kind.__qualname__)
