"""Plans of a restricted policy: the best single model, and the best workflow-level plan."""

from __future__ import annotations

from vinelm.controller import Planner
from vinelm.evaluation.plans.path_plans import workflow_level_nodes
from vinelm.objective import Objective
from vinelm.plans.promise import single_model_paths


def best_single_model(planner: Planner, objective: Objective) -> tuple[str, ...]:
    """Plan the best path that runs on one model only; returns its models from the root."""
    return planner.plan(objective, candidates=single_model_paths(planner.trie)).path


def best_workflow_level(planner: Planner, objective: Objective) -> tuple[str, ...]:
    """Plan the best workflow-level path (the search space of Murakkab); returns its models from the root."""
    return planner.plan(objective, candidates=workflow_level_nodes(planner.annotated)).path
