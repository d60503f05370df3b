"""How a fresh process builds the workflow again: by name. Code, graphs and clients are never sent between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from vinelm.catalog import Catalog
from vinelm.errors import ConfigError
from vinelm.requests.protocols import Backend
from vinelm.requests.workflow import Workflow


class LoadedWorkflow(Protocol):
    """The return type of a source's function."""

    @property
    def workflow(self) -> Workflow:
        """The workflow, with a bound template and all its requests."""

    @property
    def catalog(self) -> Catalog:
        """The models."""

    @property
    def backends(self) -> Mapping[str, Backend]:
        """One backend for each provider of the catalog."""


@dataclass(frozen=True, kw_only=True)
class WorkflowSource:
    """A function that builds the workflow in any process.

    Attributes:
        function: ``module:name``.
        arguments: its keyword arguments, plain JSON. The same arguments must give the same workflow everywhere.
    """

    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> LoadedWorkflow:
        """Call the function and return its result. Runs the workflow's own code.

        Raises:
            ConfigError: ``function`` is not ``module:name``.
        """
        module_name, _, name = self.function.partition(":")
        if not name:
            raise ConfigError(f"the source {self.function!r} does not name a function: write module:name")
        loaded: LoadedWorkflow = getattr(import_module(module_name), name)(**self.arguments)
        return loaded
