"""Options of the commands of a fleet."""

from __future__ import annotations

import click

from vinelm.cli.options import stacked

fleet_options = stacked(
    click.option(
        "--redis", "url", required=True, metavar="URL", envvar="VINELM_FLEET", show_envvar=True,
        help="The fleet's Redis, as in VineLM(fleet=...): redis://host:port/db, rediss://... or unix://...",
    ),
    click.option("--name", default="default", show_default=True, metavar="NAME", help="The fleet's name."),
)  # fmt: skip
