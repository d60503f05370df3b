"""Which stage comes after a unit on a template that branches, and where the nodes are that follow a loop."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from langgraph.graph import END

from vinelm.adapters.langgraph.path.path_channel import PATH_KEY
from vinelm.errors import TemplateError
from vinelm.template import Template


def stages_in(values: Any) -> tuple[str, ...]:
    """Return the stages that have run so far, as the path in the graph's state has them."""
    path = (values or {}).get(PATH_KEY) if isinstance(values, Mapping) else getattr(values, PATH_KEY, None)
    return () if not path else tuple(entry["stage"] for entry in path["path"])


def arm_after(template: Template, stages: Sequence[str], reached: Iterable[str]) -> tuple[str | None, str | None]:
    """Return the stage that comes next, and what is wrong if the template lacks it there.

    Args:
        template: one that branches.
        stages: those that have run, the unit's own last.
        reached: the stages that the graph is about to run; none where it has ended.

    Returns:
        (stage, None); (None, None) where the graph or the template ends; (None, problem) where they disagree.
    """
    names = list(dict.fromkeys(reached))
    try:
        arms = [stage.name for stage in template.arms_after(stages)]
    except TemplateError as error:
        return None, f"{error}: make graph and template agree"
    if not names or not arms:
        return None, None
    if len(names) == 1 and names[0] in arms:
        return names[0], None
    after = f"after {' > '.join(stages)} the graph goes to {' and '.join(map(repr, names))}"
    if len(names) > 1:
        return None, f"{after} in one superstep: declare them as Parallel, or put an edge between them"
    return None, f"{after}, where the template has {' or '.join(map(repr, arms))}: add an arm for it, with Branch"


def first_boundaries(template: Template, opening: Collection[str], boundaries: Sequence[str]) -> list[str]:
    """Return the stages before which a first invocation pauses.

    The first stage is not among them if nothing precedes it and it is not visited again: one step less, which saves a third of
    the overhead.

    Args:
        template: the workflow's shape.
        opening: the nodes that an edge from the start leads to.
        boundaries: the stages before which every other invocation pauses.
    """
    first, *others = (stage.name for stage in template.first_stages)
    is_again = any(first in level for level in template.flow.stages_at[1:])
    if others or first not in opening or is_again:
        return list(boundaries)
    return [name for name in boundaries if name != first]


def only_ending(ends: Collection[str], holders: Collection[str]) -> str | None:
    """Return the node that follows a loop whose routes lead to ``ends``; None if there is none, or several."""
    (end, *others) = ends or {END}
    return None if others or end == END or end in holders else end
