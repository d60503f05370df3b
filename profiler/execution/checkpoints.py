"""Checkpoints of a LangGraph run as bytes: the state after a sequence of model calls, from which any process can continue.

The same state gives the same bytes (ids, times and random version suffixes are left out), so that equal checkpoints can be
stored once. Uses LangGraph's serializer instead of pickle, see :mod:`vinelm.profiler.execution.state_types`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.serde.types import RESUME

from vinelm.foreign_code import answered, explained
from vinelm.profiler.execution.state_types import StateSerializer

UNIT_KEY = "__vinelm_unit"
"""Key of a run's ``configurable`` that replaces its thread id here, if the application sets a ``thread_id`` itself.

LangGraph leaves keys with this beginning out of the checkpoint's metadata.
"""
_ROOT = ""
"""The namespace of the workflow's own graph. LangGraph lends its checkpointer to every graph that runs inside a node."""
_NS_END = ":"
"""Separates a node from its task's id in a namespace: such a namespace belongs to one execution of the node."""

_FIXED_ID = "00000000-0000-6000-8000-000000000000"  # LangGraph only requires a UUID that sorts before later ones
_FIXED_TIME = "1970-01-01T00:00:00+00:00"


class StateError(Exception):
    """Raised for a workflow state that cannot be checkpointed. The message names the state's key and type, never the value."""


