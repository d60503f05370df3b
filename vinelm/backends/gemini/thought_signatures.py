"""Gemini's thought signatures: it signs its tool calls and requires them back, but LangChain's tool calls cannot carry them."""

from __future__ import annotations

import base64
import threading
from collections import OrderedDict
from dataclasses import dataclass

KEPT = 10_000
UNSIGNED = ("gemini-1", "gemini-2", "gemma")
"""Prefixes of the names of models without signatures."""
NO_SIGNATURE = base64.urlsafe_b64decode("skip_thought_signature_validator")
"""The placeholder for a call of another model: https://ai.google.dev/gemini-api/docs/thought-signatures"""


class Signatures:
    """The last :data:`KEPT` signed calls of this process, by model and call id. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], bytes | None] = OrderedDict()

    def of(self, model_id: str) -> ModelSignatures:
        """Return the signatures of one model."""
        return ModelSignatures(self, model_id)

    def put(self, model_id: str, call_id: str, signature: bytes | None) -> None:
        """Store a call's signature; None for an unsigned call."""
        with self._lock:
            self._known[model_id, call_id] = signature
            if len(self._known) > KEPT:
                self._known.popitem(last=False)

    def get(self, model_id: str, call_id: str) -> bytes | None:
        """Return the signature of a call, or the placeholder if this process did not see the model make it."""
        with self._lock:
            return self._known.get((model_id, call_id), NO_SIGNATURE)


@dataclass(frozen=True, slots=True)
class ModelSignatures:
    """The signatures of one model."""

    signatures: Signatures
    model_id: str

    def remember(self, call_id: str, signature: bytes | None) -> None:
        """Store the signature of a call. Of parallel calls, the model signs only the first."""
        self.signatures.put(self.model_id, call_id, signature)

    def known(self, call_id: str) -> bytes | None:
        """Return the signature to send with the call; None if the model uses none."""
        return None if self.model_id.startswith(UNSIGNED) else self.signatures.get(self.model_id, call_id)
