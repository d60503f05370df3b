"""Tries with annotated nodes, and the path metrics that follow from the annotations (VineLM paper §3.3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
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
from vinelm.trie.difficulty import DifficultyRates
from vinelm.trie.outcomes import Outcomes, path_edges
from vinelm.trie.verdict import Verdict

if TYPE_CHECKING:
    import pandas

AnyTrie = TypeVar("AnyTrie", bound="AnnotatedTrie")
Array = TypeVar("Array", bound=npt.NDArray[Any])
Made = TypeVar("Made")

UNTOLD = "untold_kinds"
"""Key of ``meta`` if declared kinds do not pay: the gain in predicted accuracy of plans by kind, <= 0, a fraction."""
UPPER = 0.95
"""Level of the quantile that is the upper end of an invocation's dollars."""
NODE_ARRAYS = ("success", "stop", "stop_success", "cost_usd", "cost_var", "latency_s", "latency_var")
"""Annotations of a node, all conditional on the request reaching it. :class:`AnnotatedTrie` explains each."""
ARM_ARRAYS = ("arm", "arm_success")
"""Annotations of the branch that leads to a node, if the application chooses between several stages."""
OPTIONAL_ARRAYS = (
    *("accuracy_se", "cost_se", "latency_se", "count", "cost_size_var", "latency_size_var", *ARM_ARRAYS, "arm_se", "tried"),
)
"""Annotations that an estimator may add: standard errors of the path metrics, the number of observations of each node, the part
of a variance that comes from differences in size between requests, the branches, the standard error of ``arm``, and which steps
plans may take."""


