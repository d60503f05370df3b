"""Finds the rows of a store that are still valid under another identity. Writes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from vinelm.catalog import Price
from vinelm.catalog.prices import is_same_amount
from vinelm.rows.observation import Cell
from vinelm.template import StopRule
from vinelm.template.stop_rules import ENDED_BY
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.growth.conditions import RowConditions

ENDS_EARLIER = "its request now ends earlier"
BROKEN_STAGE = "a stage was broken"
"""The reason why rows were retired that show a fault of the application or its environment; they are never valid again."""


class RequestDigest(NamedTuple):
    """Digests of a request: ``full`` is that of the whole dataset row, ``inputs`` that of the graph's inputs only.

    A digest is None if it is unknown.
    """

    full: str | None
    inputs: str | None


@dataclass(frozen=True, slots=True)
class RecordedCost:
    """The recorded cost of a row (a stored result), with its tokens.

    Attributes:
        cost_usd: the dollars that were charged.
        calls: the number of model calls.
        tokens_in: the number of prompt tokens of all calls; None if unknown.
        tokens_out: the number of completion tokens of all calls; None if unknown.
        tokens_cached: the part of ``tokens_in`` that was read from a prompt cache; None if unknown, which counts as 0.
    """

    cost_usd: float
    calls: int
    tokens_in: int | None
    tokens_out: int | None
    tokens_cached: int | None

    def at(self, recorded: Price, now: Price) -> float | None:
        """Return the row's cost in dollars at a new price; None if no tokens were recorded.

        A part of the cost that the tokens do not explain (billed failed attempts, a discount) changes in the same proportion.

        Args:
            recorded: the price at which ``cost_usd`` was charged.
            now: the new price.
        """
        if self.calls == 0 or is_same_amount(recorded, now):
            return self.cost_usd
        if self.tokens_in is None or self.tokens_out is None:
            return None
        before, after = self._of_tokens(recorded), self._of_tokens(now)
        if before <= 0:
            return after + self.cost_usd
        return after if math.isclose(self.cost_usd, before) else after * self.cost_usd / before

    def _of_tokens(self, price: Price) -> float:
        assert self.tokens_in is not None
        assert self.tokens_out is not None
        tokens_usd = price.cost_usd(self.tokens_in, self.tokens_out, self.tokens_cached or 0) - price.call
        return tokens_usd + price.call * self.calls


@dataclass(frozen=True, slots=True)
class StoredRow:
    """The fields of a current or retired (no longer used) row that are needed to decide whether it is valid.

    Attributes:
        row_id: the row's number in its table.
        cell: the request and the prefix of the row.
        stages: the stages of the row's calls; None if unknown.
        arm: the stage that came next; None on a linear template, or if the request ended.
        success, stopped, failure: the score, whether the workflow's own check ended the request, and the kind of failure, as in
            :class:`~vinelm.rows.observation.Observation`.
        cost: the dollars charged, with the tokens.
        cost_usd: the row's current dollars, after price changes.
        identity_id: the number of the identity under which the row was executed.
        scored_id: the number of the identity under which ``success`` was computed.
        request: the request's digests when the row was executed and scored.
        has_state: whether the workflow state after the row is stored.
        unscored_id: the number of the identity under which scoring the row again failed; None if it did not fail.
        reason: why the row was retired; None for a current row.
        is_continued: whether the row follows an answer that the workflow's own check passed.
    """

    row_id: int
    cell: Cell
    stages: tuple[str | None, ...]
    arm: str | None
    success: bool | None
    stopped: bool | None
    failure: str | None
    cost: RecordedCost
    cost_usd: float
    identity_id: int
    scored_id: int
    request: RequestDigest
    has_state: bool
    unscored_id: int | None = None
    reason: str | None = None
    is_continued: bool = False

    def ended(self, rule: StopRule) -> bool:
        """Return whether, under the stop rule ``rule``, the request ends at this row."""
        return self.failure is not None or bool(getattr(self, ENDED_BY[rule]))


class RowStatus(NamedTuple):
    """The decision of :class:`RowRules` on whether a row is valid.

    Attributes:
        holds: whether the row is valid.
        needs_score: whether the row is valid only after it is scored again.
        reason: why the row is invalid, or must be scored again; empty if it is valid.
    """

    holds: bool
    needs_score: bool = False
    reason: str = ""


class RowRules:
    """Decides whether a row is valid, regardless of the earlier rows on its path.

    Args:
        identities: every identity that the store has had, by number.
        now: the current identity.
        wanted: the requests of the current dataset, by id.
        assumes_scores: whether rows that must be scored again are assumed to keep their success.
    """

    def __init__(
        self,
        identities: Mapping[int, StoreIdentity],
        now: StoreIdentity,
        wanted: Mapping[str, RequestDigest],
        *,
        assumes_scores: bool = False,
    ) -> None:
        self.now = now
        self._identities = identities
        self.template = now.bound_template()
        self.templates = {number: identity.bound_template() for number, identity in identities.items()}
        self.rule = self.template.stop
        self._conditions = {number: RowConditions(identity, now) for number, identity in identities.items()}
        self._prices_now = {model.name: model.price for model in now.models().models}
        self._prices = {
            number: {model.name: model.price for model in identity.models().models} for number, identity in identities.items()
        }
        self._wanted = wanted
        self._assumes_scores = assumes_scores

    def check(self, row: StoredRow) -> RowStatus:
        """Return whether the row is valid, whether it must be scored again, and why it is invalid or must be scored again.

        The reason is empty for a row that is valid as it is.
        """
        request_id, prefix = row.cell
        request = self._wanted.get(request_id)
        if request is None:
            return RowStatus(False, reason="requests that are no longer in the dataset")
        is_same = row.request.full == request.full
        if not is_same and (row.request.inputs is None or row.request.inputs != request.inputs):
            return RowStatus(False, reason="requests whose dataset row changed")
        conditions, arm = self._conditions[row.identity_id], self.arm(row)
        reason = conditions.difference(prefix, row.stages) or conditions.arm_difference(
            row.stages, arm, failure=row.failure, has_ended=row.ended(self.rule)
        )
        if reason is not None:
            return RowStatus(False, reason=reason)
        why = self._conditions[row.scored_id].scoring_difference(row.stages)
        if why is None and not is_same:
            why = "requests whose labels changed"
        if why is None or self._assumes_scores or (row.failure is not None and row.failure != "tool"):
            return RowStatus(True)
        if row.unscored_id is not None and self._identities[row.unscored_id].key == self.now.key:
            return RowStatus(False, reason="scoring them again failed")
        if row.has_state:
            return RowStatus(True, needs_score=True, reason=why)
        return RowStatus(False, reason=f"{why}, and the state was not kept")

    def arm(self, row: StoredRow) -> str | None:
        """Return the stage with which the request continued after the row; None if it ended or the stage is unknown."""
        if row.arm is not None or row.ended(self.rule):
            return row.arm
        follower = self.templates[row.identity_id].stage_after(len(row.cell[1]))
        return self.template.noted(None if follower is None else follower.name)

    def after(self, row: StoredRow) -> Afterwards:
        """Return what follows the row: whether its request ends there, and if not, the stage that comes next."""
        may_continue = row.failure is None and self.template.goes_on_past_ends
        return Afterwards(row.ended(self.rule), self.arm(row), may_continue)

    def cost_usd(self, row: StoredRow) -> float | None:
        """Return the row's cost in dollars at current prices; None if its price changed and no tokens were recorded."""
        model = row.cell[1][-1]
        return row.cost.at(self._prices[row.identity_id][model], self._prices_now[model])


