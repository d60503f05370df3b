"""No peer: the strongest model everywhere (what the application runs today), and the model that did best alone.

python peer_single.py choose|serve today|best
"""

from __future__ import annotations

import sys

from project import LLM, Project, measured_singles, run, with_llm


def choose(project: Project) -> str:
    """Today's model, or the most accurate of all with the dollars, the cheaper of two that are alike."""
    if sys.argv[2] == "today":
        return project.today
    found = measured_singles(project)
    return max(project.models, key=lambda model: (sum(found[model]), -project.models.index(model)))


def edited(project: Project, chosen: str) -> str:
    """The source with another name of a model."""
    return with_llm(project, LLM.format(today=chosen))


if __name__ == "__main__":
    run(choose, edited)
