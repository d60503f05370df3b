"""Keeps the sampler's request paths in canonical order, and the maximum prices that apply to each
(docs/architecture.md#invariants).

Jobs run in parallel and finish in any order. Nevertheless a parallel run *admits* the same calls as a sequential run. Calls are
committed in the order of the paths, and limits are checked at each commit. A later call starts early only if no outcome of
earlier calls could exclude it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from vinelm.profiler.execution.ledger import PriceBound
from vinelm.requests.protocols import RequestPath, Sampler
from vinelm.rows.observation import Cell, Observation
from vinelm.template import StopRule, Template

LARGEST_BLOCK = 256
DOUBLINGS = LARGEST_BLOCK.bit_length() - 1
"""How many blocks are smaller than the largest ones."""
FEW_DOUBLINGS = 5
"""The same if calls go in batches, where a block that waits for another waits for hours: the bounds then learn mainly from the
first 31 paths, most of which are timed."""


Visit = tuple[str, str]
"""(stage, model) of one invocation."""


class ActivePath:
    """A request path in progress. Each call's result determines the next stage, and so the next model.

    The path's models depend only on the results of its calls, not on timing. If the template does not branch, the whole path
    is known from the beginning. If the first stage is unknown before it runs, all possible first stages have the same model.

    Args:
        request_path: the path that the sampler proposed.
        number: the path's position among all paths of the run.
        template: a template bound to the catalog's models.
        round_: the number of the sampler's round that proposed it.
        may_go_on: whether the workflow can continue after a passed check. If it cannot, or if the template branches, the path
            ends there even if the sampler proposed to continue.

    Attributes:
        choices: the sampler's proposal: for each call a model, or a model for each possible stage.
        models: the models of the path's calls, as far as they are known.
        probability: see :class:`~vinelm.requests.protocols.RequestPath`.
        goes_on: whether the path is executed to its end even if an earlier answer passes the workflow's own check.
        committed: the number of committed calls.
        is_timed: whether its calls are made directly instead of in batches; see :class:`TimedPaths`.
    """

    __slots__ = (
        "_ahead", "_beyond", "_certain", "_coming", "_executed", "_is_over", "_position", "_stages", "_template", "choices",
        "committed", "goes_on", "is_timed", "models", "number", "probability", "request_id", "round",
    )  # fmt: skip

    def __init__(
        self, request_path: RequestPath, number: int, template: Template, round_: int = 0, *, may_go_on: bool = True
    ) -> None:
        self.request_id = request_path.request_id
        self.round, self.probability = round_, request_path.probability
        self.goes_on = request_path.goes_on and may_go_on and template.goes_on_past_ends
        self.models: tuple[str, ...] = ()
        self.number = number
        self.committed = 0
        self.is_timed = True
        self._executed = 0
        self._template = template
        self.choices = request_path.path
        self._stages: list[str] = []  # the stages of the cells that have a row, after which the path continues
        self._position = 0  # the position in the template's flow after them
        self._coming: str | None = None  # the next stage after them, once it is known
        self._is_over = False
        self._ahead: list[tuple[Visit, ...]] | None = None
        self._beyond: Iterator[tuple[Visit, ...]] = iter(())  # what comes after these, which is seldom needed
        self._certain = 0  # how many of the cells have a certain stage

    @property
    def longest(self) -> int:
        """The maximum number of calls on the path."""
        return len(self._stages) + len(self._foreseen())

    def cell(self, length: int) -> Cell:
        """Return (request id, the path's first ``length`` models); ``length`` is at most the length of :attr:`models`."""
        return self.request_id, self.models[:length]

    def possible(self, length: int) -> Sequence[Visit]:
        """Return the possible (stage, model) pairs of call number ``length`` (from 1, at most :attr:`longest`)."""
        done = len(self._stages)
        if length <= done:
            return ((self._stages[length - 1], self.models[length - 1]),)
        return self._foreseen(length - done)[length - done - 1]

    def resolve(self, rows: Mapping[Cell, Observation], rule: StopRule) -> int:
        """Determine the path's models as far as ``rows`` (keyed by request id and models) and the stop rule allow.

        Return the number of calls whose models are known.
        """
        while not self._is_over:
            self._extend()
            length = len(self._stages) + 1
            row = rows.get(self.cell(length)) if length <= len(self.models) else None
            if row is None:
                self._is_over = length > len(self.models)
                break
            if self.ends_at(row, rule) or not self._follow(row):
                self._is_over = True
                self.models = self.models[:length]
        return len(self.models)

    def ends_at(self, row: Observation, rule: StopRule) -> bool:
        """Return whether the path ends with the result ``row``.

        It does if ``rule`` ends the request there. A path that is executed to its end (``goes_on``) ends only at a failed call.
        """
        return row.ended(rule) and (row.failure is not None or not self.goes_on)

    def next_length(self, rows: Mapping[Cell, Observation], rule: StopRule) -> int | None:
        """Return the number (from 1) of the first call on the path without a result; None if the path ends before it."""
        known = self.resolve(rows, rule)
        while self._executed < known:
            row = rows.get(self.cell(self._executed + 1))
            if row is None:
                return self._executed + 1
            if self.ends_at(row, rule):
                return None
            self._executed += 1
        return None

    def _extend(self) -> None:
        """Extend :attr:`models` by the model of the next call, and by the models of later calls whose stage is certain."""
        ahead = self._foreseen(1)
        while self._certain == len(ahead) and (more := next(self._beyond, None)) is not None:
            ahead.append(more)
        for visits in ahead[len(self.models) - len(self._stages) : max(self._certain, 1)]:
            if len({model for _, model in visits}) > 1:
                break
            self.models += (visits[0][1],)

    def _follow(self, row: Observation) -> bool:
        """Advance the path to the stage that came after the result; return whether it continues.

        False if that stage is unknown or the template ends there.
        """
        positions = self._template.flow.positions
        after = positions[self._position].arms.get(row.stage)
        if after is None:
            return False
        coming = row.next_stage(tuple(positions[after].arms))
        if coming is None:
            return False
        self._stages.append(row.stage)
        self._position, self._coming, self._ahead = after, coming, None
        return True

    def _foreseen(self, least: int | None = None) -> list[tuple[Visit, ...]]:
        """Return the (stage, model) pairs that each call of the path may have, beginning with the first call that has no
        result.

        The list has at least ``least`` calls, unless the path has fewer; with None it has all calls.
        """
        if self._ahead is None:
            self._ahead, self._certain, self._beyond = [], 0, self._visits()
        while (least is None or len(self._ahead) < least) and (visits := next(self._beyond, None)) is not None:
            self._ahead.append(visits)
        return self._ahead

    def _visits(self) -> Iterator[tuple[Visit, ...]]:
        """Yield the possible (stage, model) pairs of each call, from the first call without a result."""
        positions, flow, coming = {self._position}, self._template.flow.positions, self._coming
        first = len(self._stages)
        for k in range(first, len(self.choices)):
            arms = [arm for position in sorted(positions) for arm in flow[position].arms.items()]
            if k == first and coming is not None:
                arms = [(stage, after) for stage, after in arms if stage == coming]
            models = {stage: self._model(k, stage) for stage in dict.fromkeys(stage for stage, _ in arms)}
            found = tuple((stage, model) for stage, model in models.items() if model is not None)
            if not found:
                return
            self._certain += self._certain == k - first and len(models) == 1
            yield found
            positions = {after for stage, after in arms if models[stage] is not None}

    def _model(self, k: int, stage: str) -> str | None:
        """Return the model that the path has for ``stage`` at call ``k`` (from 0); None if the stage does not allow it."""
        choice = self.choices[k]
        model = choice if isinstance(choice, str) else choice.get(stage)
        return model if model in (self._template.stage(stage).models or ()) else None


class TimedPaths:
    """Chooses the paths whose calls are made directly instead of in batches, so that each stage and model has latencies.

    The first paths in canonical order are chosen, regardless of their results, so that a resumed run chooses the same paths.

    Args:
        most: the number of timed paths that each (stage, model) pair needs; with 0, no path is timed.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._timed: Counter[Visit] = Counter()

    def add(self, path: ActivePath) -> None:
        """Set the path's ``is_timed``, which states whether the path's calls are made directly instead of in batches.

        It is True if some (stage, model) pair of the path has fewer than ``most`` timed paths so far. Called for every path, in
        canonical order.
        """
        visits = {visit for length in range(1, path.longest + 1) for visit in path.possible(length)}
        path.is_timed = any(self._timed[visit] < self._most for visit in visits)
        if path.is_timed:
            self._timed.update(visits)


class ActivePaths:
    """The request paths in progress, in the sampler's order. The first one, called the oldest, is not fully committed.

    Args:
        may_go_on: whether the workflow can continue after an answer that its own check passed.
        timed: chooses the paths whose calls are made directly; None if batch APIs are not used.

    Attributes:
        round: the number of the sampler's current round; -1 before the first.
    """

    def __init__(
        self, sampler: Sampler, template: Template, *, may_go_on: bool = True, timed: TimedPaths | None = None
    ) -> None:
        self._timed = timed
        self._doublings = DOUBLINGS if timed is None else FEW_DOUBLINGS
        self._sampler, self._template, self._may_go_on = sampler, template, may_go_on
        self.round = -1
        self._proposed: Iterator[RequestPath] = iter(())
        self._is_round_empty = False
        self._is_exhausted = False
        self._taken = 0
        self.active: list[ActivePath] = []

    def next_round(self, observations: Sequence[Observation]) -> bool:
        """Begin the next round; return False if the last round was empty, so that nothing is left to propose."""
        if self.round >= 0 and self._is_round_empty:
            return False
        self.round += 1
        self._proposed = iter(self._sampler.propose(self.round, observations))
        self._is_round_empty, self._is_exhausted = True, False
        return True

    def take(self) -> bool:
        """Add the round's next path to the paths in progress, unless it is too far ahead of the oldest one.

        Return whether a path was added; False also if the round has no further path.
        """
        # A path further ahead has no price bound yet: a block's bound is learned when the first path of the previous block is
        # reached.
        if self._is_exhausted or (self.active and self._taken >= self._end()):
            return False
        request_path = next(self._proposed, None)
        if request_path is None:
            self._is_exhausted = True
            return False
        self._is_round_empty = False
        path = ActivePath(request_path, self._taken, self._template, self.round, may_go_on=self._may_go_on)
        if self._timed is not None:
            self._timed.add(path)
        self.active.append(path)
        self._taken += 1
        return True

    def _end(self) -> int:
        """Return the position of the first path that may not start yet, because it is too far ahead of the oldest path in
        progress.

        Consecutive paths form blocks (:func:`block_of`). Paths in the oldest path's block and in the next block may start.
        """
        return block_end(block_of(self.active[0].number, self._doublings) + 1, self._doublings)


class PriceBounds:
    """The maximum cost that is expected of the calls of each request path. It does not depend on when jobs end.

    Consecutive paths form blocks (:func:`block_of`), and all paths of a block have the same maximum. It is learned from the
    results of all earlier blocks except the one directly before.

    Args:
        bound: gives the maximum before the first path, and learns from results; see :class:`PriceBound`.
        doublings: the number of blocks before the first block of maximum size: :data:`FEW_DOUBLINGS` if batch APIs are used.
    """

    def __init__(self, bound: PriceBound, doublings: int = DOUBLINGS) -> None:
        self._bound, self._doublings = bound, doublings
        self._of_block: dict[int, PriceBound] = {0: bound.copy(), 1: bound.copy()}

    def learn(self, observation: Observation) -> None:
        """Update the price bounds with a committed result."""
        self._bound.add(observation)

    def reached(self, number: int) -> None:
        """Record that all paths before position ``number`` are committed.

        When a block is reached for the first time, the price bound learned so far is copied, and the copy becomes the bound of
        the next block. Results that are learned later do not change the copy.
        """
        block = block_of(number, self._doublings)
        if block + 1 not in self._of_block:
            # All earlier paths are committed, so their bounds are no longer needed.
            self._of_block = {k: bound for k, bound in self._of_block.items() if k >= block}
            self._of_block[block + 1] = self._bound.copy()
            self._of_block.setdefault(block, self._of_block[block + 1])

    def of(self, number: int) -> PriceBound:
        """Return the price bound for the jobs of the path at position ``number``; all paths of a block (:func:`block_of`) share
        one.
        """
        return self._of_block[block_of(number, self._doublings)]


def block_of(number: int, doublings: int = DOUBLINGS) -> int:
    """Return the index of the block (run of consecutive paths) that contains the path at position ``number``.

    The first ``doublings`` blocks have 1, 2, 4, ... paths, and every later block has :data:`LARGEST_BLOCK`.
    """
    smaller = int(2**doublings) - 1
    if number < smaller:
        return (number + 1).bit_length() - 1
    return doublings + (number - smaller) // LARGEST_BLOCK


def block_end(block: int, doublings: int = DOUBLINGS) -> int:
    """Return the position of the first path after the block with this index."""
    if block < doublings:
        return int(2 ** (block + 1)) - 1
    return int(2**doublings) - 1 + (block - doublings + 1) * LARGEST_BLOCK
