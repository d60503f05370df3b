"""The application's declaration of what a tool may do. Undeclared tools are never prefetched."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from vinelm.errors import ConfigError

Scope = Literal["session", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDeclaration:
    """What a tool may do.

    Args:
        name: the tool's name, by which models call it.
        read_only: whether the tool changes nothing, so that an unused call does no harm.
        writes: which earlier tool results may be outdated after a call: those of this ``"session"``, or those of
            ``"all"`` sessions. None for a read-only tool.
        cost_usd: cost of one call in dollars, >= 0.
        ttl_s: seconds for which a result stays true, > 0; None if it stays true during the whole run.
        unchecked: whether a call may be prefetched even if the application may still refuse or change it, by an interrupt, a
            middleware or a node in between.

    Raises:
        ConfigError: the tool is declared both read-only and writing, or neither; it is declared writing and unchecked;
            or a number is out of range.
    """

    name: str
    read_only: bool = False
    writes: Scope | None = None
    cost_usd: float = 0.0
    ttl_s: float | None = None
    unchecked: bool = False

    def __post_init__(self) -> None:
        if self.read_only == (self.writes is not None):
            raise ConfigError(f'tool {self.name!r}: say read_only=True, or writes="session" or "all"')
        if self.writes not in (None, "session", "all"):
            raise ConfigError(f'tool {self.name!r}: writes is {self.writes!r}: it must be "session" or "all"')
        if self.unchecked and not self.read_only:
            raise ConfigError(
                f"tool {self.name!r} writes, and is never called ahead: leave unchecked= out, or say read_only=True"
            )
        if not (self.cost_usd >= 0.0 and math.isfinite(self.cost_usd)):
            raise ConfigError(f"tool {self.name!r}: cost_usd is {self.cost_usd}: give the dollars of a call, >= 0")
        if self.ttl_s is not None and not self.ttl_s > 0.0:
            raise ConfigError(f"tool {self.name!r}: ttl_s is {self.ttl_s}: give seconds > 0, or leave it out")
