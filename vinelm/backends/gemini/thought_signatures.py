"""Gemini's thought signatures: it signs its tool calls and requires them back, but LangChain's tool calls cannot carry them."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from vinelm.backends.remote.call_memory import CallMemory

UNSIGNED = ("gemini-1", "gemini-2", "gemma")
"""Prefixes of the names of models without signatures."""
NO_SIGNATURE = base64.urlsafe_b64decode("skip_thought_signature_validator")
"""The placeholder for a call of another model: https://ai.google.dev/gemini-api/docs/thought-signatures"""


@dataclass(frozen=True, slots=True)
class ModelSignatures:
    """The signatures of one model's tool calls."""

    signatures: CallMemory[bytes | None]
    model_id: str

    def remember(self, call_id: str, signature: bytes | None) -> None:
        """Store the signature of a call. Of parallel calls, the model signs only the first."""
        self.signatures.put(self.model_id, call_id, signature)

    def known(self, call_id: str) -> bytes | None:
        """Return the signature to send with the call; None if the model uses none."""
        return None if self.model_id.startswith(UNSIGNED) else self.signatures.get(self.model_id, call_id, NO_SIGNATURE)
