"""The limits that an owner sets for an autopilot."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinelm.backends.remote.batches import BatchTimes
from vinelm.errors import ConfigError
from vinelm.replay.same import Message, Sameness
from vinelm.traces.databases.address import StoreAddress
from vinelm.trie.verdict import require_max_loss


@dataclass(frozen=True, kw_only=True)
class PilotSettings:
    """The arguments of :class:`~vinelm.autopilot.Autopilot`, except that ``max_loss`` is a fraction here."""

    store: StoreAddress
    max_loss: float
    alpha: float
    shadow_usd_per_day: float
    labels: int
    models: tuple[str, ...]
    same: str | Callable[[str, str], bool] | None
    check: Callable[[Any, Message], bool] | None
    database: str | Path | None
    ignore: Sequence[str]
    audit: float | None
    workers: int
    max_slowdown: float | None = None
    judge: str | None = None
    pause_s: float = 1800.0
    batches: BatchTimes | None = None

    def __post_init__(self) -> None:
        require_max_loss(self.max_loss)
        if not self.max_loss > 0.0:
            raise ConfigError("max_loss is 0: nothing can be proven to lose nothing: give points above 0, such as 1")
        if not 0.0 < self.alpha < 1.0:
            raise ConfigError(f"alpha is {self.alpha}: give a probability above 0 and below 1, such as 0.05")
        if not (self.shadow_usd_per_day > 0.0 and math.isfinite(self.shadow_usd_per_day)):
            raise ConfigError(f"shadow_usd_per_day is {self.shadow_usd_per_day}: give the dollars a day that learning may cost")
        if self.labels < 0:
            raise ConfigError(f"labels is {self.labels}: give how many questions persons are ready to answer, 0 or more")
        if self.workers < 1:
            raise ConfigError(f"workers is {self.workers}: give how many calls are made at a time, 1 or more")
        if self.max_slowdown is not None and not (self.max_slowdown > 0.0 and math.isfinite(self.max_slowdown)):
            raise ConfigError(f"max_slowdown is {self.max_slowdown}: give a multiple of today's seconds, such as 1.5")
        if not (self.pause_s >= 0.0 and math.isfinite(self.pause_s)):
            raise ConfigError(f"pause_s is {self.pause_s}: give the seconds after which a conversation is over, 0 or more")
        self.sameness()

    @property
    def comparing(self) -> dict[str, str]:
        """The settings for comparing answers, by name, as texts. A proof is valid only while these settings stay the same."""
        same = getattr(self.same, "__qualname__", self.same)
        named = {"same": same, "database": self.database, "ignore": sorted(self.ignore), "audit": self.audit}
        return {name: "" if one is None else str(one) for name, one in named.items()}

    def sameness(self) -> Sameness:
        """Return the object that compares answers.

        Raises:
            ConfigError: The function cannot be found, or the database is missing.
        """
        return Sameness(self.same, database=self.database, ignore=self.ignore, audit=self.audit)
