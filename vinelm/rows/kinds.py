"""Converts rows between the stage names of a template with request types and the application's own stage names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.template.template import stage_title


def untitled(rows: Iterable[Observation], template: Template) -> list[Observation]:
    """Return the rows with the application's own stage names instead of those of a template with request types.

    A row's ``arm`` (the stage that came next) becomes None if only one stage can follow in the application's own
    template.

    Args:
        rows: Rows with the stage names of ``template``.
        template: The template with request types.
    """
    names, base = template.base_stages, template.base

    def plain(row: Observation) -> Observation:
        # If only one stage may follow, the application's own rows need not say which one did.
        arm = names.get(row.arm or "") if base.stage_after(row.depth) is None else None
        return replace(row, stage=names[row.stage], arm=arm)

    return list(map(plain, rows))


def titled(row: Observation, kind: str, base: Template) -> Observation:
    """Return the row with the stage names that a template with request types has for requests of type ``kind``.

    Args:
        row: A row with the application's own stage names. If the request continues, the result's ``arm`` names the next stage,
            even if only one can follow.
        kind: The request's type.
        base: The application's own template.
    """
    arm = row.arm
    if arm is None and row.failure is None and not row.ended(base.stop):
        follows = base.stage_after(row.depth)
        arm = None if follows is None else follows.name
    return replace(row, stage=stage_title(row.stage, kind), arm=None if arm is None else stage_title(arm, kind))
