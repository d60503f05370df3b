"""The record of a request's earlier invocations; replay uses it instead of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage

from vinelm.errors import StoreError
from vinelm.profiler.execution.state_types import StateSerializer

RECORD = b"r"
"""First byte of a record; a checkpoint's first byte says how its run stood."""
DIGEST_SIZE = 32
"""Characters of each digest of a prompt."""
_FORMAT = 1
_SERDE = StateSerializer()  # no pickle


@dataclass(slots=True)
class RecordedCall:
    """One call of a model.

    Attributes:
        digest: two digests of the prompt, one after the other: one of the whole prompt, one of the prompt without times of day.
        answer: the model's message; None if the call failed.
        failure: kind and detail of the failure, if the call failed and the application continued.
    """

    digest: str
    answer: AIMessage | None
    failure: tuple[str, str] | None = None


@dataclass(slots=True)
class RecordedInvocation:
    """A recorded invocation of a stage.

    Attributes:
        latency_s: the invocation's duration in seconds.
        calls: its calls, in the order in which they ended.
    """

    stage: str
    model: str
    latency_s: float = 0.0
    calls: list[RecordedCall] = field(default_factory=list)

    def calls_with(self, digest: str) -> list[RecordedCall]:
        """Return the calls that had this prompt; if there are none, those whose prompt differed in times of day only."""
        whole, timeless = digest[:DIGEST_SIZE], digest[DIGEST_SIZE:]
        same = [call for call in self.calls if call.digest[:DIGEST_SIZE] == whole]
        return same or [call for call in self.calls if timeless and call.digest[DIGEST_SIZE:] == timeless]


@dataclass(frozen=True, slots=True)
class Record:
    """The invocations of a request from its first one on, as far as they are recorded.

    Attributes:
        invocations: the invocations, in the order of the path.
        reached: the stage that was invoked next; None if the request ended.
    """

    invocations: tuple[RecordedInvocation, ...] = ()
    reached: str | None = None

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of the recorded invocations, in order."""
        return tuple(one.stage for one in self.invocations)

    def to_bytes(self) -> bytes:
        """Return the record as bytes that :meth:`from_bytes` reads in any process; equal records give equal bytes."""
        plain = [
            [one.stage, one.model, one.latency_s, [[call.digest, call.answer, call.failure] for call in one.calls]]
            for one in self.invocations
        ]
        return RECORD + _SERDE.dumps_typed([_FORMAT, self.reached, plain])[1]

    @classmethod
    def from_bytes(cls, content: bytes) -> Record:
        """Return the record that ``content`` contains, as :meth:`to_bytes` wrote it.

        Raises:
            StoreError: the bytes are a checkpoint instead, or were written by a newer version.
        """
        if content[:1] != RECORD:
            raise StoreError("the store holds checkpoints, and this workflow is replayed: use another store")
        version, reached, plain = _SERDE.loads_typed(("msgpack", content[1:]))
        if version != _FORMAT:
            raise StoreError(f"the store holds a record of format {version}, which this VineLM does not know: update it")
        return cls(tuple(map(_invocation, plain)), reached)


def _invocation(plain: Sequence[Any]) -> RecordedInvocation:
    stage, model, latency_s, calls = plain
    found = [RecordedCall(digest, answer, None if failure is None else tuple(failure)) for digest, answer, failure in calls]
    return RecordedInvocation(stage, model, latency_s, found)
