"""Tries whose nodes have estimates of success, cost and latency, and the path metrics that follow from them (VineLM paper
§3.3).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt

from vinelm.catalog import Catalog
from vinelm.errors import VineLMError
from vinelm.io.frames import data_frame, html_table
from vinelm.template import Template
from vinelm.trie import Trie
from vinelm.trie.arrays import BoolArray, FloatArray, Integers
from vinelm.trie.difficulty import ARM_ARRAYS, BranchingRates, DifficultyRates
from vinelm.trie.outcomes import Outcomes, path_edges
from vinelm.trie.verdict import Verdict

if TYPE_CHECKING:
    import pandas

AnyTrie = TypeVar("AnyTrie", bound="AnnotatedTrie")
Array = TypeVar("Array", bound=npt.NDArray[Any])

UNTOLD = "untold_kinds"
"""Key of ``meta`` if declared kinds do not pay: the gain in predicted accuracy of plans by kind, <= 0, a fraction."""
UPPER = 0.95
"""Level of the quantile that is the upper end of an invocation's dollars."""
NODE_ARRAYS = ("success", "stop", "stop_success", "cost_usd", "cost_var", "latency_s", "latency_var")
"""Annotations of a node, all conditional on the request reaching it. :class:`AnnotatedTrie` explains each."""
OPTIONAL_ARRAYS = (
    *("accuracy_se", "cost_se", "latency_se", "count", "cost_size_var", "latency_size_var", *ARM_ARRAYS, "arm_se", "tried"),
)
"""Annotations that an estimator may add: standard errors of the path metrics, the number of observations of each node, the part
of a variance that comes from differences in size between requests, the branches, the standard error of ``arm``, and which steps
plans may take."""


