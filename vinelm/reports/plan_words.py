"""Formats a plan as one readable line, and as the lines of Python that run it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vinelm.errors import ConfigError
from vinelm.reports.budgets import PlanNode, PlanTree

if TYPE_CHECKING:
    from vinelm.objective import Objective
    from vinelm.trie.annotated_trie import AnnotatedTrie

MODELS = "models.toml"
"""The catalog file of an application, as `vinelm init` names it."""
MOST_STEPS = 6
"""How many steps a line shows; the tree has them all."""


def plan_line(tree: PlanTree) -> str:
    """Return a plan in one line: each step with its model, and the share of all requests that takes each branch.

    For example ``write a → retry b (38 %)``, or with alternatives ``[search a (60 %) | reply b (40 %)]``. For a long
    plan, the line omits the rarest steps and ends with their number.
    """
    steps = sorted((node.share for node in _steps(tree.roots)), reverse=True)
    least = steps[MOST_STEPS - 1] if len(steps) > MOST_STEPS else 0.0
    left = tree.left_out + sum(share < least for share in steps)
    return f"{_branches(tree.roots, least, 1.0)}{f'; {left:,} rarer steps' if left else ''}"


def _steps(nodes: Sequence[PlanNode]) -> list[PlanNode]:
    return [one for node in nodes if node.model is not None for one in (node, *_steps(node.children))]


def _branches(nodes: Sequence[PlanNode], least: float, reach: float) -> str:
    shown = [node for node in nodes if node.share >= least]
    models = [node for node in shown if node.model is not None]
    if not models:
        return ""
    if len(models) == 1:  # the remaining requests have their answer, as the share shows
        return _step(models[0], least, reach)
    return f"[{' | '.join(_step(node, least, reach) for node in shown)}]"


def _step(node: PlanNode, least: float, reach: float) -> str:
    """Return a step and the steps after it in words. Steps reached by less than the share ``least`` of all requests are
    left out.

    ``reach`` is the share of all requests that reach the step before ``node``.
    """
    when = f"if {node.when}: " if node.when else ""
    after = _branches(node.children, least, node.share)
    name = "done" if node.model is None else f"{node.stage} {node.model}"
    share = "" if _percent(node.share) == _percent(reach) else f" ({_percent(node.share)})"
    return f"{when}{name}{share}{f' → {after}' if after else ''}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.005 else "under 1 %"


def serving_lines(objective: Objective, trie: str, *, is_proven: bool = True) -> tuple[str, str]:
    """Return the two lines of Python with which an application serves the objective's plan.

    Args:
        objective: The objective, which maximizes accuracy.
        trie: The name of the trie's file.
        is_proven: Whether the plan is proven; otherwise the lines contain ``allow_unproven=True``.
    """
    allowed = "" if is_proven else ", allow_unproven=True"
    cap = "" if objective.max_cost_usd is None else f", max_cost_usd={objective.max_cost_usd:.3g}"
    cap += "" if objective.mix else ", mix=False"
    return (
        f'vine = VineLM("{MODELS}", trie="{trie}"{allowed})',
        f'app.invoke(inputs, context=vine.context(Objective(maximize="accuracy"{cap})))',
    )


def plan_code(annotated: AnnotatedTrie, trie: str, objective: Objective | None = None) -> list[str]:
    """Return lines of Python that run the plan that the verdict advises or, if ``objective`` is given, the best fixed plan
    for it.

    Args:
        annotated: The trie, with its verdict.
        trie: The name of the trie's file, for lines that load the trie.
        objective: The objective to plan for; None takes the verdict's plan.

    Raises:
        ConfigError: There is no plan to switch to, no fixed plan meets the objective's limits, or the best fixed plan
            ends requests before the application does.
    """
    from vinelm.evaluation.comparison.fit import code_of, ends_early
    from vinelm.evaluation.plans.plans_over import plans_over
    from vinelm.plans.recommendation import served_objective

    verdict = annotated.verdict
    if objective is not None:
        fixed = plans_over(annotated).fixed(objective, "static")
        if fixed is None:
            raise ConfigError("no fixed plan meets the bounds: loosen them")
        if ends_early(fixed):
            raise ConfigError(
                f"the best fixed plan within these bounds, {fixed.words}, ends before your application does, which models alone"
                " cannot say: serve it with VineLM, or loosen the bounds"
            )
        code, words = code_of(fixed), fixed.words
    elif verdict is not None and verdict.plan is not None and verdict.is_fixed:
        code, words = verdict.plan.code, verdict.plan.words
    elif verdict is not None and verdict.advice == "switch" and (served := served_objective(verdict)) is not None:
        is_early = verdict.plan is not None and verdict.plan.policy == "fixed" and verdict.share == 1.0
        why = "The plan ends before the application would" if is_early else "Which model runs depends on the request"
        return [
            f"# {why}: VineLM serves the plan.",
            "from vinelm import Objective, VineLM",
            "",
            *serving_lines(served, trie),
        ]
    else:
        said = "the trie has no verdict: estimate with --check" if verdict is None else verdict.sentence
        raise ConfigError(f"there is no plan to switch to; give an objective for the best fixed one ({said})")
    models = {name: annotated.catalog[name] for _, name in code if name in annotated.catalog}
    names = {name: f"{one.provider}:{one.model_id}" for name, one in models.items()}
    return [
        f"# {words}: the same for every request, so that no runtime is needed",
        "MODELS = {",
        *(f'    "{where}": "{names.get(model, model)}",' for where, model in code),
        "}",
        f'# for example: init_chat_model(MODELS["{code[0][0]}"])' if code else "",
    ]
