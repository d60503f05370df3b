"""Notices that processes of one fleet were given different catalogs, limits or caps, and says what differs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from hashlib import blake2b

from vinelm.controller.fleet.member import Chore, FleetMember
from vinelm.controller.fleet.redis_link import RedisLink

KEPT_S = 86_400.0
ROUNDS = 200
"""What this process was given is shown again every so many rounds: Redis may have forgotten it."""

ADVICE = "each goes by its own; give all processes of a fleet the same catalog, limits and caps"

Facts = Mapping[str, Mapping[str, object]]
"""What a process was given: name (of a model, of an engine's limits) to its fields. No addresses and no keys."""


class CatalogComparison(Chore):
    """Compares what this process was given with what the others were; a chore of the member's thread.

    Processes that differ go on, each by its own: while a new catalog is rolled out they have to. For each other catalog there
    is one warning, with the first thing that differs.

    Args:
        member: of the fleet; knows the others.
        facts: what this process was given; plain JSON types.
    """

    def __init__(self, member: FleetMember, facts: Facts) -> None:
        self._member = member
        self._text = json.dumps(facts, sort_keys=True, separators=(",", ":"), default=str)
        self._facts: Facts = json.loads(self._text)
        self.digest = blake2b(self._text.encode(), digest_size=8).hexdigest()
        self._known, self._rounds = {self.digest}, 0
        member.catalog = self.digest

    def do(self, link: RedisLink) -> None:
        """Show what this process was given, and compare it with what is new of others.

        Raises:
            FleetUnreachable: Redis does not answer.
        """
        if self._rounds % ROUNDS == 0:
            link.set(f"catalog:{self.digest}", self._text.encode(), KEPT_S)
        self._rounds += 1
        for process, digest in self._member.catalogs().items():
            if digest and digest not in self._known:
                theirs = link.get(f"catalog:{digest}")
                if theirs is not None:
                    self._known.add(digest)
                    what = difference(self._facts, json.loads(theirs))
                    warnings.warn(f"this process and {process} of the fleet differ: {what}: {ADVICE}", stacklevel=2)

    def go_alone(self, link: RedisLink) -> None:
        """Nobody is there to be compared with."""
        self._rounds = 0


def difference(mine: Facts, theirs: Facts) -> str:
    """Return the first thing that differs, in one line; both are plain JSON types."""
    for name in sorted({*mine, *theirs}):
        if name not in theirs:
            return f"{name} is only here"
        if name not in mine:
            return f"{name} is only there"
        for key in sorted({*mine[name], *theirs[name]}):
            here, there = mine[name].get(key), theirs[name].get(key)
            if here != there:
                return f"{name}: {key} is {_shown(here)} here and {_shown(there)} there"
    return "nothing that can be shown"


def _shown(value: object) -> str:
    return "not given" if value is None else str(value)