@dataclass(frozen=True, eq=False)
class AnnotatedTrie(BranchingRates):
    """A trie with estimated success, cost and latency of every node: the estimators' output and the planner's input.

    For a trie of n nodes and the root (node 0), every array has shape (n + 1,): one element for each node. See
    docs/mathematics.md.

    Per node, conditional on the request reaching it:

    - ``success`` (a): P(the answer is correct after this invocation), in [0, 1].
    - ``stop`` (s): P(the request ends here because the stop rule fires or the invocation fails), in [0, 1].
    - ``stop_success`` (b): P(the request ends here and the answer is correct), in [0, 1].
    - ``cost_usd`` (c), ``cost_var`` (dollars squared); ``latency_s`` (t), ``latency_var`` (seconds squared): mean and variance
      of one invocation, including the tools after it, at zero load. At the root, of the code before the first invocation.

    Per node of a trie that branches, about the branch (arm) that leads to the node, conditional on the request reaching the
    node's *parent*. Siblings that run the same stage have equal values; on a linear trie they are None:

    - ``arm``: P(the node's stage comes next), in [0, 1]. The probabilities of a parent's branches and its ``stop`` sum to 1.
      1 at the root.
    - ``arm_success``: P(the node's stage comes next and the parent's answer is correct), in [0, 1]. 0 at the root.
    - ``arm_se``: standard error of ``arm``; None if the estimator gives none. 0 at the root.

    On a :class:`~vinelm.trie.MergedTrie` the annotations of a node are means over the merged histories that reach it when
    models are chosen as in the profile. The values about branches belong to edges, since a node's edges have different sources:
    these arrays have shape (edges,). ``accuracy_se``, ``cost_se`` and ``latency_se`` are standard errors of ``success``,
    ``cost_usd`` and ``latency_s``. Properties that need the single path of a node, such as ``accuracy``, raise
    :class:`VineLMError`. ``difficulty`` has the rates above for each difficulty of requests, because a plan changes which
    requests reach a node; None if the estimator gives none.

    ``tried`` says for each edge whether plans may run it, shape (edges,). Some edges are excluded if the verdict compared only
    plans that enough requests have run. None allows every edge.

    ``signals`` is the trie of signals (see :class:`SignalTrie`); None if no signals are declared, or it was not estimated.
    ``verdict`` says whether to serve the trie's plans instead of the current setup; None if the estimate was not checked.

    ``accuracy_se``, ``cost_se`` and ``latency_se`` are standard errors of ``accuracy``, ``path_cost_usd`` and
    ``path_latency_s``. ``count`` is the number of recorded results at each node. ``cost_size_var`` and ``latency_size_var``
    are the parts of the variances that come from the request's size. Each of these is None if the estimator does not give
    it. ``meta`` has facts about the origin of the estimates, as plain JSON types.

    Raises:
        VineLMError: An array has the wrong shape, an annotation is not finite, or a trie that branches lacks ``arm`` and
            ``arm_success``.
    """

    policy: ClassVar[Literal["paths", "signals"]] = "paths"
    """What plans over the trie depend on, as verdicts name it."""
    least_price: ClassVar[float] = 0.0
    """How much accuracy a dollar counts for if the planner sets no price; 0 lets dollars decide only between equal
    accuracies.
    """

    trie: Trie
    template: Template
    catalog: Catalog
    success: FloatArray
    stop: FloatArray
    stop_success: FloatArray
    cost_usd: FloatArray
    cost_var: FloatArray
    latency_s: FloatArray
    latency_var: FloatArray
    accuracy_se: FloatArray | None = None
    cost_se: FloatArray | None = None
    latency_se: FloatArray | None = None
    count: npt.NDArray[np.int64] | None = None
    cost_size_var: FloatArray | None = None
    latency_size_var: FloatArray | None = None
    arm: FloatArray | None = None
    arm_success: FloatArray | None = None
    arm_se: FloatArray | None = None
    tried: BoolArray | None = None
    difficulty: DifficultyRates | None = None
    signals: SignalTrie | None = None
    verdict: Verdict | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.branches:  # where one stage follows each node, its chance follows from the stops
            for name in (*ARM_ARRAYS, "arm_se"):
                object.__setattr__(self, name, None)
        elif missing := self.missing_arms:
            raise VineLMError(f"the template branches: give {' and '.join(missing)}")
        for name in (*NODE_ARRAYS, *OPTIONAL_ARRAYS):
            values = getattr(self, name)
            if values is None:
                continue
            of_arm = name in (*ARM_ARRAYS, "arm_se")
            size = self.trie.n_arm_items if of_arm else self.trie.n_edges if name == "tried" else len(self.trie)
            if values.shape != (size,):
                raise VineLMError(f"annotation {name} has shape {values.shape}: the trie needs ({size},)")
            if name in (*NODE_ARRAYS, *ARM_ARRAYS) and not np.all(np.isfinite(values)):
                raise VineLMError(f"annotation {name} is not finite at node {int(np.argmin(np.isfinite(values)))}")
        if self.difficulty is not None and not (self.trie.is_merged and len(self.difficulty.stop) == len(self.trie)):
            raise VineLMError("difficulty holds the rates of the nodes of a merged trie: leave it out elsewhere")

    @property
    def branches(self) -> bool:
        """Whether several stages may follow some node; if so, ``arm`` and ``arm_success`` are not None."""
        return not self.template.is_linear

    @cached_property
    def outcomes(self) -> Outcomes:
        """The outcomes of calls (signals and answers) at each node, on which plans may depend; empty unless this is a trie of
        signals.
        """
        return Outcomes.none(len(self.trie.stages), len(self.trie))

    @cached_property
    def reach(self) -> FloatArray:
        """For each node, the probability that a request which is given the models on the node's path reaches the node.

        It is the product of the branch probabilities along the path. If only one stage can follow each node, it is the product
        of 1 - ``stop`` over the node's ancestors.
        """
        return _read_only(self.trie.multiply(self.arms_by_edge[0]))

    @cached_property
    def arms_by_edge(self) -> tuple[FloatArray, FloatArray]:
        """Return, for each edge, P(its stage comes next) and P(its stage comes next and the answer so far is right).

        Both are conditional on a request being at the edge's source, in the order of the trie's edges. If only one stage can
        follow a node, this stage follows unless the request stops.
        """
        arm, arm_success = self.arms_at(self.trie.source, self.trie.arm_items)
        return _read_only(arm), _read_only(arm_success)

    @property
    def arms(self) -> tuple[FloatArray, FloatArray]:
        """The branch probabilities ``arm`` and ``arm_success`` as new arrays, even for a linear trie.

        In a linear trie, where these fields are None, they are computed from ``stop``. A branch has the edges from one node to
        one stage; :attr:`Trie.arm_items` has its index.
        """
        found = np.ones(self.trie.n_arm_items), np.zeros(self.trie.n_arm_items)
        for values, of_edges in zip(found, self.arms_by_edge, strict=True):
            values[self.trie.arm_items] = of_edges
        return found

    def comes_next(self, node: int) -> dict[str, float]:
        """Return, for each stage that may follow the node, P(the stage comes next | the node is reached)."""
        return {stage: float(self.arms_at(node, item)[0]) for stage, item in self.trie.arm_items_after(node).items()}

    @property
    def rated(self) -> FloatArray:
        """For each node, the accuracy of its path. In a merged trie: P(right answer | the node is reached).

        ``accuracy_se`` has the standard errors of these values.
        """
        return self.reading.rated

    def weight_of(self, nodes: npt.NDArray[Any]) -> FloatArray:
        """Return the weight of each of these nodes in a mean over nodes: its number of recorded results.

        If these numbers are unknown, it is the probability that the node is reached (1 in a merged trie).
        """
        if self.count is not None and self.count[nodes].any():
            return np.asarray(self.count[nodes], np.float64)
        return np.asarray(np.maximum(self.reading.reach[nodes], 1e-12))

    @cached_property
    def reading(self) -> TrieReading:
        """The object that computes the figures of this trie that reports show, for each node.

        They describe the node's path if each plan ends at a single node, otherwise the node itself.
        """
        if self.trie.is_merged:
            return MergedReading(self)
        return (HistoryReading if self.branches else PathReading)(self)

    @property
    def calls_per_hour(self) -> float | None:
        """The number of requests per hour for which the trie's costs hold: more requests keep prompt caches warmer.

        0 if prompt caches never hit between requests. None if the costs hold at any rate, because no recorded call hit a cache
        entry of another request.
        """
        found = self.meta.get("prompt_cache", {}).get("calls_per_hour")
        return None if found is None else float(found)

    @property
    def untold(self) -> tuple[str, ...]:
        """A line of text, in a tuple, if plans ignore the declared request types because distinguishing them does not help.

        Otherwise the tuple is empty.
        """
        return tuple(
            "Kinds of request are declared and not told apart: plans by kind promise"
            f" {-100 * gain:.1f} points less than plans without them, at equal dollars."
            for gain in ([self.meta[UNTOLD]] if UNTOLD in self.meta else [])
        )

    @cached_property
    def stage_names(self) -> tuple[str, ...]:
        """For each stage of the trie, the name of the template's stage that it belongs to.

        The names differ in a trie of signals, which adds the outcome before the stage: ``repair [failed]`` belongs to
        ``repair``.
        """
        return tuple(self.template.stages[stage].name for stage in self.outcomes.stages)

    @cached_property
    def stage_kinds(self) -> tuple[str, ...]:
        """For each stage of the trie, the request type that it is for; ``""`` if types are not distinguished."""
        kinds = self.template.kinds_of_stages
        return tuple(kinds[stage] for stage in self.outcomes.stages)

    @cached_property
    def arm_stages(self) -> Mapping[str, tuple[str, str]]:
        """Pairs (name of the template's stage, request type), keyed by the name of the trie's stage."""
        return dict(zip(self.trie.stages, zip(self.stage_names, self.stage_kinds, strict=True), strict=True))

    @property
    def tries(self) -> tuple[AnnotatedTrie, ...]:
        """The tries that plans can be made over: this trie, and its trie of signals if there is one."""
        return (self, *((self.signals,) if self.signals else ()))

    def judged(self, found: Verdict | None) -> AnnotatedTrie:
        """Return a copy of the trie with the verdict ``found``; None removes the verdict.

        Its trie of signals, if there is one, gets the same verdict.
        """
        return replace(self, verdict=found, signals=self.signals and replace(self.signals, verdict=found))

    def within(self, tried: BoolArray) -> AnnotatedTrie:
        """Return a copy in which plans may run only the edges that the mask ``tried``, shape (edges,), allows.

        The copy's trie of signals, in which branches are outcomes of calls, is restricted to the corresponding edges.
        """
        return replace(self, tried=tried, signals=self.signals and self.signals.within_paths(tried, self.trie))

    def writes_answer(self, node: int) -> bool:
        """Return whether a node's invocation writes or judges an answer, even if plans may not end at the node."""
        stage = self.template.stage(self.stage_names[self.trie.stage[node]])
        return stage.answerable or stage.verdict is not None

    def slots(self, stage: Integers, depth: Integers) -> tuple[Integers, int]:
        """Return (slot index of each group of edges, number of slots).

        A slot is a stage of the application: a fixed plan runs one model for all edges of a slot. A group of edges has all
        edges from one node to one stage of the trie.

        Args:
            stage: The index of the trie's stage that each group runs, shape (groups,).
            depth: The number of invocations before this stage, shape (groups,).

        Returns:
            Slot indices from 0, shape (groups,), and the number of slots.
        """
        own = self.template.base_numbers  # a fixed plan has one model for a stage, whatever the kind
        return np.array(own)[np.array(self.outcomes.stages)[stage]], max(own) + 1

    def with_shares(self, change: FloatArray) -> Self:
        """Return the trie for a mix of request types that differs from the mix in the profile.

        A trie of paths, as in this class, is returned unchanged. A trie of signals also has estimates from resampled requests;
        these are multiplied by a factor for each node.

        Args:
            change: The factor for each node, root included.
        """
        return self

    def returning_last(self) -> Self:
        """Return the trie unchanged, because a trie of paths always counts a request's last answer.

        For a trie of signals see :meth:`SignalTrie.returning_last`.
        """
        return self

    @property
    def is_contingent(self) -> bool:
        """Whether plans depend on what happens during a request: the trie branches, or one node stands for several call
        sequences.
        """
        return not isinstance(self.reading, PathReading)

    @cached_property
    def accuracy(self) -> FloatArray:
        """For each node, the expected accuracy of the plan that runs the node's path and ends there.

        It is the sum of ``reach * stop_success`` over the node's ancestors, plus ``reach * success`` at the node.
        """
        ended = self.trie.accumulate(self.reach * self.stop_success) - self.reach * self.stop_success
        return _read_only(ended + self.reach * self.success)

    @cached_property
    def path_cost_usd(self) -> FloatArray:
        """For each node, the expected dollars of running its path, given that some requests stop early and cost less.

        It is the sum of ``reach * cost_usd`` along the path.
        """
        return _read_only(self.trie.accumulate(self.reach * self.cost_usd))

    @cached_property
    def path_latency_s(self) -> FloatArray:
        """For each node, the expected seconds of running its whole path, without early stops (VineLM paper §3.3).

        It is the sum of ``latency_s`` along the path.
        """
        return _read_only(self.trie.accumulate(self.latency_s))

    @cached_property
    def knows_latency(self) -> bool:
        """Whether latencies are known. If the recorded answers have none, all latencies of the trie are zero."""
        return bool(self.latency_s.any())

    @cached_property
    def full_cost_usd(self) -> FloatArray:
        """For each node, the expected dollars of running its whole path, without early stops; used for budgets per request.

        It is the sum of ``cost_usd`` along the path.
        """
        return _read_only(self.trie.accumulate(self.cost_usd))

    @cached_property
    def most_usd(self) -> FloatArray:
        """For each node, a high estimate of the cost of its invocation, in dollars: few invocations cost more.

        It is the 95 % quantile of the cost, including the error of the estimated mean, but at least that mean.
        """
        unknown = np.zeros(len(self.trie))
        if self.cost_se is not None:
            of = self.reading.rated_usd
            relative = np.divide(self.cost_se, of, out=np.zeros(len(self.trie)), where=of > 0.0)
            unknown = self.cost_usd * np.nan_to_num(relative, posinf=0.0)
        return _read_only(np.maximum(lognormal_quantile(self.cost_usd, self.cost_var + unknown**2, UPPER), self.cost_usd))

    @cached_property
    def path_most_usd(self) -> FloatArray:
        """For each node, the sum of :attr:`most_usd` (a high estimate of a call's dollars) over the node's path."""
        return _read_only(self.trie.accumulate(self.most_usd))

    @cached_property
    def path_latency_var(self) -> FloatArray:
        """For each node, the variance of the seconds of running its whole path, in seconds squared. Invocations count as
        independent.
        """
        return _read_only(self.trie.accumulate(self.latency_var))

    @cached_property
    def full_cost_var(self) -> FloatArray:
        """For each node, the variance of the dollars of running its whole path, in dollars squared. Invocations count as
        independent.
        """
        return _read_only(self.trie.accumulate(self.cost_var))

    def latency_quantile(self, level: float) -> FloatArray:
        """Return, for each node, the ``level`` quantile (0 < ``level`` < 1) of the seconds of its invocation at zero load."""
        return lognormal_quantile(self.latency_s, self.latency_var, level)

    def cost_quantile(self, level: float) -> FloatArray:
        """Return, for each node, the ``level`` quantile (0 < ``level`` < 1) of the cost of its invocation in dollars."""
        return lognormal_quantile(self.cost_usd, self.cost_var, level)

    def path_latency_quantile(self, level: float) -> FloatArray:
        """Return, for each node, the ``level`` quantile (0 < ``level`` < 1) of the seconds of running its whole path at zero
        load.
        """
        return self._path_quantile(self.latency_s, self.latency_var, self.latency_size_var, level)

    def full_cost_quantile(self, level: float) -> FloatArray:
        """Return, for each node, the ``level`` quantile (0 < ``level`` < 1) of the cost of running its whole path in
        dollars.
        """
        return self._path_quantile(self.cost_usd, self.cost_var, self.cost_size_var, level)

    def _path_quantile(self, mean: FloatArray, var: FloatArray, size_var: FloatArray | None, level: float) -> FloatArray:
        """Return, for each node, the ``level`` quantile of the sum of a quantity along the node's path, taken as log-normal.

        ``mean`` and ``var`` are the quantity's mean and variance at each node. ``size_var`` has the part of each variance that
        comes from the request's size. These parts are fully correlated, so their standard deviations add; the rest is
        independent.
        """
        common = np.zeros_like(var) if size_var is None else np.minimum(size_var, var)
        total = self.trie.accumulate(var - common) + self.trie.accumulate(np.sqrt(common)) ** 2
        return lognormal_quantile(self.trie.accumulate(mean), total, level)

    @cached_property
    def engine(self) -> npt.NDArray[np.int16]:
        """For each node, the endpoint that serves its call, as an index into :attr:`engines`; -1 at the root."""
        of_model = np.array([self.engines.index(self.catalog[name].engine) for name in self.trie.models], np.int16)
        engine = np.where(self.trie.model >= 0, of_model[self.trie.model], np.int16(-1))
        return _read_only(engine.astype(np.int16))

    @cached_property
    def engines(self) -> tuple[str, ...]:
        """The endpoints that serve the trie's models, each once, sorted."""
        return tuple(sorted({self.catalog[name].engine for name in self.trie.models}))

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame with a row for each node except the root, indexed by ``node``. Needs the extra ``pandas``.

        The columns are the node's ``prefix`` (a tuple of model names), ``depth``, ``stage``, ``model`` and ``answerable``,
        its annotations (:data:`NODE_ARRAYS`) and ``reach``. There are also the path metrics ``accuracy``,
        ``path_cost_usd``, ``path_latency_s`` and ``full_cost_usd`` and, if the estimator gives them, ``count`` and the
        standard errors. Variances end in ``_usd2`` and ``_s2``, standard errors in their unit.

        If plans depend on what happens during a request, the branches (:data:`ARM_ARRAYS`) replace the path metrics and
        standard errors.

        Raises:
            ConfigError: pandas is not installed.
        """
        return data_frame(self.columns(), index=range(1, len(self.trie)), index_name="node")

    def columns(self) -> dict[str, Any]:
        """Return the columns of :meth:`to_pandas`, keyed by name; each has the values of all nodes except the root, in node
        order.
        """
        columns: dict[str, Any] = self.trie.labels() | {"answerable": self.trie.answerable[1:]}
        for name in self.reading.columns:
            values = getattr(self, name)
            if values is not None:
                columns[_FRAME_NAMES.get(name, name)] = values[1:]
        return columns

    def _repr_html_(self) -> str:
        """Return an HTML table of the trie, which notebooks display."""
        return self.reading.table()


@dataclass(frozen=True, eq=False)
class SignalTrie(AnnotatedTrie):
    """A trie of signals, in which a branch stands for both the outcome of the last call (its signal and answer) and the
    next stage.

    The names of its stages include this outcome. ``outcomes`` has the possible outcomes after each node, with the probabilities
    of stages and answers.
    """

    policy: ClassVar[Literal["paths", "signals"]] = "signals"
    least_price: ClassVar[float] = 1e-7
    """See :attr:`AnnotatedTrie.least_price`. Accuracies are sums over thousands of histories: rounding differences between
    equal plans must not buy an invocation.
    """

    outcomes: Outcomes = field(kw_only=True)

    @property
    def branches(self) -> bool:
        """True, because in a trie of signals outcomes are branches; see :attr:`AnnotatedTrie.branches`."""
        return True

    def slots(self, stage: Integers, depth: Integers) -> tuple[Integers, int]:
        """Return (slot of each group of edges, number of slots). A fixed plan runs one model for all edges of a slot.

        A slot is a stage of the application or, if the application does not branch, the number of an invocation. See
        :meth:`AnnotatedTrie.slots`.
        """
        found = self.template.base.form.slots(depth.astype(np.int64), super().slots(stage, depth)[0])
        return found, 1 + int(found.max(initial=0))

    def with_shares(self, change: FloatArray) -> Self:
        """Return the trie for a mix of request types that differs from the mix in the profile.

        Two estimates from resampled requests, ``spread`` and ``cost_spread`` of the outcomes, are multiplied by ``change``,
        which has a factor for each node.
        """
        found = self.outcomes
        spread, cost = found.spread * change[found.node, None], found.cost_spread * change[:, None]
        outcomes = replace(found, spread=spread.astype(np.float32), cost_spread=cost.astype(np.float32))
        return replace(self, outcomes=outcomes)

    def within_paths(self, tried: BoolArray, paths: Trie) -> Self:
        """Return a copy in which plans may run only edges that are allowed in the corresponding trie of paths.

        Args:
            tried: Whether each edge of ``paths`` is allowed, shape (edges,).
            paths: The trie of paths.
        """
        return replace(self, tried=tried[path_edges(self.trie, self.outcomes.stages, paths)])

    def returning_last(self) -> Self:
        """Return the trie for a graph that can only return its last answer, not an earlier one. ``success`` and other rates
        then refer to the last answer.
        """
        outcomes = self.outcomes
        if not outcomes.returns_earlier:
            return self
        found = self.with_right(outcomes.returning_last(), outcomes.right_last)
        ends = np.where(outcomes.arm >= 0, 0.0, outcomes.right_last)
        return replace(found, stop_success=np.asarray(np.bincount(outcomes.node, ends, len(self.trie)), np.float64))

    def with_right(self, outcomes: Outcomes, right: FloatArray) -> Self:
        """Return a copy with the outcomes ``outcomes``, and with ``success`` and ``arm_success`` computed from ``right``.

        Args:
            outcomes: The new outcomes, in the order of the old ones.
            right: P(the outcome occurs, and the answer that the request would return is right | the node is reached), shape
                (outcomes,).
        """
        trie, size = self.trie, len(self.trie)
        goes_on = outcomes.arm >= 0
        key = outcomes.node.astype(np.int64)[goes_on] * len(trie.stages) + outcomes.arm[goes_on]
        order = np.argsort(key)
        below = trie.parent > 0
        wanted = trie.parent[below].astype(np.int64) * len(trie.stages) + trie.stage[below]
        arm_success = np.zeros(size)
        arm_success[below] = right[goes_on][order][np.searchsorted(key[order], wanted)]
        success = np.asarray(np.bincount(outcomes.node, right, size), np.float64)
        return replace(self, success=success, arm_success=arm_success, outcomes=outcomes)


_FRAME_NAMES = {
    "cost_var": "cost_var_usd2",
    "latency_var": "latency_var_s2",
    "cost_se": "path_cost_se_usd",
    "latency_se": "path_latency_se_s",
}
_SHOWN_PATHS = 10


@dataclass(frozen=True, eq=False)
class TrieReading(ABC):
    """The figures of a trie that reports show, such as the accuracy and cost of each node.

    There are three subclasses: for tries in which a plan ends at one node, for tries in which it may end at several, and for
    merged tries.
    """

    annotated: AnnotatedTrie

    metrics: ClassVar[tuple[Literal["accuracy", "cost", "latency"], ...]] = ("accuracy", "cost", "latency")
    """The metrics of paths that nodes have."""
    noun: ClassVar[str]
    """What reports call the trie's nodes."""
    holds_common_errors: ClassVar[bool]
    """Whether ``accuracy_se`` includes an error common to all nodes, such as a judge's."""

    @property
    def rated(self) -> FloatArray:
        """For each node, the accuracy of its path; ``accuracy_se`` has the standard errors."""
        return self.annotated.accuracy

    @property
    def rated_usd(self) -> FloatArray:
        """For each node, the cost of its path in dollars; ``cost_se`` has the standard errors."""
        return self.annotated.path_cost_usd

    @property
    def reach(self) -> FloatArray:
        """For each node, P(a request reaches it | the request is given the models on its path); 1 if unknown."""
        return self.annotated.reach

    @property
    def everything_usd(self) -> float | None:
        """The expected cost, in dollars, of running one request on every path of the trie.

        None for a merged trie, since long loops never run fully.
        """
        return float((self.annotated.reach * self.annotated.cost_usd)[1:].sum())

    @property
    @abstractmethod
    def answer_accuracy(self) -> FloatArray:
        """For each node, the accuracy of the plan that ends there.

        If a plan may end at several nodes, it is P(the current answer is right | the node is reached) instead.
        """

    @property
    @abstractmethod
    def plan_arrays(self) -> list[npt.NDArray[Any]]:
        """The arrays from which plans are made, such as path accuracies and costs, or rates of nodes and branches."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The names of the arrays that become columns of the trie's data frame, see :meth:`AnnotatedTrie.to_pandas`."""

    @abstractmethod
    def display_path(self, node: int) -> tuple[str, ...]:
        """Return the path to a node in the form that reports print."""

    @abstractmethod
    def table(self) -> str:
        """Return the trie as an HTML table."""


