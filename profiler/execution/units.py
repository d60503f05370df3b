"""Chooses how the units of a workflow are run: from checkpoints where its graph allows that, else by replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from vinelm.catalog import Catalog
from vinelm.profiler.execution.replayed.runner import ReplayRunner
from vinelm.profiler.execution.unit import NeedsReplayError, UnitRunner
from vinelm.protocols import Backend
from vinelm.workflow import Workflow

Units: TypeAlias = UnitRunner | ReplayRunner


def make_units(workflow: Workflow, catalog: Catalog, backends: Mapping[str, Backend]) -> Units:
    """Return the runner of a workflow's units. Builds its graph, and runs none of it.

    Raises:
        WorkflowError: the workflow cannot be profiled as it stands.
    """
    try:
        return UnitRunner(workflow, catalog, backends)
    except NeedsReplayError as needed:
        return ReplayRunner(workflow, catalog, backends, str(needed))


__all__ = ["Units", "make_units"]