class Afterwards(NamedTuple):
    """How a request continues after a row (one stored result).

    Attributes:
        ended: whether the request ends at the row.
        arm: the stage with which the request continues; None if it ends or the stage is unknown.
        may_continue: whether some later rows stay valid although the request ends at the row: those that a profile bought after
            the workflow's own check had passed an answer.
    """

    ended: bool
    arm: str | None = None
    may_continue: bool = False

    def leads_to(self, row: StoredRow) -> bool:
        """Return whether ``row`` may be the request's next row.

        It may if the request continues, and its next stage is either unknown or the stage of ``row``.
        """
        if self.ended and not (self.may_continue and row.is_continued):
            return False
        return self.arm in (None, row.stages[-1])


@dataclass
class Retirement:
    """The decision on each current row of a store: to keep it, or to retire it (no longer use it).

    ``retire`` has the number of each row to retire, with the reason. ``kept`` has how the request continues after each row to
    keep. ``waiting_rows`` are the numbers of rows in ``retire`` that become valid once they, or rows before them, are scored
    again.
    """

    retire: list[tuple[int, str]] = field(default_factory=list)
    kept: dict[Cell, Afterwards] = field(default_factory=dict)
    """By (request, prefix) of each row to keep, how the request continues after the row."""
    waiting_rows: set[int] = field(default_factory=set)
    """The numbers of rows in ``retire`` that become valid once they, or the rows before them, are scored again."""

    @property
    def waiting(self) -> int:
        """The number of rows to retire that become valid once they, or rows before them, are scored again."""
        return len(self.waiting_rows)