class PathReading(TrieReading):
    """The figures that reports show for a trie in which each plan ends at a single node, because the trie has no branches."""

    noun = "paths"
    holds_common_errors = True
    columns = (
        *("reach", *NODE_ARRAYS, "accuracy", "accuracy_se", "path_cost_usd", "cost_se", "path_latency_s", "latency_se"),
        *("full_cost_usd", "count"),
    )

    @property
    def answer_accuracy(self) -> FloatArray:
        """For each node, the accuracy of the plan that runs the path to the node and ends there."""
        return self.annotated.accuracy

    @property
    def plan_arrays(self) -> list[npt.NDArray[Any]]:
        """Return the arrays from which plans are made: the metrics of paths, such as accuracy and cost."""
        return [self.annotated.accuracy, self.annotated.path_cost_usd, self.annotated.path_latency_s]

    def display_path(self, node: int) -> tuple[str, ...]:
        """Return the models on the path to a node."""
        return self.annotated.trie.prefix(node)

    def table(self) -> str:
        """Return an HTML table of paths on the frontier of accuracy and cost, the most accurate first.

        A path is on the frontier if no other path is at least as accurate and at least as cheap.
        """
        own, frontier = self.annotated, self._frontier()
        rows = [
            (
                " > ".join(own.trie.prefix(node)),
                f"{own.accuracy[node]:.1%}",
                f"${own.path_cost_usd[node]:.4g}",
                f"{own.path_latency_s[node]:.3g} s" if own.knows_latency else "-",
            )
            for node in frontier[:_SHOWN_PATHS]
        ]
        shown = f"{len(rows)} of {len(frontier)} paths on the accuracy-cost frontier"
        caption = f"AnnotatedTrie: {own.trie.n_nodes:,} paths over {len(own.trie.models)} models; {shown}"
        return html_table(caption, ("path", "accuracy", "cost per request", "latency"), rows)

    def _frontier(self) -> list[int]:
        """Return the nodes on the frontier of accuracy and cost, the most accurate first.

        A plan may end at each of them, and no other such node is at least as accurate and at least as cheap.
        """
        accuracy, cost_usd = self.annotated.accuracy, self.annotated.path_cost_usd
        nodes = np.flatnonzero(self.annotated.trie.answerable)
        order = nodes[np.lexsort((-accuracy[nodes], cost_usd[nodes]))]
        best = np.maximum.accumulate(accuracy[order])
        is_better = np.concatenate(([True], best[1:] > best[:-1]))[: len(order)]
        return [int(node) for node in order[is_better][::-1]]


