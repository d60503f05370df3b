"""The identity of a store: the workflow, models, prices and dataset with which its results were made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from vinelm.catalog import Catalog
from vinelm.template import Template


@dataclass(frozen=True, kw_only=True)
class StoreIdentity:
    """The workflow, models and data with which a store's results were made, as plain JSON.

    Args:
        workflow: name of the workflow.
        template: the template, bound to ``catalog``.
        catalog: the models and the prices that the rows were charged at.
        dataset_digest: digest of the dataset.
        fingerprint: maps each part of the workflow (``graph``, ``stage generate``, ``resource db/x.sqlite``) to its digest, so
            that messages can name the changed part.
        is_simulated: whether the models are simulated.
        created_at: the time of creation in ISO format; ignored when identities are compared.
    """

    workflow: str
    template: Mapping[str, Any]
    catalog: Mapping[str, Any]
    dataset_digest: str
    fingerprint: Mapping[str, str]
    is_simulated: bool
    created_at: str = field(default="", compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values; ``StoreIdentity(**fields)`` restores the identity."""
        return asdict(self)

    def to_json(self) -> str:
        """Return the identity as canonical JSON text, which :meth:`from_json` reads."""
        return _canonical(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> StoreIdentity:
        """Return the identity that :meth:`to_json` wrote as ``text``; raise ``ValueError`` or ``TypeError`` for other texts."""
        return cls(**json.loads(text))

    @property
    def key(self) -> str:
        """The identity as canonical JSON text, without the time of creation. Equal identities have equal keys."""
        return _canonical({**self.to_dict(), "created_at": ""})

    def bound_template(self) -> Template:
        """Return the identity's template, which is bound to models, as a :class:`Template`."""
        return Template.from_dict(self.template)

    def models(self) -> Catalog:
        """Return the models with the prices at which the store's results were charged.

        Only read these models; never call them, because a store may come from an untrusted source.
        """
        return Catalog.embedded(self.catalog, where="the store's catalog")

    def settings(self) -> Catalog:
        """Return the catalog of models that the store recorded, so that the settings of its models can be compared.

        Only read these models; never call them, because a store may come from an untrusted source.
        """
        return Catalog.from_dict(self.catalog, where="the store's catalog")

    def stranger(self, other: StoreIdentity) -> str | None:
        """Return why no row of this identity can be valid under ``other``; None if some rows may be valid.

        The reason is a text. Two reasons are possible: the workflows differ, or only one of the identities has simulated
        models.
        """
        if self.workflow != other.workflow:
            return f"it belongs to the workflow {self.workflow!r}, not {other.workflow!r}"
        if self.is_simulated != other.is_simulated:
            kind = {True: "simulated", False: "real"}
            return f"it holds answers of {kind[self.is_simulated]} models, not of {kind[other.is_simulated]} ones"
        return None

    def difference(self, other: StoreIdentity) -> str | None:
        """Return a text on how ``other`` differs from this identity; None if they are equal."""
        stranger = self.stranger(other)
        if stranger is not None:
            return stranger
        for name, label in (("template", "the template"), ("catalog", "the catalog"), ("dataset_digest", "the dataset")):
            if _canonical(getattr(self, name)) != _canonical(getattr(other, name)):
                return f"{label} changed since it was made"
        parts = sorted({*self.fingerprint, *other.fingerprint})
        changed = [part for part in parts if self.fingerprint.get(part) != other.fingerprint.get(part)]
        return f"the workflow changed since it was made ({', '.join(changed)})" if changed else None


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)  # TOML may contain dates
