"""The signatures that Gemini puts on its tool calls and wants back with them. LangChain's tool calls have no place for them."""

from __future__ import annotations

import base64
import threading
from collections import OrderedDict
from dataclasses import dataclass

KEPT = 10_000
UNSIGNED = ("gemini-1", "gemini-2", "gemma")
"""Beginnings of the names of models that do without."""
NO_SIGNATURE = base64.urlsafe_b64decode("skip_thought_signature_validator")
"""What a client sends for a call that another model made: https://ai.google.dev/gemini-api/docs/thought-signatures"""


class Signatures:
    """The last :data:`KEPT` signed calls of this process, by model and call id. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], bytes | None] = OrderedDict()

    def of(self, model_id: str) -> ModelSignatures:
        """Those of one model."""
        return ModelSignatures(self, model_id)

    def put(self, model_id: str, call_id: str, signature: bytes | None) -> None:
        """Keep one; None for a call that came unsigned."""
        with self._lock:
            self._known[model_id, call_id] = signature
            if len(self._known) > KEPT:
                self._known.popitem(last=False)

    def get(self, model_id: str, call_id: str) -> bytes | None:
        """The signature of a call; the stand-in for one that this process did not see that model make."""
        with self._lock:
            return self._known.get((model_id, call_id), NO_SIGNATURE)


@dataclass(frozen=True, slots=True)
class ModelSignatures:
    """The signatures of one model."""

    signatures: Signatures
    model_id: str

    def remember(self, call_id: str, signature: bytes | None) -> None:
        """The model made that call, signed or not: of parallel calls it signs the first."""
        self.signatures.put(self.model_id, call_id, signature)

    def known(self, call_id: str) -> bytes | None:
        """What goes back with the call; None where nothing does."""
        return None if self.model_id.startswith(UNSIGNED) else self.signatures.get(self.model_id, call_id)
