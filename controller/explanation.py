"""Why the planner chose one model and not another."""

from __future__ import annotations

from vinelm.controller.planning.decision import Alternative, Decision


def alternatives(decision: Decision) -> list[Alternative]:
    """List ending the request now, if that is allowed, then every next model in trie order, each with its best plan."""
    return decision.alternatives()


def explain(decision: Decision) -> str:
    """Describe the decision as text: what each bound leaves, and one line per alternative that says why it was not chosen."""
    return decision.explain()