class HistoryReading(TrieReading):
    """The figures that reports show for a trie whose plans may end at several nodes; only a planner can compute plans'
    accuracies.
    """

    noun = "histories"
    holds_common_errors = False  # a plan's end errors are combined as if they were independent

    @property
    def answer_accuracy(self) -> FloatArray:
        """For each node, P(the current answer is right | the node is reached)."""
        return self.annotated.success

    @property
    def plan_arrays(self) -> list[npt.NDArray[Any]]:
        """Return the arrays from which plans are made: the rates of nodes and branches."""
        rates = (getattr(self.annotated, name) for name in (*NODE_ARRAYS, *ARM_ARRAYS))
        return [values for values in rates if values is not None]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the arrays in the trie's data frame. Path metrics are left out, because plans may end at several
        nodes.
        """
        return ("reach", *NODE_ARRAYS, *ARM_ARRAYS, "arm_se", "count")

    def display_path(self, node: int) -> tuple[str, ...]:
        """Return the stages and models of the node's path, since models alone do not identify the node."""
        return tuple(f"{stage} {model}" for stage, model in self.annotated.trie.edges(node))

    def table(self) -> str:
        """Return an HTML table with the numbers of nodes and recorded results for each depth and stage."""
        trie, count, rows = self.annotated.trie, self.annotated.count, []
        for depth, level in enumerate(trie.levels[1:], start=1):
            for stage in np.unique(trie.stage[level]):
                nodes = level[trie.stage[level] == stage]
                rows.append((depth, trie.stages[stage], f"{len(nodes):,}", "-" if count is None else f"{count[nodes].sum():,}"))
        caption = f"AnnotatedTrie: {trie.n_nodes:,} histories over {len(trie.models)} models; plans over it are contingent"
        return html_table(caption, ("depth", "stage", "histories", "observations"), rows)