def retirement_of(rows: Iterable[StoredRow], rules: RowRules) -> Retirement:
    """Return which of the current ``rows`` to keep, and which to retire (no longer use).

    If a row is retired, so are the rows after it on its path.
    """
    found = Retirement()
    lost: dict[Cell, str] = {}
    waiting: dict[Cell, str] = {}
    for row in sorted(rows, key=lambda row: (len(row.cell[1]), row.row_id)):
        parent = (row.cell[0], row.cell[1][:-1])
        status = rules.check(row)
        if not status.holds:
            lost[row.cell] = status.reason
        elif parent in lost:
            lost[row.cell] = lost[parent]
        elif parent in found.kept and not found.kept[parent].leads_to(row):  # a missing row, as after an import, is no reason
            lost[row.cell] = ENDS_EARLIER
        elif status.needs_score or parent in waiting:
            waiting[row.cell] = status.reason or waiting[parent]
            found.waiting_rows.add(row.row_id)
        else:
            found.kept[row.cell] = rules.after(row)
            continue
        found.retire.append((row.row_id, lost.get(row.cell) or waiting[row.cell]))
    return found


@dataclass
class Restoration:
    """The numbers of retired (no longer used) rows that are valid now, in three groups; each group in the order of use.

    Attributes:
        restore: the rows to use again at once.
        score: the rows that must be scored again first.
        ended: the rows that are valid, except that their request now ends before them.
    """

    restore: list[int] = field(default_factory=list)
    score: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    """The numbers of rows that are valid except that their request ends before them."""


def restoration_of(retired: Iterable[StoredRow], rules: RowRules, kept: Mapping[Cell, Afterwards]) -> Restoration:
    """Return which retired (no longer used) rows to use again.

    Args:
        retired: the retired rows; if several have the same request and prefix, the last retired row is used.
        rules: decides whether rows are valid.
        kept: how the request continues after each current row, keyed by (request, prefix).
    """
    found, active = Restoration(), dict(kept)
    for row, status in _latest_that_hold(retired, rules):
        request_id, prefix = row.cell
        before = Afterwards(False) if len(prefix) == 1 else active.get((request_id, prefix[:-1]))
        if row.cell in active or before is None:
            continue
        if not before.leads_to(row):
            found.ended.append(row.row_id)
        elif status.needs_score:
            found.score.append(row.row_id)
        else:
            found.restore.append(row.row_id)
            active[row.cell] = rules.after(row)
    return found


def _latest_that_hold(retired: Iterable[StoredRow], rules: RowRules) -> list[tuple[StoredRow, RowStatus]]:
    """Return the retired rows (stored, but no longer used) that are valid now, each with the status that ``rules`` gives it.

    Of several valid rows with the same request and prefix, only the newest is returned. Rows that were retired because of a
    broken stage are left out. Rows with shorter prefixes come first.
    """
    latest: dict[Cell, tuple[StoredRow, RowStatus]] = {}
    for row in sorted(retired, key=lambda row: row.row_id):
        status = rules.check(row)
        if status.holds and row.reason != BROKEN_STAGE:
            latest[row.cell] = row, status
    return sorted(latest.values(), key=lambda one: (len(one[0].cell[1]), one[0].row_id))
