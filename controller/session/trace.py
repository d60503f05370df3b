"""One decision of a session: its question, plan, action and reason."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from vinelm.controller.planning.decision import Decision


class TraceStep(NamedTuple):
    """One decision of a session: the question, the plan if any, the action, and why the action differs from the plan.

    ``kind`` is "begin" (the note names the request's type), "model" (``model`` runs after ``prefix``), "end" (the request
    ends if ``model`` is None), "refused" (``model`` was not called because the request's cap did not allow it) or "failed".
    A "failed" step means that a call failed and no other model was tried, or that VineLM itself failed; in the latter
    case the note names what failed, and ``model`` ran instead. ``is_aside`` marks a failure that changed no decision, such
    as the failure of a load monitor; the step before it stays the last decision.
    """

    kind: Literal["begin", "model", "end", "refused", "failed"]
    prefix: tuple[str, ...]
    stage: str | None
    model: str | None
    elapsed_s: float
    spent_usd: float
    decision: Decision | None
    note: str = ""
    is_aside: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as plain JSON types."""
        plain: dict[str, Any] = {
            "kind": self.kind,
            "prefix": list(self.prefix),
            "stage": self.stage,
            "model": self.model,
            "elapsed_s": self.elapsed_s,
            "spent_usd": self.spent_usd,
            "note": self.note,
        }
        return plain | ({"decision": self.decision.to_dict()} if self.decision else {})

    def explain(self) -> str:
        """Return as text the decision, what each alternative offers, and why each was not chosen."""
        where = "/".join(self.prefix) or "start"
        head = f"[{where}] {self.stage or 'end'}: {self.model or 'end here'}"
        head += f" ({self.elapsed_s:.3g} s and ${self.spent_usd:.4g} used)" + (f" - {self.note}" if self.note else "")
        return head if self.decision is None else f"{head}\n{self.decision.explain()}"