class MergedReading(HistoryReading):
    """The figures that reports show for a merged trie, whose nodes have several paths and whose edges have branch
    probabilities.
    """

    metrics = ()
    columns = (*NODE_ARRAYS, "count")
    everything_usd = None

    @property
    def rated(self) -> FloatArray:
        """For each node, ``success``: P(right answer | the node is reached). ``accuracy_se`` has the standard errors."""
        return self.annotated.success

    @property
    def rated_usd(self) -> FloatArray:
        """For each node, the cost of its invocation in dollars; ``cost_se`` has the standard errors."""
        return self.annotated.cost_usd

    @property
    def reach(self) -> FloatArray:
        """An array of ones, because the probability with which requests reach a merged node is unknown; shape (nodes,)."""
        return np.ones(len(self.annotated.trie))


def lognormal_quantile(mean: FloatArray, var: FloatArray, level: float) -> FloatArray:
    """Return, for each element, the ``level`` quantile of a log-normal distribution with this mean and variance; 0 if the
    mean is 0.
    """
    relative = np.divide(np.sqrt(var), mean, out=np.zeros_like(mean), where=mean > 0)
    log_var = np.log1p(relative**2)
    return np.asarray(mean * np.exp(NormalDist().inv_cdf(level) * np.sqrt(log_var) - 0.5 * log_var))


