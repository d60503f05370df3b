"""Options of the commands of a fleet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def redis_option(*, required: bool) -> Callable[[Any], Any]:
    """Return the option that names the fleet's Redis."""
    return click.option(
        "--redis", "url", required=required, metavar="URL", envvar="VINELM_FLEET", show_envvar=True,
        help="The fleet's Redis, as in VineLM(fleet=...): redis://host:port/db, rediss://... or unix://...",
    )  # fmt: skip


name_option = click.option("--name", default="default", show_default=True, metavar="NAME", help="The fleet's name.")
