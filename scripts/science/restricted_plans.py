"""Plans of a restricted policy: the best single model, and the best workflow-level plan."""

from __future__ import annotations

from vinelm.controller import Planner
from vinelm.evaluation.baselines import any_single_model_nodes, workflow_level_nodes
from vinelm.objective import Objective


def best_single_model(planner: Planner, objective: Objective) -> tuple[str, ...]:
    """Plan the best path that runs on one model only; returns its models from the root."""
    return planner.plan(objective, candidates=any_single_model_nodes(planner.annotated)).path


def best_workflow_level(planner: Planner, objective: Objective) -> tuple[str, ...]:
    """Plan the best workflow-level path (the search space of Murakkab); returns its models from the root."""
    return planner.plan(objective, candidates=workflow_level_nodes(planner.annotated)).path