def _read_only(values: Array) -> Array:
    values.flags.writeable = False
    return values


def whole_paths(annotated: AnyTrie) -> AnyTrie:
    """Return a copy of the trie in which plans can end only at leaves, so that they run to the last invocation.

    Planning over the result is faster than passing the leaves to a planner as ``candidates``.
    """
    return _answerable_only(annotated, annotated.trie.is_leaf)


def ending_after(annotated: AnyTrie, stages: Collection[str]) -> AnyTrie:
    """Return a copy of the trie in which plans may end only after the workflow's stages in ``stages``."""
    allowed = [index for index, name in enumerate(annotated.stage_names) if name in stages]
    return _answerable_only(annotated, np.isin(annotated.trie.stage, allowed))


def within_exits(annotated: AnyTrie) -> AnyTrie:
    """Return a copy of the trie in which plans may end only after the template's ``exits``; unchanged if ``exits`` is None.

    If ``exits`` is empty, plans run to the last invocation.
    """
    exits = annotated.template.exits
    if exits is None:
        return annotated
    return ending_after(annotated, exits) if exits else whole_paths(annotated)


def _answerable_only(annotated: AnyTrie, allowed: BoolArray) -> AnyTrie:
    return replace(annotated, trie=annotated.trie.with_answerable(annotated.trie.answerable & allowed))
