"""Stores the request types that the workflow declares, and distinguishes a store's rows by request type."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import delete, select

from vinelm.rows.kinds import titled
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.template.kinds import LEAST_ANSWERS, LEAST_REQUESTS, learnt_kinds, of_kinds
from vinelm.traces.databases import schema
from vinelm.traces.store.store import ObservationStore

KINDS = "kinds"
"""The key of ``meta`` with the type of each request, as a JSON object; missing if no types are declared."""


def request_kinds(store: ObservationStore) -> dict[str, str]:
    """Return the type of each request of a store, by request id; empty if no types are declared."""
    with store.database.transaction() as connection:
        text = connection.execute(select(schema.meta.c.value).where(schema.meta.c.key == KINDS)).scalar()
    return {} if text is None else dict(json.loads(text))


def set_request_kinds(store: ObservationStore, kinds: Mapping[str, str]) -> None:
    """Replace the stored type of each request by ``kinds``; if it is empty, remove all types. Durable when it returns."""
    with store.database.transaction() as connection:
        if kinds:
            schema.set_meta(connection, KINDS, json.dumps(dict(kinds), sort_keys=True))
        else:
            connection.execute(delete(schema.meta).where(schema.meta.c.key == KINDS))


def told_apart(
    store: ObservationStore, rows: Iterable[Observation], template: Template, *, learn: bool = True
) -> tuple[list[Observation], Template]:
    """Return the rows and the template, changed so that each request type has separate stages; without types, both are
    unchanged.

    Args:
        store: The store, which is only read.
        rows: Rows of the store.
        template: The bound template of the store, or of a trie estimated from it.
        learn: Whether to learn types from the rows if the template has none; otherwise the template's types are used.
    """
    rows = list(rows)
    found = request_kinds(store)
    if learn:
        template = of_kinds(template, learnt(rows, found, template))
    if any(stage.name == row.stage for row in rows[:1] for stage in template.stages):
        return rows, template  # without kinds, or served rows, which name the stages of their kind
    base = template.base
    return [titled(row, template.counts_as(found.get(row.request_id)), base) for row in rows], template


def learnt_of_requests(store: ObservationStore, template: Template) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the type of each registered request, by request id, and the reason why an estimate ignores declared types.

    The types are empty if the template has none. The reason is a tuple with one sentence if the store declares types that the
    template does not distinguish; otherwise it is empty.

    Args:
        store: The store, which is only read.
        template: The template of an estimate of the store.
    """
    found = request_kinds(store)
    if template.kinds:
        return {name: template.counts_as(found.get(name)) for name in store.request_ids()}, ()
    why = (
        f"Kinds of request are declared and not told apart: two need at least {LEAST_REQUESTS} profiled requests each, and"
        f" {LEAST_ANSWERS:g} first answers per model."
    )
    return {}, (why,) * bool(found)


def learnt(rows: Sequence[Observation], kinds: Mapping[str, str], template: Template) -> tuple[str, ...]:
    """Return the request types that have enough profiled requests and first answers to be distinguished.

    See :func:`~vinelm.template.kinds.learnt_kinds`.

    Args:
        rows: Rows of a store.
        kinds: The type of each request, by request id.
        template: A bound template without types.
    """
    first = [kinds[row.request_id] for row in rows if row.depth == 1 and row.request_id in kinds]
    models = {model for stage in template.first_stages for model in stage.models or ()}
    answers = {kind: count / max(len(models), 1) for kind, count in Counter(first).items()}
    profiled = dict.fromkeys(row.request_id for row in rows)
    return learnt_kinds((kinds[name] for name in profiled if name in kinds), answers)