@dataclass(frozen=True, eq=False)
class AnnotatedTrie:
    """A trie with estimated success, cost and latency of every node: the estimators' output and the planner's input.

    Every array has shape (n + 1,), node 0 being the root. See docs/mathematics.md.

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
    ``cost_usd`` and ``latency_s``, and the path metrics raise :class:`VineLMError`. ``difficulty`` has the rates by request
    difficulty, which give a plan's results for the requests that reach each node under it; None if the estimator gives none.

    ``tried`` says for each edge whether plans may run it, shape (edges,): if only plans that requests have run were compared
    with the current setup, plans may only run the edges of these plans. None allows every edge.

    ``signals`` is the trie of signals; None if no signals are declared, or it was not estimated. ``verdict`` says
    whether to serve the trie's plans instead of the current setup; None if the estimate was not checked.

    ``accuracy_se``, ``cost_se`` and ``latency_se`` are standard errors of ``accuracy``, ``path_cost_usd`` and
    ``path_latency_s``, ``count`` is the number of observations of each node, ``cost_size_var`` and ``latency_size_var`` are the
    parts of the variances that come from the request's size; None if the estimator gives none. ``meta`` holds the
    provenance as plain JSON.

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
        elif missing := [name for name in ARM_ARRAYS if getattr(self, name) is None]:
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
        """Whether several stages may follow some node, so that ``arm`` and ``arm_success`` are not None."""
        return not self.template.is_linear

    @cached_property
    def outcomes(self) -> Outcomes:
        """The outcomes of calls (signals and answers) at each node, on which plans depend; none in a trie of paths."""
        return Outcomes.none(len(self.trie.stages), len(self.trie))

    @cached_property
    def reach(self) -> FloatArray:
        """reach_u: P(a request that follows this path invokes u), the product of the branch probabilities along it.

        If one stage follows each node, it is the product of (1 - s_j) over the proper ancestors j of u.
        """
        return _read_only(self.trie.multiply(self.arms_by_edge[0]))

    @cached_property
    def arms_by_edge(self) -> tuple[FloatArray, FloatArray]:
        """Return, for each edge, P(its stage comes next) and P(its stage comes next and the answer so far is right).

        Both are conditional on a request being at the edge's source, in the order of the trie's edges. If only one stage can
        follow a node, this stage follows unless the request stops.
        """
        if self.arm is None or self.arm_success is None:
            source = self.trie.source
            return _read_only(1.0 - self.stop[source]), _read_only((self.success - self.stop_success)[source])
        items = self.trie.arm_items
        return _read_only(self.arm[items]), _read_only(self.arm_success[items])

    @property
    def arms(self) -> tuple[FloatArray, FloatArray]:
        """New arrays like ``arm`` and ``arm_success``; on a linear trie, whose fields are None, they are computed from the
        stops.

        Their indices are :attr:`Trie.arm_items`: the node after the branch or, in a merged trie, the edge.
        """
        found = np.ones(self.trie.n_arm_items), np.zeros(self.trie.n_arm_items)
        for values, of_edges in zip(found, self.arms_by_edge, strict=True):
            values[self.trie.arm_items] = of_edges
        return found

    def comes_next(self, node: int) -> dict[str, float]:
        """Return, for each stage that may follow the node, P(the stage comes next | the node is reached)."""
        arm = self.arms[0]
        return {stage: float(arm[item]) for stage, item in self.trie.arm_items_after(node).items()}

    @property
    def rated(self) -> FloatArray:
        """By node, the values whose standard errors are ``accuracy_se``: the path's accuracy, or in a merged trie the node's
        ``success``.
        """
        return self.reading.rated

    def weight_of(self, nodes: npt.NDArray[Any]) -> FloatArray:
        """Return each node's weight in a mean: its number of observations or, if unknown, its reach (1 in a merged trie)."""
        if self.count is not None and self.count[nodes].any():
            return np.asarray(self.count[nodes], np.float64)
        return np.asarray(np.maximum(self.reading.reach[nodes], 1e-12))

    def by_ends(self, *, one: Callable[[AnnotatedTrie], Made], several: Callable[[AnnotatedTrie], Made]) -> Made:
        """Return ``one(self)`` if each plan over this trie ends at one node, else ``several(self)``."""
        return several(self) if self.is_contingent else one(self)

    @cached_property
    def reading(self) -> TrieReading:
        """The figures of this trie that reports show, by node.

        They are figures of the node's path if each plan ends at one node, otherwise of the node itself.
        """
        if self.trie.is_merged:
            return MergedReading(self)
        return self.by_ends(one=PathReading, several=HistoryReading)

    @property
    def calls_per_hour(self) -> float | None:
        """Requests per hour for which the annotated costs hold: this rate decides how often prompt caches hit.

        0 if prompt caches never hit. None if no recorded call had a cache hit due to another request, so that the costs hold at
        any rate.
        """
        found = self.meta.get("prompt_cache", {}).get("calls_per_hour")
        return None if found is None else float(found)

    @property
    def untold(self) -> tuple[str, ...]:
        """At most one line that says why plans ignore the declared request types: distinguishing them does not help. Else
        empty.
        """
        return tuple(
            "Kinds of request are declared and not told apart: plans by kind promise"
            f" {-100 * gain:.1f} points less than plans without them, at equal dollars."
            for gain in ([self.meta[UNTOLD]] if UNTOLD in self.meta else [])
        )

    @cached_property
    def stage_names(self) -> tuple[str, ...]:
        """The workflow's stage for each stage of the trie, whose own names may include a request type or, with signals, an
        outcome.
        """
        return tuple(self.template.stages[stage].name for stage in self.outcomes.stages)

    @cached_property
    def stage_kinds(self) -> tuple[str, ...]:
        """The request type of each stage of the trie; ``""`` without types."""
        kinds = self.template.kinds_of_stages
        return tuple(kinds[stage] for stage in self.outcomes.stages)

    @cached_property
    def arm_stages(self) -> Mapping[str, tuple[str, str]]:
        """The workflow's stage and the request type for each stage of the trie, by the stage's name in the trie."""
        return dict(zip(self.trie.stages, zip(self.stage_names, self.stage_kinds, strict=True), strict=True))

    @property
    def tries(self) -> tuple[AnnotatedTrie, ...]:
        """The tries that plans can be made over: this trie, and its trie of signals if there is one."""
        return (self, *((self.signals,) if self.signals else ()))

    def judged(self, found: Verdict | None) -> AnnotatedTrie:
        """Return the trie with the verdict ``found`` on its plans, also in its trie of signals; None removes the verdict."""
        return replace(self, verdict=found, signals=self.signals and replace(self.signals, verdict=found))

    def within(self, tried: BoolArray) -> AnnotatedTrie:
        """Return the trie limited to plans over these edges, shape (edges,); its trie of signals is limited likewise."""
        return replace(self, tried=tried, signals=self.signals and self.signals.within_paths(tried, self.trie))

    def writes_answer(self, node: int) -> bool:
        """Return whether a node's invocation writes or judges an answer, even if plans may not end at the node."""
        stage = self.template.stage(self.stage_names[self.trie.stage[node]])
        return stage.answerable or stage.verdict is not None

    def slots(self, stage: Integers, depth: Integers) -> tuple[Integers, int]:
        """Return the index of the slot that each group of edges belongs to, and the number of slots.

        A slot is a stage of the application, for which a fixed plan has one model. A group of edges has all edges from one node
        to one stage of the trie.

        Args:
            stage: The index of the trie's stage that each group runs, shape (groups,).
            depth: The number of invocations before this stage, shape (groups,).

        Returns:
            Slot indices from 0, shape (groups,), and the number of slots.
        """
        own = self.template.base_numbers  # a fixed plan has one model for a stage, whatever the kind
        return np.array(own)[np.array(self.outcomes.stages)[stage]], max(own) + 1

    def with_shares(self, change: FloatArray) -> Self:
        """Return the trie with the estimates from resampled requests adapted to other shares of the requests at each node.

        A trie of paths has no such estimates and is returned unchanged.

        Args:
            change: The factor for each node's estimates, shape (n + 1,).
        """
        return self

    def returning_last(self) -> Self:
        """Return the trie for graphs that can only return their last answer.

        A trie of paths always counts the last answer and is returned unchanged.
        """
        return self

    @property
    def is_contingent(self) -> bool:
        """Whether plans over the trie depend on what happens: the trie branches, or its nodes have several histories."""
        return self.branches or self.trie.is_merged

    @cached_property
    def accuracy(self) -> FloatArray:
        """A(u) = sum over proper ancestors of reach_j b_j, plus reach_u a_u: expected accuracy if the controller ends at u."""
        ended = self.trie.accumulate(self.reach * self.stop_success) - self.reach * self.stop_success
        return _read_only(ended + self.reach * self.success)

    @cached_property
    def path_cost_usd(self) -> FloatArray:
        """C(u) = sum of reach_j c_j from the root to u: expected dollars, discounted by early stops."""
        return _read_only(self.trie.accumulate(self.reach * self.cost_usd))

    @cached_property
    def path_latency_s(self) -> FloatArray:
        """T(u) = sum of t_j from the root to u: expected seconds of running the whole path, not discounted (§3.3)."""
        return _read_only(self.trie.accumulate(self.latency_s))

    @cached_property
    def knows_latency(self) -> bool:
        """Whether some latency is not zero. All latencies are zero if the recorded answers have none."""
        return bool(self.latency_s.any())

    @cached_property
    def full_cost_usd(self) -> FloatArray:
        """K(u) = sum of c_j from the root to u: expected dollars of running the whole path; for per-request budgets."""
        return _read_only(self.trie.accumulate(self.cost_usd))

    @cached_property
    def most_usd(self) -> FloatArray:
        """Upper limit of the cost of each node's invocation, in dollars.

        A quantile that includes the spread between requests and the error of the mean cost.
        """
        unknown = np.zeros(len(self.trie))
        if self.cost_se is not None:
            of = self.reading.rated_usd
            relative = np.divide(self.cost_se, of, out=np.zeros(len(self.trie)), where=of > 0.0)
            unknown = self.cost_usd * np.nan_to_num(relative, posinf=0.0)
        return _read_only(np.maximum(lognormal_quantile(self.cost_usd, self.cost_var + unknown**2, UPPER), self.cost_usd))

    @cached_property
    def path_most_usd(self) -> FloatArray:
        """Sum of :attr:`most_usd` over the path from the root to each node; exact if all calls of a request are long or
        short together.
        """
        return _read_only(self.trie.accumulate(self.most_usd))

    @cached_property
    def path_latency_var(self) -> FloatArray:
        """Variance of T(u) in seconds squared, for invocations that are independent given the path."""
        return _read_only(self.trie.accumulate(self.latency_var))

    @cached_property
    def full_cost_var(self) -> FloatArray:
        """Variance of K(u) in dollars squared, for invocations that are independent given the path."""
        return _read_only(self.trie.accumulate(self.cost_var))

    def latency_quantile(self, level: float) -> FloatArray:
        """Return the ``level`` quantile (0 < ``level`` < 1) of the seconds of one invocation at zero load; shape (n + 1,)."""
        return lognormal_quantile(self.latency_s, self.latency_var, level)

    def cost_quantile(self, level: float) -> FloatArray:
        """Return the ``level`` quantile (0 < ``level`` < 1) of the cost of one invocation in dollars; shape (n + 1,)."""
        return lognormal_quantile(self.cost_usd, self.cost_var, level)

    def path_latency_quantile(self, level: float) -> FloatArray:
        """Return the ``level`` quantile of the seconds of running the whole path to u at zero load; shape (n + 1,)."""
        return self._path_quantile(self.latency_s, self.latency_var, self.latency_size_var, level)

    def full_cost_quantile(self, level: float) -> FloatArray:
        """Return the ``level`` quantile of the cost of a request that runs the whole path to u, in dollars; shape (n + 1,)."""
        return self._path_quantile(self.cost_usd, self.cost_var, self.cost_size_var, level)

    def _path_quantile(self, mean: FloatArray, var: FloatArray, size_var: FloatArray | None, level: float) -> FloatArray:
        """Return log-normal quantiles of sums along paths.

        The parts of the variances that come from the request's size add as standard deviations, the other parts as variances.
        """
        common = np.zeros_like(var) if size_var is None else np.minimum(size_var, var)
        total = self.trie.accumulate(var - common) + self.trie.accumulate(np.sqrt(common)) ** 2
        return lognormal_quantile(self.trie.accumulate(mean), total, level)

    @cached_property
    def engine(self) -> npt.NDArray[np.int16]:
        """The endpoint that serves each node's call, as an index into :attr:`engines`; -1 at the root; shape (n + 1,)."""
        of_model = np.array([self.engines.index(self.catalog[name].engine) for name in self.trie.models], np.int16)
        engine = np.where(self.trie.model >= 0, of_model[self.trie.model], np.int16(-1))
        return _read_only(engine.astype(np.int16))

    @cached_property
    def engines(self) -> tuple[str, ...]:
        """The endpoints that serve the trie's models, each once, sorted."""
        return tuple(sorted({self.catalog[name].engine for name in self.trie.models}))

    def to_pandas(self) -> pandas.DataFrame:
        """Return one row per node but the root, indexed by ``node``. Needs the extra ``pandas``.

        The columns are the node's ``prefix`` (a tuple of model names), ``depth``, ``stage``, ``model`` and ``answerable``, its
        annotations (:data:`NODE_ARRAYS`), ``reach``, the path metrics ``accuracy``, ``path_cost_usd``, ``path_latency_s`` and
        ``full_cost_usd``, and what the estimator gives of ``count`` and the standard errors. Variances end in ``_usd2`` and
        ``_s2``, standard errors in their unit.

        For contingent plans, the branches (:data:`ARM_ARRAYS`) replace the path metrics and standard errors.

        Raises:
            ConfigError: pandas is not installed.
        """
        return data_frame(self.columns(), index=range(1, len(self.trie)), index_name="node")

    def columns(self) -> dict[str, Any]:
        """Return the columns of :meth:`to_pandas` by name: the values of all nodes but the root, in node order."""
        columns: dict[str, Any] = self.trie.labels() | {"answerable": self.trie.answerable[1:]}
        for name in self.reading.columns:
            values = getattr(self, name)
            if values is not None:
                columns[_FRAME_NAMES.get(name, name)] = values[1:]
        return columns

    def _repr_html_(self) -> str:
        """Return the trie as a table, for notebooks."""
        return self.reading.table()