class UnitSaver(BaseCheckpointSaver[int]):
    """A checkpointer that keeps the last checkpoint of each thread, serialized. Resumed states are therefore always normalised
    (tuples become lists), as if they came from another process.

    A graph that is invoked inside a node runs as it would without a checkpointer. Its state is not kept, and it always starts
    from its input. The exception is ``compile(checkpointer=True)``: such a graph remembers its state from one invocation to the
    next, so its state is part of the thread's checkpoint.
    """

    def __init__(self) -> None:
        super().__init__(serde=StateSerializer())
        self._held: dict[str, dict[str, bytes]] = {}  # by thread and namespace
        self._resumed: dict[str, list[tuple[str, str, Any]]] = {}  # by thread: answers that an interrupted node has received
        self.is_comparing = False
        """Compare every state that is put with what is read back, and note differences in ``changed``. Slow; for checks."""
        self.changed: dict[str, str] = {}

    def load(self, thread_id: str, content: bytes) -> None:
        """Set the checkpoint from which the thread resumes; ``content`` is a result of :meth:`dump`."""
        held: dict[str, bytes] = self.serde.loads_typed(("msgpack", content)) if content[:1] in _MAPS else {_ROOT: content}
        self._held[thread_id] = held

    def dump(self, thread_id: str) -> bytes:
        """Return the thread's last checkpoint.

        Raises:
            KeyError: the thread has no checkpoint.
        """
        held = self._held[thread_id]
        if held.keys() == {_ROOT}:
            return held[_ROOT]
        # Sorted, so that equal states give equal bytes in whatever order their graphs ran first.
        return self.serde.dumps_typed(dict(sorted(held.items())))[1]

    def forget(self, thread_id: str) -> None:
        """Delete the thread's checkpoint."""
        self._held.pop(thread_id, None)
        self._resumed.pop(thread_id, None)

    def normalised(self, value: dict[str, Any]) -> Any:
        """Return a graph's input as it is when read back from a checkpoint; for example, tuples become lists.

        Raises:
            StateError: a value cannot be checkpointed; names its key.
        """
        return self.serde.loads_typed(self._dumped(value, value))

    # -- LangGraph's interface ---------------------------------------------------------------------------------

    def get_next_version(self, current: int | None, channel: None) -> int:
        """Return a channel's next version after ``current``, as a plain number, so that equal runs give equal versions."""
        return 1 if current is None else current + 1

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the last checkpoint of the thread and namespace in ``config``; None if there is none."""
        thread_id, namespace = _place(config)
        content = self._held.get(thread_id, {}).get(namespace)
        if content is None:
            return None
        checkpoint, metadata = self.serde.loads_typed(("msgpack", content))
        if namespace != _ROOT:  # a resumed run would resume the inner graph, too, and ignore its input, so only values are kept
            checkpoint = {**checkpoint, "channel_versions": {}, "versions_seen": {}}
        thread = {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint["id"]}
        resumed = self._resumed.get(thread_id, []) if namespace == _ROOT else []
        return CheckpointTuple({"configurable": thread}, checkpoint, metadata, None, resumed)

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Store the checkpoint, serialized, and return the configuration that identifies it.

        Raises:
            StateError: a value cannot be checkpointed; names its key.
        """
        thread_id, namespace = _place(config)
        place = {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint["id"]}
        if _NS_END in namespace:  # belongs to one execution of a node, from which nothing resumes
            return {"configurable": place}
        if self.is_comparing and namespace == _ROOT:
            self._compare(checkpoint["channel_values"])
        plain = {**checkpoint, "id": _FIXED_ID, "ts": _FIXED_TIME}
        constant = {"run_id": ""} if namespace == _ROOT else {"run_id": "", "parents": {}}
        content = self._dumped([plain, {**metadata, **constant}], checkpoint["channel_values"])[1]
        self._held.setdefault(thread_id, {})[namespace] = content
        if namespace == _ROOT:
            self._resumed.pop(thread_id, None)
        return {"configurable": place}

    def put_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        """Store the answers that a node has received so far, if it interrupts the graph several times to ask for answers.

        Ignore other writes, because a failed job runs again from the checkpoint before the job.
        """
        thread_id, _ = _place(config)
        answers = [(task_id, channel, value) for channel, value in writes if channel == RESUME]
        if answers:
            others = [write for write in self._resumed.get(thread_id, []) if write[0] != task_id]
            self._resumed[thread_id] = [*others, *answers]

    def list(self, config: RunnableConfig | None, **_: Any) -> Iterator[CheckpointTuple]:
        """Yield the thread's last checkpoint, if there is one; earlier checkpoints are not kept."""
        found = None if config is None else self.get_tuple(config)
        return iter(() if found is None else (found,))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the last checkpoint of the thread and namespace in ``config``, as :meth:`get_tuple` does."""
        return self.get_tuple(config)

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Store the checkpoint and return its configuration, as :meth:`put` does."""
        return self.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the answers that a node has received so far, as :meth:`put_writes` does."""
        self.put_writes(config, writes, task_id, task_path)

    async def alist(self, config: RunnableConfig | None, **_: Any) -> AsyncIterator[CheckpointTuple]:
        """Yield the thread's last checkpoint, as :meth:`list` does."""
        for found in self.list(config):
            yield found

    def _there_and_back(self, value: Any) -> Any:
        return self.serde.loads_typed(self.serde.dumps_typed(value))

    def _compare(self, values: dict[str, Any]) -> None:
        for key, value in values.items():
            back = answered(partial(self._there_and_back, value), value)  # put() raises for values that cannot be written
            if repr(back) != repr(value):
                same = type(back) is type(value)
                if same and repr(_with_lists(back)) == repr(_with_lists(value)):
                    continue  # tuples inside, which LangGraph's own checkpointers turn into lists, too
                inside = "inside it something comes back as another type" if same else f"comes back as {_type_name(back)}"
                self.changed[key] = f"the key {key!r} ({_type_name(value)}): {inside}"

    def _dumped(self, whole: Any, values: dict[str, Any]) -> tuple[str, bytes]:
        """Return ``whole``, a checkpoint with its metadata, in serialized form: (type, bytes).

        Raises :class:`StateError` if one of the state's ``values`` cannot be serialized.
        """
        with explained(lambda error: self._culprit(values) or error):
            return self.serde.dumps_typed(whole)

    def _culprit(self, values: dict[str, Any]) -> StateError | None:
        for key, value in values.items():
            try:
                self.serde.dumps_typed(value)
            except Exception as error:  # a type of the application may raise anything when it is serialized
                return StateError(f"the state's key {key!r} ({_type_name(value)}) cannot be checkpointed: {_first_line(error)}")
        return None


_MAPS = frozenset(bytes([first]) for first in (*range(0x80, 0x90), 0xDE, 0xDF))
"""First bytes of a msgpack map, used for several namespaces. The checkpoint of only the root graph is an array."""


def _place(config: RunnableConfig) -> tuple[str, str]:
    """Return the thread id and the namespace in a LangGraph configuration."""
    configurable = config["configurable"]
    return configurable.get(UNIT_KEY) or configurable["thread_id"], configurable.get("checkpoint_ns") or _ROOT


def _with_lists(value: Any) -> Any:
    """Return the value with lists instead of tuples, at any depth of lists and dicts."""
    if type(value) in {list, tuple}:
        return [_with_lists(item) for item in value]
    return {key: _with_lists(item) for key, item in value.items()} if type(value) is dict else value


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _first_line(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text if "serializable" in text else type(error).__name__  # any other text may contain the value
