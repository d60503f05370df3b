"""Builds the trie of signals from results. In this trie, each branch is an outcome of the previous call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from vinelm.estimator.signals.answers import AnswerTable, Ints
from vinelm.estimator.signals.course import Course
from vinelm.estimator.signals.histories import LEAST_REACH, histories
from vinelm.estimator.signals.history_level import HistoryLevel, best_class
from vinelm.estimator.signals.optimism import FitMasses, selection_optimism
from vinelm.estimator.signals.predictive import FITS, Predictive
from vinelm.rows.kinds import untitled
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie, SignalTrie, within_exits
from vinelm.trie.arrays import FloatArray
from vinelm.trie.outcomes import Outcomes, arm_title, path_edges

MOST_HISTORIES = 300_000
"""The maximum number of histories; if there are more, the less likely ones are not continued."""


def why_without_signals(rows: Sequence[Observation], template: Template) -> str | None:
    """Return one line with the reason why plans over these results cannot use signals; None if they can.

    Signals are labels that the application derives from a call's answer at run time.
    """
    if not any(row.signal is not None or row.answer_class is not None for row in rows):
        return "the rows hold no signal and no answer: declare signal, agree or answer, and profile again (rows are kept)"
    if not any(row.answer_class is not None for row in rows):
        return 'the rows hold signals and no answers: name the keys of the answer, as in answer=("sql", "rows")'
    if template.rule.why_not_served:
        return "under the oracle stop the right answer is known: signals add nothing"
    if any(template.base.stage(name).answerable for name in template.base.flow.joined):
        return "signals are planned where one stage alone writes an answer at a time: here stages that run side by side do"
    return None


def estimate_signals(annotated: AnnotatedTrie, rows: Iterable[Observation], *, fits: int = FITS) -> SignalTrie | None:
    """Estimate the trie of signals, in which each branch is an outcome of the previous call.

    Args:
        annotated: The path trie of the same results; its latencies, template and catalog are used.
        rows: All results, including those after a passed check.
        fits: The number of fits to resampled requests that are combined; see :class:`Predictive`.

    Returns:
        The trie; None if :func:`why_without_signals` returns a reason.

    Raises:
        EvidenceError: No result is scored, or more than 8 signals occur.
    """
    rows = list(rows)
    template = annotated.template
    if why_without_signals(rows, template) is not None:
        return None
    begins = {row.request_id: row.stage for row in rows if row.depth == 1} if len(template.first_stages) > 1 else None
    table = AnswerTable.of(untitled(rows, template), Course.of(template), begins)
    goes_on = any(row.is_continued for row in rows)
    model = Predictive.of(table, fits=fits)
    meta: dict[str, Any] = {
        **{name: value for name, value in annotated.meta.items() if name != "evidence"},
        "estimator": "signals",
        "answers": len(table),
        "requests": len(table.requests),
        "goes_on": goes_on,
    }
    return within_exits(signals_trie(annotated, model, goes_on=goes_on, meta=meta))


def signals_trie(
    annotated: AnnotatedTrie,
    model: Predictive,
    *,
    goes_on: bool,
    least_reach: float = LEAST_REACH,
    meta: dict[str, Any] | None = None,
) -> SignalTrie:
    """Return the trie of signals from a fitted model. If there are too many histories, unlikely histories are cut off.

    A history is a sequence of models with the outcomes of their calls.

    Args:
        annotated: The path trie; see :func:`estimate_signals`.
        model: The fitted model.
        goes_on: Whether a history may continue after its answer has passed the workflow's check.
        least_reach: A history that is less likely than this, given its models, is not continued; doubled until the trie is
            small enough.
        meta: Provenance, as plain JSON.
    """
    course, arms = Course.of(annotated.template), annotated.comes_next(0)
    shares = np.array([arms[begins or course.starts[begins]] for begins in course.starts])
    while True:
        levels = histories(
            model, course, annotated.trie.models, goes_on=goes_on, least_reach=least_reach, shares=shares / shares.sum()
        )
        if sum(map(len, levels)) <= MOST_HISTORIES or least_reach > 0.2:
            masses = FitMasses.of(levels, model, shares / shares.sum())
            selection = selection_optimism(masses)
            evidence = {} if selection is None else {"evidence": {"selection": selection.to_dict()}}
            builder = _Builder(annotated, model, levels, masses, course, shares / shares.sum())
            return builder.build(goes_on, (meta or {}) | evidence)
        least_reach *= 2.0


class _Layout(NamedTuple):
    """How the nodes and branches of the trie of signals are numbered. Nodes are numbered level by level; the root is 0.

    Attributes:
        levels: the range of the nodes of each level.
        order: the nodes in pre-order, shape (nodes,).
        place: the pre-order position of each node, shape (nodes,).
        arms: the distinct branches, as (next stage, label, class of the answer).
        arm_of: for each level, the number of the branch on which each history (calls and outcomes so far) continues; 0 if the
            request ends. The first numbers stand for the ways in which a request may begin, the next ones for ``arms``.
    """

    levels: list[slice]
    order: Ints
    place: Ints
    arms: list[tuple[int, int, int]]
    arm_of: list[Ints]


class _Nodes:
    """The estimates for the ``n`` nodes of a trie of signals, such as probabilities and costs; the arrays are filled level by
    level.
    """

    def __init__(self, n: int, n_fits: int) -> None:
        self.depth, self.up = np.zeros(n, np.int64), np.full(n, -1, np.int64)
        self.stage, self.model = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
        self.reach, self.cost = np.ones(n), np.zeros(n)
        self.came, self.came_right = np.ones(n), np.zeros(n)
        self.success, self.stop, self.stop_success = np.zeros(n), np.zeros(n), np.zeros(n)
        self.cost_spread = np.zeros((n, n_fits), np.float32)


class _Builder:
    """Builds the trie of signals from the histories (sequences of a request's calls and their outcomes), with nodes in
    pre-order.

    Each node stands for a history and the model that runs next.
    """

    def __init__(  # noqa: PLR0917 - what is known of the histories
        self,
        annotated: AnnotatedTrie,
        model: Predictive,
        levels: Sequence[HistoryLevel],
        masses: Sequence[FitMasses],
        course: Course,
        shares: FloatArray,
    ) -> None:
        self.base, self.model, self.levels, self.masses, self.shares = annotated, model, levels, masses, shares
        names = [stage.name for stage in annotated.template.stages]
        own = np.array([course.stages.index(annotated.template.base_stages[name]) for name in names])
        # The template's stage, by how the request began and the stage of the course: that of its kind.
        of_kind = own.reshape(len(annotated.template.kind_names), -1).argsort(axis=1)
        self.first = np.array([names.index(begins or first) for begins, first in course.starts.items()])
        each = len(course.stages)
        self.stages = (of_kind + each * np.arange(len(of_kind))[:, None])[self.first // each]
        shown = [label._replace(arm=None) for label in model.labels]
        self.labels = tuple(dict.fromkeys(shown))
        self.label_of = np.array([self.labels.index(label) for label in shown])

    def build(self, goes_on: bool, meta: dict[str, Any]) -> SignalTrie:
        """Build and return the trie of signals.

        Args:
            goes_on: whether a history may continue after its answer has passed the workflow's check.
            meta: provenance, as plain JSON.
        """
        layout = self._layout()
        nodes = _Nodes(len(layout.order), self.model.n_fits)
        parts: list[dict[str, Any]] = []
        for d in range(len(self.levels)):
            self._connect(d, nodes, layout)
            self._estimate(d, nodes, layout)
            parts.append(self._outcomes_of(d, nodes, layout))
        order = layout.order
        labels = {"depth": nodes.depth[order], "stage": nodes.stage[order], "model": nodes.model[order]}
        parent = np.where(nodes.up[order] < 0, -1, layout.place[np.maximum(nodes.up[order], 0)])
        trie, outcomes = self._trie(layout.arms, parent, labels), self._outcomes(parts, nodes, layout, goes_on)
        edges, base = path_edges(trie, outcomes.stages, self.base.trie), np.zeros(len(order), np.int64)
        base[trie.target] = self.base.trie.target[edges]
        return SignalTrie(
            trie=trie, template=self.base.template, catalog=self.base.catalog,
            success=nodes.success[order], stop=np.clip(nodes.stop[order], 0.0, 1.0), stop_success=nodes.stop_success[order],
            **self._amounts(nodes.cost[order], base), arm=nodes.came[order], arm_success=nodes.came_right[order],
            outcomes=outcomes, meta=meta,
        )  # fmt: skip

    def _layout(self) -> _Layout:
        keys: list[Ints] = [np.full((1, 1), -1)]
        path = np.arange(len(self.first))[:, None]  # paths of the previous level's histories: (model, outcome) alternately
        for level, known in zip(self.levels, self.masses, strict=True):
            keys.append(np.column_stack((path[known.parent], known.model)))
            path = np.column_stack((keys[-1][known.node], level.label * 64 + level.kind + 1))
        width = keys[-1].shape[1]
        table = np.concatenate([np.pad(key, ((0, 0), (0, width - key.shape[1])), constant_values=-1) for key in keys])
        order = np.lexsort(table.T[::-1])
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        bounds = np.cumsum([len(key) for key in keys]).tolist()
        return _Layout([slice(*each) for each in pairwise(bounds)], order, place, *self._arms())

    def _connect(self, d: int, nodes: _Nodes, layout: _Layout) -> None:
        """Set the parent of each node of level ``d`` (from 0), and the probability of the outcome that leads to the node.

        This is the outcome of the parent's call.
        """
        here, history, models = layout.levels[d], self.masses[d].parent, self.masses[d].model
        nodes.depth[here], nodes.model[here] = d + 1, models
        if not d:
            nodes.up[here], nodes.stage[here], nodes.came[here] = 0, history, self.shares[history]
            return
        before = self.levels[d - 1]
        up = layout.levels[d - 1].start + self.masses[d - 1].node[history]
        nodes.up[here], nodes.stage[here] = up, layout.arm_of[d - 1][history]
        nodes.came[here] = before.reach[history] / nodes.reach[up]
        nodes.came_right[here] = before.right[history].max(axis=1) / nodes.reach[up]

    def _estimate(self, d: int, nodes: _Nodes, layout: _Layout) -> None:
        """Set the estimates of each node of level ``d`` (from 0), such as its probability, cost and accuracy.

        They are computed from the histories that end with the node's call.
        """
        level, here, known = self.levels[d], layout.levels[d], self.masses[d]
        of, n = known.node, len(known.parent)
        nodes.reach[here] = np.bincount(of, level.reach, n)
        nodes.cost[here.start + of] = (self.model.cost_usd * self.model.rise(d))[level.context]  # of the node's context
        nodes.cost[here] *= self.levels[d - 1].size[known.parent] if d else 1.0
        nodes.cost_spread[here] = known.cost_usd
        best, passed = level.right.max(axis=1), np.array([label.passed for label in self.model.labels])
        closes = ~level.is_open if d + 1 < len(self.levels) else passed[level.label]
        nodes.success[here] = np.bincount(of, best, n) / nodes.reach[here]
        nodes.stop[here] = np.bincount(of, level.reach * closes, n) / nodes.reach[here]
        nodes.stop_success[here] = np.bincount(of, best * closes, n) / nodes.reach[here]

    def _outcomes_of(self, d: int, nodes: _Nodes, layout: _Layout) -> dict[str, Any]:
        """Return the outcomes of the calls on level ``d``, as arrays keyed by the field names of
        :class:`~vinelm.signals.Outcomes`.

        Level 0 has the first calls of requests.
        """
        level, node = self.levels[d], layout.levels[d].start + self.masses[d].node
        best, last = level.right.max(axis=1), level.right[np.arange(len(level)), np.maximum(level.kind, 0)]
        return {
            "node": layout.place[node],
            "label": self.label_of[level.label],
            "answer_class": level.kind,
            "chance": level.reach / nodes.reach[node],
            "right": best / nodes.reach[node],
            "right_last": np.where(level.kind >= 0, last, 0.0) / nodes.reach[node],
            "returned": np.where(best > 0.0, best_class(level.right), -1),
            "arm": np.where(level.is_open, layout.arm_of[d], -1),
            "spread": level.spread,
        }

    def _outcomes(self, parts: Sequence[dict[str, Any]], nodes: _Nodes, layout: _Layout, goes_on: bool) -> Outcomes:
        """Return the outcomes of the calls on all levels as one table, sorted by node.

        ``parts`` has, for each level, the level's arrays, keyed by the field of :class:`Outcomes`.
        """
        table = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        rows = np.argsort(table["node"], kind="stable")
        kinds: dict[str, type] = {
            "node": np.int32,
            "label": np.int16,
            "answer_class": np.int16,
            "returned": np.int16,
            "arm": np.int16,
            "spread": np.float32,
        }
        arrays: dict[str, Any] = {name: values[rows].astype(kinds.get(name, np.float64)) for name, values in table.items()}
        stages = (*self.first.tolist(), *(stage for stage, *_ in layout.arms))
        return Outcomes(self.labels, stages, goes_on, cost_spread=nodes.cost_spread[layout.order], **arrays)

    def _arms(self) -> tuple[list[tuple[int, int, int]], list[Ints]]:
        """Return the distinct branches as (next stage, label, class of the answer), and the branch of each history.

        The second item has an array for each level: for each history of the level, the number of the branch on which it
        continues. These are :attr:`_Layout.arms` and :attr:`_Layout.arm_of`.
        """
        arms: dict[tuple[int, int, int], int] = {}
        of_levels = []
        for level in self.levels:
            keys = np.column_stack((level.begins, level.following, self.label_of[level.label], level.kind))
            distinct, which = np.unique(keys, axis=0, return_inverse=True)
            number = [
                0 if stage < 0 else arms.setdefault((int(self.stages[begins, stage]), label, kind), len(arms) + len(self.first))
                for begins, stage, label, kind in distinct.tolist()
            ]
            of_levels.append(np.array(number, np.int64)[which.reshape(-1)])
        return list(arms), of_levels

    def _trie(self, arms: list[tuple[int, int, int]], parent: Ints, labels: dict[str, Ints]) -> Trie:
        """Return the trie of the nodes in pre-order.

        Args:
            arms: the distinct branches; each becomes a stage of the trie.
            parent: the parent of each node, shape (nodes,).
            labels: the arrays ``depth``, ``stage`` and ``model`` of the nodes, by name.
        """
        end, depth = np.arange(1, len(parent) + 1), labels["depth"]
        for d in range(int(depth.max()), 0, -1):
            level = np.flatnonzero(depth == d)
            np.maximum.at(end, parent[level], end[level])
        stages = self.base.template.stages
        names = [stages[stage].name for stage in self.first]
        names += [arm_title(stages[stage].name, self.labels[label], kind) for stage, label, kind in arms]
        answers = np.array([stages[stage].answerable for stage in (*self.first.tolist(), *(stage for stage, *_ in arms))])
        return Trie(
            stages=names, models=self.base.trie.models, parent=parent, end=end,
            answerable=answers[labels["stage"]] & (labels["depth"] > 0), **labels,
        )  # fmt: skip

    def _amounts(self, cost_usd: FloatArray, base: Ints) -> dict[str, Any]:
        """Return the trie's arrays of costs, latencies and, if known, standard errors of accuracy, by name.

        Latencies and standard errors are those of the trie of paths, which ignores signals. Variances of costs are scaled in
        proportion to the squares of the costs.

        Args:
            cost_usd: the estimated cost of each node's call in dollars, shape (nodes,).
            base: for each node, the node of the trie of paths that it corresponds to; shape (nodes,).
        """
        annotated = self.base
        cost_usd[0] = annotated.cost_usd[0]
        ratio = np.divide(cost_usd, annotated.cost_usd[base], out=np.ones(len(base)), where=annotated.cost_usd[base] > 0.0)
        se = None if annotated.accuracy_se is None else annotated.accuracy_se[base]
        found = {
            "cost_usd": cost_usd,
            "cost_var": annotated.cost_var[base] * ratio**2,
            "latency_s": annotated.latency_s[base],
            "latency_var": annotated.latency_var[base],
        }
        return found if se is None else found | {"accuracy_se": se}
