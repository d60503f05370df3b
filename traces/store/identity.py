"""Whose observations a store holds: rows of different workflows, prices or data must never mix."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from vinelm.catalog import Catalog
from vinelm.template import Template


@dataclass(frozen=True, kw_only=True)
class StoreIdentity:
    """Plain JSON throughout. ``template`` is bound to ``catalog``; ``fingerprint`` maps each part of the workflow (``graph``,
    ``stage generate``, ``resource db/x.sqlite``) to a digest, so that a mismatch can name what changed. ``created_at`` is an
    ISO time and no part of the comparison.
    """

    workflow: str
    template: Mapping[str, Any]
    catalog: Mapping[str, Any]
    dataset_digest: str
    fingerprint: Mapping[str, str]
    is_simulated: bool
    created_at: str = field(default="", compare=False)

    def to_json(self) -> str:
        """Canonical JSON text, read back by :meth:`from_json`."""
        return _canonical(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> StoreIdentity:
        """The identity that :meth:`to_json` wrote. ``ValueError`` or ``TypeError`` if it is not one."""
        return cls(**json.loads(text))

    def bound_template(self) -> Template:
        """The template, as a core object."""
        return Template.from_dict(self.template)

    def models(self) -> Catalog:
        """The catalog with the prices that the rows were bought at, as a core object."""
        return Catalog.from_dict(self.catalog, where="the store's catalog")

    def difference(self, other: StoreIdentity) -> str | None:
        """What sets ``other`` apart from this, in a few words; None if nothing does."""
        if self.workflow != other.workflow:
            return f"it belongs to the workflow {self.workflow!r}, not {other.workflow!r}"
        if self.is_simulated != other.is_simulated:
            kind = {True: "simulated", False: "real"}
            return f"it holds answers of {kind[self.is_simulated]} models, not of {kind[other.is_simulated]} ones"
        for name, label in (("template", "the template"), ("catalog", "the catalog"), ("dataset_digest", "the dataset")):
            if _canonical(getattr(self, name)) != _canonical(getattr(other, name)):
                return f"{label} changed since it was made"
        parts = sorted({*self.fingerprint, *other.fingerprint})
        changed = [part for part in parts if self.fingerprint.get(part) != other.fingerprint.get(part)]
        return f"the workflow changed since it was made ({', '.join(changed)})" if changed else None


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)  # TOML may hold dates
