"""cascadeflow 1.2.0 by its LangChain integration: `CascadeFlow(drafter, verifier, ...)` in place of the chat model.

Followed: `cascadeflow.integrations.langchain` as its docstring shows it, with the pre-router by complexity on, which is the
default. It needs no labels; what it is given of them is used to set what it leaves to its user, the drafter and the
threshold. Half of the dollars measure each model alone: the verifier is the best of them, and the drafters are those that no
cheaper one beats. The other half measures each drafter with the default threshold, 0.7, and with 0.5; the most accurate pair
is kept.
"""

from __future__ import annotations

from typing import Any

from project import Project, frontier, measured, measured_singles, run, with_llm

THRESHOLDS = (0.5, 0.7)
DRAFTERS = 3


def choose(project: Project) -> dict[str, Any]:
    """Drafter, verifier and threshold."""
    *drafters, verifier = frontier(project, measured_singles(project, 0.5))
    ways = [
        {"drafter": drafter, "verifier": verifier, "threshold": threshold}
        for drafter in (drafters or [verifier])[-DRAFTERS:]
        for threshold in THRESHOLDS
    ]
    found = measured(project, {str(i): edited(project, way) for i, way in enumerate(ways)})
    print([(way, sum(found[str(i)]), len(found[str(i)])) for i, way in enumerate(ways)])
    return ways[max(range(len(ways)), key=lambda i: (sum(found[str(i)]), -i))]


def edited(project: Project, chosen: dict[str, Any]) -> str:
    """The source with a cascade as its model."""
    made = "llm = CascadeFlow(\n"
    made += "".join(f'    {role}=ChatOpenAI(model="{chosen[role]}"),\n' for role in ("drafter", "verifier"))
    made += f"    quality_threshold={chosen['threshold']},\n)\n"
    return with_llm(project, made, "from cascadeflow.integrations.langchain import CascadeFlow\n")


if __name__ == "__main__":
    run(choose, edited)
