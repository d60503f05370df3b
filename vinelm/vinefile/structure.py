"""Checks that the arrays of a trie are consistent: files with valid checksums may still be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vinelm.errors import TrieFileError
from vinelm.template.steps import SKIP
from vinelm.trie.difficulty import DIFFICULTY_ARRAYS, DifficultyRates

if TYPE_CHECKING:
    from vinelm.template import Template
    from vinelm.trie import Trie
    from vinelm.trie.annotated_trie import AnnotatedTrie
    from vinelm.trie.outcomes import Outcomes

PROBABILITIES = ("success", "stop", "stop_success")
AMOUNTS = ("cost_usd", "cost_var", "latency_s", "latency_var")
ROUNDING = 1e-6
_OF_NODES = ("parent", "depth", "stage", "model", "answerable")
_WHOLE = ("node", "label", "answer_class", "returned", "arm")
LARGEST = 1e15
"""Larger dollars and seconds mean damage, and their sums along a path could overflow."""


def check_annotated(annotated: AnnotatedTrie) -> None:
    """Raise :class:`TrieFileError` if the trie is malformed, does not follow its template, or has values out of range.

    The time is linear in the number of nodes times the depth; the depth is checked first.
    """
    trie, template = annotated.trie, annotated.template
    _require(set(trie.models) <= {*annotated.catalog, SKIP}, "its catalog lacks one of the models")
    _check_labels(trie, template)
    problem = trie.misfit(template)
    _require(problem is None, str(problem))
    _check_flow(trie, template)
    _check_amounts(annotated)
    if annotated.signals is not None:
        _check_signals(annotated.signals, annotated.signals.outcomes)


def _check_signals(annotated: AnnotatedTrie, signals: Outcomes) -> None:
    """Raise :class:`TrieFileError` if the trie of signals or its outcomes ``signals`` are malformed or out of range; see
    :func:`check_annotated`.
    """
    trie, n = annotated.trie, len(annotated.trie)
    for name in _OF_NODES:
        _require(getattr(trie, name).shape == (n,), f"signals.trie.{name} has another length than signals.trie.parent")
    problem = trie.misfit(annotated.template)
    _require(problem is None, str(problem))
    _require(bool(np.all((trie.stage[1:] >= 0) & (trie.stage[1:] < len(trie.stages)))), "signals.trie.stage is out of range")
    _require(bool(np.all((trie.model[1:] >= 0) & (trie.model[1:] < len(trie.models)))), "signals.trie.model is out of range")
    _check_amounts(annotated)
    _require(len(set(trie.stages)) == len(trie.stages), "two arms have one name")
    _require(
        all(getattr(signals, name).dtype.kind in "iu" for name in _WHOLE), "an array of outcomes does not hold whole numbers"
    )
    _require(len(set(signals.labels)) == len(signals.labels), "two labels are equal")
    node, arm = signals.node, signals.arm
    _require(bool(np.all(np.diff(node) >= 0)), "outcomes.node is not sorted")
    _require(not len(node) or bool(node[0] > 0 and node[-1] < n), "outcomes.node is out of range")
    _require(bool(np.all((signals.label >= 0) & (signals.label < len(signals.labels)))), "outcomes.label is out of range")
    _require(bool(np.all((arm >= -1) & (arm < len(trie.stages)))), "outcomes.arm is out of range")
    stages = annotated.template.stages
    _require(len(signals.stages) == len(trie.stages), "the arms' stages have another length than the arms")
    _require(bool(np.all((np.array(signals.stages) >= 0) & (np.array(signals.stages) < len(stages)))), "an arm has no stage")
    for name in ("answer_class", "returned"):
        values = getattr(signals, name)
        is_class = bool(np.all((values >= -1) & (values < annotated.template.depth)))
        _require(is_class, f"outcomes.{name} is out of range")
    for name in ("chance", "right", "right_last", "spread"):
        values = getattr(signals, name)
        is_share = bool(np.all((values >= -ROUNDING) & (values <= 1.0 + ROUNDING)))
        _require(is_share, f"outcomes.{name} is not within [0, 1]")
    _require(len(signals.cost_spread) == n, "outcomes.cost_spread has another length than the trie")
    is_amount = bool(np.all((signals.cost_spread >= 0.0) & (signals.cost_spread <= LARGEST)))
    _require(is_amount, f"outcomes.cost_spread is negative or larger than {LARGEST:g}")
    _require(bool(np.all(signals.right <= signals.chance + ROUNDING)), "outcomes.right is larger than outcomes.chance")
    _require(bool(np.all(signals.right_last <= signals.right + ROUNDING)), "outcomes.right_last is larger than outcomes.right")
    total = np.bincount(node, signals.chance, n)[1:]
    _require(bool(np.all(np.abs(total - 1.0) <= ROUNDING)), "the outcomes of a node do not sum to 1")
    _check_continued(annotated, signals)


def _check_continued(annotated: AnnotatedTrie, signals: Outcomes) -> None:
    """Raise :class:`TrieFileError` unless outcomes and branches match.

    Each outcome after which requests continue must have exactly one branch at its node, and the branch's probability ``arm``
    must equal the outcome's ``chance``; there must be no other branches.
    """
    trie, n_stages = annotated.trie, len(annotated.trie.stages)
    goes_on = np.flatnonzero(signals.arm >= 0)
    key = signals.node[goes_on].astype(np.int64) * n_stages + signals.arm[goes_on]
    order = np.argsort(key)
    _require(bool(np.all(np.diff(key[order]) > 0)), "two outcomes of a node go on by one arm")
    below = np.flatnonzero(trie.parent > 0)
    arms, first = np.unique(trie.parent[below].astype(np.int64) * n_stages + trie.stage[below], return_index=True)
    _require(np.array_equal(key[order], arms), "the outcomes that go on are not the arms of the trie")
    gap = np.abs(annotated.arms[0][below[first]] - signals.chance[goes_on][order])
    _require(bool(np.all(gap <= ROUNDING)), "arm is not outcomes.chance")


def _check_amounts(annotated: AnnotatedTrie) -> None:
    for name in PROBABILITIES:
        values = getattr(annotated, name)
        _require(bool(np.all((values >= -ROUNDING) & (values <= 1.0 + ROUNDING))), f"{name} is not within [0, 1]")
    for name in AMOUNTS:
        values = getattr(annotated, name)
        _require(bool(np.all((values >= 0.0) & (values <= LARGEST))), f"{name} is negative or larger than {LARGEST:g}")
    if annotated.difficulty is not None:
        _check_difficulty(annotated.difficulty, annotated.trie)
    if annotated.arm is not None and annotated.arm_success is not None:
        _check_arms(annotated, annotated.arm, annotated.arm_success)


def _check_labels(trie: Trie, template: Template) -> None:
    n = len(trie)
    for name in _OF_NODES:
        _require(getattr(trie, name).shape == (n,), f"trie.{name} has another length than trie.parent")
    _require(n > 0 and len(set(trie.models)) == len(trie.models), "the models are not distinct")
    _require(trie.stages == tuple(stage.name for stage in template.stages), "the stages are not the template's")
    _require(trie.depth[0] == 0 and trie.stage[0] == -1 and trie.model[0] == -1, "the root is labelled")
    inner = trie.depth[1:]
    _require(bool(np.all((inner >= 1) & (inner <= template.depth))), "trie.depth is outside of the template")
    index = {name: i for i, name in enumerate(trie.stages)}
    _require(bool(np.all((trie.stage[1:] >= 0) & (trie.stage[1:] < len(trie.stages)))), "trie.stage is out of range")
    position = {name: i for i, name in enumerate(trie.models)}
    allowed = np.zeros((len(trie.stages), len(trie.models)), np.bool_)
    for stage in template.stages:
        allowed[index[stage.name], [position[model] for model in stage.models or () if model in position]] = True
    _require(bool(np.all((trie.model[1:] >= 0) & (trie.model[1:] < len(trie.models)))), "trie.model is out of range")
    _require(bool(np.all(allowed[trie.stage[1:], trie.model[1:]])), "a stage has a model that the template does not allow")


def _check_flow(trie: Trie, template: Template) -> None:
    """Raise :class:`TrieFileError` unless every path of the trie runs its stages in an order that the template allows."""
    index = {name: i for i, name in enumerate(trie.stages)}
    after = np.full((len(template.flow.positions), len(trie.stages)), -1)
    for number, position in enumerate(template.flow.positions):
        for stage, follower in position.arms.items():
            after[number, index[stage]] = follower
    at = np.zeros(len(trie), np.int64)
    for level in trie.levels[1:]:
        at[level] = after[at[trie.parent[level]], trie.stage[level]]
        _require(bool(np.all(at[level] >= 0)), "trie.stage does not follow the template")


def _check_arms(annotated: AnnotatedTrie, arm: npt.NDArray[Any], arm_success: npt.NDArray[Any]) -> None:
    for name, values in (("arm", arm), ("arm_success", arm_success)):
        _require(bool(np.all((values >= -ROUNDING) & (values <= 1.0 + ROUNDING))), f"{name} is not within [0, 1]")
    _require(bool(np.all(arm_success <= arm + ROUNDING)), "arm_success is larger than arm")
    trie = annotated.trie
    items, first = trie.arm_items, trie.begins_arm
    for name, values in (("arm", arm), ("arm_success", arm_success)):
        same = values[items] == values[items[first]][trie.edge_arm]
        _require(bool(np.all(same)), f"{name} differs between models of one arm")
    total = np.bincount(trie.source[first], arm[items[first]], len(trie))
    _require(bool(np.all(total <= 1.0 + ROUNDING)), "the arms of a node sum to more than 1")


def check_edges(n_nodes: int, source: npt.NDArray[Any], target: npt.NDArray[Any]) -> None:
    """Raise :class:`TrieFileError` if an edge of a merged trie leads from or to a missing node."""
    _require(source.shape == target.shape and source.ndim == 1, "trie.source and trie.target have different lengths")
    for name, ends in (("source", source), ("target", target)):
        _require(bool(np.all((ends >= 0) & (ends < n_nodes))), f"trie.{name} is out of range")


def _check_difficulty(rates: DifficultyRates, trie: Trie) -> None:
    for name in DIFFICULTY_ARRAYS:
        values = getattr(rates, name)
        if values is None:
            continue
        is_within = bool(np.all((values >= -ROUNDING) & (values <= 1.0 + ROUNDING)))
        _require(is_within, f"difficulty.{name} is not within [0, 1]")
    _require(len(rates.success) == len(rates.stop) == len(rates.stop_success), "the arrays of difficulty differ in length")
    source = trie.source[np.flatnonzero(trie.begins_arm)]
    is_of_trie = all(len(values) == len(source) for values in rates.arms_at(source))
    _require(is_of_trie, "the arms of difficulty are not those of the trie")
    _require(abs(float(rates.weight.sum()) - 1.0) <= ROUNDING, "difficulty.weight does not sum to 1")


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise TrieFileError(problem)
