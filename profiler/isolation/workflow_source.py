"""How a fresh process makes the workflow again: by name. Code, graphs and clients never cross from process to process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from vinelm.catalog import Catalog
from vinelm.errors import ConfigError
from vinelm.protocols import Backend
from vinelm.workflow import Workflow


class LoadedWorkflow(Protocol):
    """What a source's function returns."""

    @property
    def workflow(self) -> Workflow:
        """Its template bound, its requests all there."""

    @property
    def catalog(self) -> Catalog:
        """The models."""

    @property
    def backends(self) -> Mapping[str, Backend]:
        """One per provider of the catalog."""


@dataclass(frozen=True, kw_only=True)
class WorkflowSource:
    """A function, ``module:name``, and its keyword arguments, plain JSON: the same call gives the same workflow anywhere."""

    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> LoadedWorkflow:
        """Call it. Runs the workflow's own code."""
        module_name, _, name = self.function.partition(":")
        if not name:
            raise ConfigError(f"the source {self.function!r} is no function: write module:name")
        loaded: LoadedWorkflow = getattr(import_module(module_name), name)(**self.arguments)
        return loaded
