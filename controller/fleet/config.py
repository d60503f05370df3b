"""The settings with which a process joins a fleet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vinelm.errors import ConfigError
from vinelm.requests.names import RunLabel

MOST_DAILY_USD = 1_000_000.0
"""Up to this amount sums of billionths of a dollar stay exact in Redis."""


@dataclass(frozen=True, kw_only=True)
class FleetConfig:
    """The settings with which a process joins a fleet of processes that serve together.

    All processes of a fleet must have the same settings.

    Args:
        url: the Redis that they share: ``redis://host:port/db``, ``rediss://...`` or ``unix://...``.
        name: the fleet's name; fleets of different names may share a Redis.
        required: whether to raise an error if Redis cannot be reached at the start; by default the process continues alone.
        daily_usd: tenant name to the dollars that the tenant's requests may spend per day (UTC), in all processes together;
            ``"*"`` caps each tenant without an entry. Needs ``journal``.
        journal: where the leases of ``daily_usd`` are kept: a SQLite file on a local disk for the processes of one machine, or
            ``postgresql://user@host/database`` (extra ``postgres``) for several.
        conversation_id, tenant: where to find a run's conversation id and tenant: a key of LangGraph's
            ``config["configurable"]``, or a function of that mapping. The tenant's name and a hash of the conversation's id
            leave the process; the id itself does not. The application must authenticate the tenant and never trust a caller's
            claim, because each tenant has separate dollars, conversations and requests.

    Raises:
        ConfigError: a value is out of range, ``daily_usd`` has no ``journal``, or a label is neither a key nor a function.
    """

    url: str = field(repr=False)  # may hold a password
    name: str = "default"
    required: bool = False
    daily_usd: Mapping[str, float] = field(default_factory=dict)
    journal: str | Path | None = field(default=None, repr=False)  # may hold a password
    conversation_id: RunLabel = "thread_id"
    tenant: RunLabel = "tenant"

    def __post_init__(self) -> None:
        for name, label in (("conversation_id", self.conversation_id), ("tenant", self.tenant)):
            if not (callable(label) or (isinstance(label, str) and label)):
                raise ConfigError(f"{name} is {label!r}: give a key of LangGraph's configurable, or a function of it")
        for tenant, usd in self.daily_usd.items():
            if not (isinstance(usd, int | float) and math.isfinite(usd) and 0 < usd <= MOST_DAILY_USD):
                raise ConfigError(
                    f"daily_usd of tenant {tenant!r} is {usd!r}: give dollars, above 0 and up to {MOST_DAILY_USD:g}"
                )
        if self.daily_usd and self.journal is None:
            raise ConfigError(
                "daily_usd needs a journal: give journal=, a SQLite file or a postgresql:// address that all processes reach"
            )
        if self.journal is not None and not self.daily_usd:
            raise ConfigError("journal= has no effect without daily_usd: give tenants a cap, or leave the journal out")
