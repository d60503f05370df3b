"""Describes, for messages, what changed between two identities of a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vinelm.template import Template
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.growth.plan import RequestDigest


def changes_between(
    before: StoreIdentity,
    now: StoreIdentity,
    known: Mapping[str, RequestDigest],
    wanted: Mapping[str, RequestDigest],
) -> list[str]:
    """Return a short text for each change of the dataset, models, prices, template or workflow.

    ``known`` and ``wanted`` are the digests of the requests before and after the change, by request id.
    """
    return [*_dataset(before, now, known, wanted), *_models(before, now), *_template(before, now), *_parts(before, now)]


def _dataset(
    before: StoreIdentity, now: StoreIdentity, known: Mapping[str, RequestDigest], wanted: Mapping[str, RequestDigest]
) -> Iterator[str]:
    if before.dataset_digest == now.dataset_digest:
        return
    counts = {
        "new": sum(key not in known for key in wanted),
        "removed": sum(key not in wanted for key in known),
        "changed": sum(key in wanted and wanted[key].full != digest.full for key, digest in known.items()),
    }
    words = [f"{count:,} {word}" for word, count in counts.items() if count]
    yield f"dataset ({', '.join(words)})" if words else "order of the dataset"


def _models(before: StoreIdentity, now: StoreIdentity) -> Iterator[str]:
    old, new = before.settings(), now.settings()
    for name in new:
        if name not in old:
            yield f"model {name!r} added"
        elif old[name].price != new[name].price:
            yield f"price of {name!r}"
        elif old[name] != new[name]:
            changed = [
                field for field in type(new[name]).model_fields if getattr(old[name], field) != getattr(new[name], field)
            ]
            yield f"{', '.join(changed)} of {name!r}"
    yield from (f"model {name!r} removed" for name in old if name not in new)
    if dict(old.backends) != dict(new.backends):
        yield "backend settings"
    if list(old) != list(new) and set(old) == set(new):
        yield "order of the models"


def _template(before: StoreIdentity, now: StoreIdentity) -> Iterator[str]:
    old, new = before.bound_template(), now.bound_template()
    if _shape(old) != _shape(new):
        yield f"template ({old.depth} to {new.depth} invocations)" if old.depth != new.depth else "template"


def _shape(template: Template) -> list[object]:
    positions = [list(position.arms.items()) for position in template.flow.positions]
    return [template.stop, positions, *((stage.name, stage.answerable) for stage in template.stages)]


def _parts(before: StoreIdentity, now: StoreIdentity) -> Iterator[str]:
    mine, theirs = before.fingerprint, now.fingerprint
    yield from (part for part in sorted({*mine, *theirs}) if mine.get(part) != theirs.get(part))
