"""Why the planner chose one model and not another."""

from __future__ import annotations

from vinelm.controller.planning.decision import Decision


def explain(decision: Decision) -> str:
    """Describe the decision as text: what each bound leaves, and one line per alternative that says why it was not chosen."""
    return decision.explain()