@dataclass(frozen=True, eq=False)
class SignalTrie(AnnotatedTrie):
    """A trie of signals: a branch stands for the outcome (signal and answer) of the last call and the stage that follows it.

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
        """True: outcomes are branches; see :attr:`AnnotatedTrie.branches`."""
        return True

    def slots(self, stage: Integers, depth: Integers) -> tuple[Integers, int]:
        """Return slots as :meth:`AnnotatedTrie.slots` does, but in a chain with one slot per invocation, counted from 0."""
        found = self.template.base.form.slots(depth.astype(np.int64), super().slots(stage, depth)[0])
        return found, 1 + int(found.max(initial=0))

    def with_shares(self, change: FloatArray) -> Self:
        """Return the trie with the ``spread`` and ``cost_spread`` of its outcomes multiplied by each node's factor in
        ``change``.

        These estimates from resampled requests include how often requests have each history; see
        :meth:`AnnotatedTrie.with_shares`.
        """
        found = self.outcomes
        spread, cost = found.spread * change[found.node, None], found.cost_spread * change[:, None]
        outcomes = replace(found, spread=spread.astype(np.float32), cost_spread=cost.astype(np.float32))
        return replace(self, outcomes=outcomes)

    def within_paths(self, tried: BoolArray, paths: Trie) -> Self:
        """Return the trie limited to the histories that only use allowed edges of a trie of paths.

        Args:
            tried: Whether each edge of ``paths`` is allowed, shape (edges,).
            paths: The trie of paths.
        """
        return replace(self, tried=tried[path_edges(self.trie, self.outcomes.stages, paths)])

    def returning_last(self) -> Self:
        """Return the trie for graphs that can only return their last answer: ``success`` and other rates then refer to this
        answer.
        """
        outcomes = self.outcomes
        if not outcomes.returns_earlier:
            return self
        found = self.with_right(outcomes.returning_last(), outcomes.right_last)
        ends = np.where(outcomes.arm >= 0, 0.0, outcomes.right_last)
        return replace(found, stop_success=np.asarray(np.bincount(outcomes.node, ends, len(self.trie)), np.float64))

    def with_right(self, outcomes: Outcomes, right: FloatArray) -> Self:
        """Return the trie with other outcomes, and with ``success`` and ``arm_success`` computed from ``right``.

        Args:
            outcomes: The new outcomes, in the order of the present ones.
            right: P(the outcome occurs, and the answer that counts is right | the node is reached), shape (outcomes,).
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
    """The figures of a trie that reports show, such as accuracy and cost by node.

    Subclasses compute them for tries of paths, tries in which plans end at several nodes, and merged tries.
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
        """By node, the accuracy of the node's path, whose standard errors are ``accuracy_se``."""
        return self.annotated.accuracy

    @property
    def rated_usd(self) -> FloatArray:
        """By node, the cost of the node's path in dollars, whose standard errors are ``cost_se``."""
        return self.annotated.path_cost_usd

    @property
    def reach(self) -> FloatArray:
        """P(a request reaches the node | the models up to the node) if known, otherwise 1; by node."""
        return self.annotated.reach

    @property
    def everything_usd(self) -> float | None:
        """Expected cost, in dollars, of running a request on every path.

        None for merged histories, since long loops never run fully.
        """
        return float((self.annotated.reach * self.annotated.cost_usd)[1:].sum())

    @property
    @abstractmethod
    def answer_accuracy(self) -> FloatArray:
        """Accuracy of the plan that ends at each node; if plans have several ends, P(right answer | the node is reached)."""

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
    """The figures that reports show for a trie in which one stage follows each prefix and a plan ends at a single node."""

    noun = "paths"
    holds_common_errors = True
    columns = (
        *("reach", *NODE_ARRAYS, "accuracy", "accuracy_se", "path_cost_usd", "cost_se", "path_latency_s", "latency_se"),
        *("full_cost_usd", "count"),
    )

    @property
    def answer_accuracy(self) -> FloatArray:
        """The accuracy of each node's path."""
        return self.annotated.accuracy

    @property
    def plan_arrays(self) -> list[npt.NDArray[Any]]:
        """Return the metrics of paths, from which plans are made."""
        return [self.annotated.accuracy, self.annotated.path_cost_usd, self.annotated.path_latency_s]

    def display_path(self, node: int) -> tuple[str, ...]:
        """Return the node's models."""
        return self.annotated.trie.prefix(node)

    def table(self) -> str:
        """Return an HTML table of the most accurate paths on the accuracy-cost frontier."""
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
        """Return the answerable nodes more accurate than all other nodes of at most the same cost, most accurate first."""
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
        """P(the current answer is right | the node is reached), by node."""
        return self.annotated.success

    @property
    def plan_arrays(self) -> list[npt.NDArray[Any]]:
        """Return the rates of nodes and branches, from which plans are made."""
        rates = (getattr(self.annotated, name) for name in (*NODE_ARRAYS, *ARM_ARRAYS))
        return [values for values in rates if values is not None]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the arrays of a data frame: without path metrics, which would mislead because no plan ends at a single
        node.
        """
        return ("reach", *NODE_ARRAYS, *ARM_ARRAYS, "arm_se", "count")

    def display_path(self, node: int) -> tuple[str, ...]:
        """Return the stages and models of the node's path, since models alone do not identify it."""
        return tuple(f"{stage} {model}" for stage, model in self.annotated.trie.edges(node))

    def table(self) -> str:
        """Return an HTML table with the number of histories and observations for each depth and stage."""
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
        """The success of each node, whose standard errors are ``accuracy_se``."""
        return self.annotated.success

    @property
    def rated_usd(self) -> FloatArray:
        """The cost of each node's invocation in dollars, whose standard errors are ``cost_se``."""
        return self.annotated.cost_usd

    @property
    def reach(self) -> FloatArray:
        """1 for every node: the probability of reaching a merged node is unknown."""
        return np.ones(len(self.annotated.trie))


