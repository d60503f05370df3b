"""Which Ray cluster executes the units. Imports no Ray."""

from __future__ import annotations

import os
from dataclasses import dataclass

from vinelm.errors import ConfigError

LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class RayCluster:
    """A Ray cluster that executes the units of a profile.

    Attributes:
        address: ``HOST:PORT`` of the head node; ``"auto"`` for the one that this machine belongs to, or that ``RAY_ADDRESS``
            names; ``"local"`` to start one on this machine for the run.
        ships_folder: copy the working directory to the nodes, without ``.env``, version control and environments. Otherwise
            they need it at the same path.

    Raises:
        ConfigError: the address is one of Ray Client, which cannot be used (``ray-client``).
    """

    address: str = "auto"
    ships_folder: bool = False

    def __post_init__(self) -> None:
        if "://" in self.address:
            raise ConfigError(
                f"{self.address}: run the profile on a machine of the cluster, and give HOST:PORT or auto", code="ray-client"
            )

    @property
    def is_local(self) -> bool:
        """Whether a cluster is started for the run."""
        return self.address == LOCAL

    def environment(self) -> dict[str, str]:
        """Return the environment of the process that speaks to Ray. A cluster that it starts reports no usage statistics."""
        return {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"} if self.is_local else dict(os.environ)
