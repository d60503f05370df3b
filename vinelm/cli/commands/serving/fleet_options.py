"""Options of the commands of a fleet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vinelm.cli.options import option


def redis_option(*, required: bool) -> Callable[[Any], Any]:
    """Return the option that names the fleet's Redis."""
    return option(
        "--redis URL",
        "The fleet's Redis, as in VineLM(fleet=...): redis://host:port/db, rediss://... or unix://...",
        into="url",
        required=required,
        envvar="VINELM_FLEET",
        show_envvar=True,
    )


name_option = option("--name NAME", "The fleet's name.", default="default")