def lognormal_quantile(mean: FloatArray, var: FloatArray, level: float) -> FloatArray:
    """Return the ``level`` quantile of log-normals with these means and variances, elementwise; 0 if the mean is 0."""
    relative = np.divide(np.sqrt(var), mean, out=np.zeros_like(mean), where=mean > 0)
    log_var = np.log1p(relative**2)
    return np.asarray(mean * np.exp(NormalDist().inv_cdf(level) * np.sqrt(log_var) - 0.5 * log_var))


def _read_only(values: Array) -> Array:
    values.flags.writeable = False
    return values


def whole_paths(annotated: AnyTrie) -> AnyTrie:
    """Return the annotated trie with only its leaves answerable, so that plans run to the last invocation.

    This is faster than passing the leaves to a planner as ``candidates``, which scans the subtree for each plan: a planner over
    the result can use its frontier index.
    """
    return _answerable_only(annotated, annotated.trie.is_leaf)


def ending_after(annotated: AnyTrie, stages: Collection[str]) -> AnyTrie:
    """Return the annotated trie in which plans may end only after these stages of the workflow: only their nodes are
    answerable.
    """
    allowed = [index for index, name in enumerate(annotated.stage_names) if name in stages]
    return _answerable_only(annotated, np.isin(annotated.trie.stage, allowed))


def within_exits(annotated: AnyTrie) -> AnyTrie:
    """Return the annotated trie in which plans may end only at the template's ``exits``; unchanged if ``exits`` is None.

    If ``exits`` is empty, plans run to the last invocation.
    """
    exits = annotated.template.exits
    if exits is None:
        return annotated
    return ending_after(annotated, exits) if exits else whole_paths(annotated)


def _answerable_only(annotated: AnyTrie, allowed: BoolArray) -> AnyTrie:
    return replace(annotated, trie=annotated.trie.with_answerable(annotated.trie.answerable & allowed))
