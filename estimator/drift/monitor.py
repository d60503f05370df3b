"""Tests, with each new result, whether served requests still match a trie (VineLM paper §4.5)."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from vinelm.errors import ConfigError
from vinelm.estimator.drift.hypotheses import Hypothesis, hypotheses_of
from vinelm.estimator.drift.report import DriftReport, Moved
from vinelm.meant import fraction_meant
from vinelm.rows.observation import Observation
from vinelm.trie.annotated_trie import AnnotatedTrie

REMEMBERED_ROWS = 10_000
"""The maximum number of results whose nodes are remembered. In a trie with branches, they locate the requests' next results."""
KEPT_VALUES = 1_000
"""How many values of a test are kept, to report what was seen since the change; for an older change, the latest ones."""
ANNOTATION_SHARE = 0.5
"""The share of alpha reserved for annotations that are further off than their own error implies."""


@dataclass(frozen=True, kw_only=True)
class DriftConfig:
    """The settings that define when a trie's estimate no longer holds for served requests (has moved).

    Args:
        alpha: the chance, in (0, 1), of any false alarm over all nodes and results.
        points: a share (of stops or of a label) has moved if it differs by more than this, in [0, 1).
        relative: mean cost and mean latency have moved if they differ by more than this fraction, in [0, 1).
        loaded_seconds: also test the seconds of calls that began while other calls were in flight on their engine. Such calls
            take longer than the estimate, which is at zero load.

    Raises:
        ConfigError: a value is out of range.
    """

    alpha: float = 0.05
    points: float = 0.05
    relative: float = 0.1
    loaded_seconds: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha < 1.0:
            meant = fraction_meant(self.alpha)
            raise ConfigError(f"alpha is {self.alpha}: it must be a fraction in (0, 1){meant}", code="drift-alpha")
        for name in ("points", "relative"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(f"{name} is {getattr(self, name)}: it must be a fraction in [0, 1)", code=f"drift-{name}")


@dataclass
class _Test:
    """The test of one hypothesis about a node's quantity.

    Attributes:
        hypothesis: the hypothesis.
        threshold: the quantity has moved once the log of the wealth reaches this number.
        latest: the latest values as (number of the result among the node's results, request id, value).
        moved: the drift found by this test; None as long as the quantity has not moved.
    """

    hypothesis: Hypothesis
    threshold: float  # the threshold of the log wealth
    latest: deque[tuple[int, str, float]] = field(default_factory=lambda: deque(maxlen=KEPT_VALUES))
    moved: Moved | None = None


@dataclass
class _Node:
    tests: list[_Test]
    count: int = 0


class DriftMonitor:
    """Compares served results with the annotations of their nodes, in the order of serving.

    If nothing has moved since the profile, the chance of *any* false alarm is at most ``alpha``, however long the monitor
    runs. One half of ``alpha`` allows for the annotations' standard errors and relies on the normal approximation; the
    other half assumes no distribution. Not thread-safe. Calls no model.

    Args:
        annotated: the trie that requests are served with.
        config: the rate of false alarms and the tolerance.

    Attributes:
        moved: the quantities that have moved so far, in order.
        rows: the number of results that were compared.
    """

    def __init__(self, annotated: AnnotatedTrie, config: DriftConfig | None = None) -> None:
        self.annotated, self.config = annotated, config or DriftConfig()
        self.moved: list[Moved] = []
        self.rows = self.unplaced = self.left_out = self.under_load = 0
        self._nodes: dict[int, _Node] = {}
        self._known: OrderedDict[tuple[str, tuple[str, ...]], int] = OrderedDict()

    def add(self, row: Observation) -> list[Moved]:
        """Compare one result and return the quantities now found to have moved; each is returned only once.

        Some results are counted but not compared: results of paths that the trie lacks, and results after an answer that passed
        the workflow's check. If the trie has signals, later calls of a request are not compared either.
        """
        node = self.find(row)
        if node is None or row.is_continued:
            self.unplaced += 1
            return []
        if row.depth > 1 and self.annotated.signals is not None:
            self.left_out += 1
            return []
        self.rows += 1
        state = self._nodes.get(node) or self._enter(node)
        state.count += 1
        self.under_load += bool(row.in_flight) and not self.config.loaded_seconds
        for test in state.tests:
            if test.moved is None:
                self._bet(test, row, node, state.count)
        found = [test.moved for test in state.tests if test.moved is not None and test.moved.noticed == state.count]
        self.moved += found
        return found

    def report(self) -> DriftReport:
        """Return a report of the results compared so far and the quantities that have moved."""
        return DriftReport(
            alpha=self.config.alpha, rows=self.rows, nodes=len(self._nodes), moved=tuple(self.moved),
            unplaced=self.unplaced, left_out=self.left_out, under_load=self.under_load,
        )  # fmt: skip

    def _enter(self, node: int) -> _Node:
        """Begin the tests of a node that a result reaches for the first time, and return them.

        The k-th node to be reached gets 1/(k(k+1)) of the false-alarm rate alpha.
        """
        k = len(self._nodes) + 1
        # The sum of 1/(k(k+1)) over all k is 1, so the shares of any number of nodes add up to at most alpha (union bound).
        alpha = self.config.alpha / (k * (k + 1))
        made = hypotheses_of(
            self.annotated, node, alpha=alpha * ANNOTATION_SHARE, points=self.config.points, relative=self.config.relative
        )
        # Ville's inequality: a wealth that starts at 1 and is a supermartingale while nothing moves ever reaches 1/a with a
        # chance of at most a. The share of the node is divided by the number of its tests.
        threshold = float(np.log(max(len(made), 1) / (alpha * (1.0 - ANNOTATION_SHARE))))
        state = self._nodes[node] = _Node([_Test(one, threshold) for one in made])
        return state

    def _bet(self, test: _Test, row: Observation, node: int, at: int) -> None:
        """Update the test with the result ``row`` of ``node``; set ``test.moved`` if the tested quantity has now changed.

        ``at`` is the number, from 1, of this result among the node's results.
        """
        hypothesis = test.hypothesis
        if hypothesis.quantity == "seconds" and row.in_flight and not self.config.loaded_seconds:
            return
        value = hypothesis.value(row)
        if value is None:
            return
        process = hypothesis.process
        test.latest.append((at, row.request_id, value))
        if float(process.add(value)) < test.threshold:
            return
        since = list(test.latest)[-max(process.count - process.before_change, 1) :]
        test.moved = Moved(
            node=node, path=self.annotated.trie.prefix(node), stage=row.stage, quantity=hypothesis.quantity,
            direction=hypothesis.direction, annotated=hypothesis.annotated, seen=fmean(value for _, _, value in since),
            count=len(since), since=since[0][0], since_request=since[0][1], noticed=at,
        )  # fmt: skip
        test.latest.clear()

    def find(self, row: Observation) -> int | None:
        """Return the index of the trie's node for a result's call; None if the trie lacks it.

        The node is searched below that of the request's previous result, so a request's results must come in order.
        """
        trie = self.annotated.trie
        parent = 0 if row.depth == 1 else self._known.get((row.request_id, row.prefix[:-1]))
        try:
            if parent is None:
                parent = trie.sole_node(row.prefix[:-1])
            node = int(trie.child(parent, row.model, row.stage))
        except KeyError:
            return None
        self._known[row.request_id, row.prefix] = node
        # No row says that its request has ended, so the oldest are forgotten; otherwise memory would grow with every request.
        while len(self._known) > REMEMBERED_ROWS:
            self._known.popitem(last=False)
        return node
