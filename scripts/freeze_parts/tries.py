"""Random tries of each kind, made by the constructors alone, so that no rearrangement of the planners moves them.

In every fourth trie all values are multiples of an eighth: sums are exact, and ties are common.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import places  # noqa: F401 - first: where the oracles are
from kit.oracles.branching_cases import random_stages, random_steps

from vinelm.catalog import Catalog, Model, Price
from vinelm.errors import TemplateError
from vinelm.signals import Label
from vinelm.template import Branch, Loop, Parallel, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie, SignalTrie
from vinelm.trie.difficulty import DifficultyRates
from vinelm.trie.outcomes import Outcomes, arm_title

LEAST_NODES, MOST_NODES = 5, 90
ENGINES = 2
LABELS = (Label(False, None), Label(True, None), Label(False, "odd"))
FITS = 3


class Draw:
    """Draws values: any, or multiples of an eighth."""

    def __init__(self, rng: random.Random, *, is_coarse: bool) -> None:
        self.rng, self._is_coarse = rng, is_coarse

    def amount(self, top: float) -> float:
        """A value in [0, top]."""
        return self.rng.randint(0, int(8 * top)) / 8 if self._is_coarse else top * self.rng.random()

    def part(self, whole: float) -> float:
        """A value in [0, whole]; ``whole`` is a multiple of an eighth where values are."""
        return self.rng.randint(0, round(8 * whole)) / 8 if self._is_coarse else whole * self.rng.random()

    def shares(self, count: int, whole: float = 1.0) -> list[float]:
        """Values that sum to ``whole``."""
        cuts = [0.0, *sorted(self.part(whole) for _ in range(count - 1)), whole]
        return [high - low for low, high in pairwise(cuts)][:count]

    def amounts(self, count: int, top: float) -> Any:
        """An array of values in [0, top]."""
        return np.array([self.amount(top) for _ in range(count)])


def made(kind: str, number: int) -> AnnotatedTrie:
    """The trie of that kind and number."""
    draw = Draw(random.Random(f"frozen {kind} {number}"), is_coarse=number % 4 == 0)
    return KINDS[kind](draw)


def catalog_of(names: tuple[str, ...]) -> Catalog:
    """Models on two engines."""
    price = Price(input=1.0, output=1.0, source="made up", as_of=datetime.date(2026, 1, 1))
    return Catalog(
        Model(name=name, provider="simulated", model_id=name, engine=f"e{at % ENGINES}", price=price)
        for at, name in enumerate(names)
    )


def provenance(draw: Draw) -> dict[str, Any]:
    """What half of the tries know of their evidence: the requests, and by how much choosing the best promises too much."""
    if draw.rng.random() < 0.5:
        return {}
    curve = {"cost_usd": [0.25, 1.0, 4.0], "accuracy": [0.02, 0.03, 0.05], "advantage": [0.01, 0.02, 0.06]}
    return {"requests": 40, "evidence": {"selection": curve}}


def amounts_of(draw: Draw, count: int) -> dict[str, Any]:
    """Dollars and seconds of every node; some take a dollar or a second before the first invocation."""
    found = {
        "cost_usd": draw.amounts(count, 1.5),
        "cost_var": draw.amounts(count, 1.0),
        "latency_s": draw.amounts(count, 1.5),
        "latency_var": draw.amounts(count, 1.0),
        "accuracy_se": draw.amounts(count, 0.25) / 2,
    }
    if draw.rng.random() < 0.5:
        for values in found.values():
            values[0] = 0.0
    found["latency_s"][-1] += 0.125  # a trie without any latency cannot be planned with a latency bound
    return found


def rates_of(draw: Draw, answerable: Any) -> dict[str, Any]:
    """Success, stop and their joint rate of every node; 0 at the root."""
    success, stop, both = (np.zeros(len(answerable)) for _ in range(3))
    for at in range(1, len(answerable)):
        stop[at] = draw.amount(0.75)
        success[at] = draw.amount(1.0) if answerable[at] else 0.0
        low = max(success[at] + stop[at] - 1.0, 0.0)
        both[at] = low + draw.part(min(success[at], stop[at]) - low)
    return {"success": success, "stop": stop, "stop_success": both}


# -- linear ------------------------------------------------------------------------------------------------------------


def linear(draw: Draw) -> AnnotatedTrie:
    """Chains, loops, stages without an answer, stages side by side; every third with a part of the paths only."""
    rng = draw.rng
    while True:
        models = tuple(f"m{at}" for at in range(rng.randint(1, 4)))
        template = Template(_linear_steps(rng, models)).bind(models)
        trie = Trie.from_template(template)
        if rng.random() < 0.33:
            kept = [trie.prefix(at) for at in range(1, len(trie)) if rng.random() < 0.3 and trie.is_leaf[at]]
            trie = Trie.from_prefixes(template, kept or [trie.prefix(1)])
        if trie.answerable.any() and LEAST_NODES <= len(trie) <= MOST_NODES:
            rates = rates_of(draw, trie.answerable)
            amounts = amounts_of(draw, len(trie))
            return AnnotatedTrie(trie, template, catalog_of(models), **rates, **amounts, meta=provenance(draw))


def _linear_steps(rng: random.Random, models: tuple[str, ...]) -> tuple[Any, ...]:
    def stage(name: str, *, answerable: bool = True) -> Stage:
        return Stage(name, tuple(rng.sample(models, rng.randint((len(models) + 1) // 2, len(models)))), answerable)

    turns = rng.randint(1, 3)
    shapes: tuple[Callable[[], tuple[Any, ...]], ...] = (
        lambda: (stage("only"),),
        lambda: (stage("first"), Loop((stage("again"),), turns)),
        lambda: (stage("first", answerable=False), Loop((stage("again"),), turns)),
        lambda: (Loop((stage("plan", answerable=False), stage("act")), rng.randint(1, 2)),),
        lambda: (stage("ask", answerable=False), Parallel((stage("left"), stage("right"))), stage("join")),
        lambda: (stage("draft"), stage("check", answerable=False), stage("final")),
    )
    return rng.choice((shapes[1], *shapes))()


# -- branching ---------------------------------------------------------------------------------------------------------


def branching(draw: Draw) -> AnnotatedTrie:
    """Branches, loops that are left early, and arms that end the workflow or rejoin."""
    rng = draw.rng
    while True:
        models = tuple(f"m{at}" for at in range(rng.randint(1, 3)))
        try:
            template = Template(random_steps(rng, rng.randint(2, 3), random_stages(rng, models))).bind(models)
            trie = None if template.is_linear else Trie.from_template(template)
        except TemplateError:
            continue
        if trie is not None and LEAST_NODES <= len(trie) <= MOST_NODES and trie.answerable.any():
            return _with_arms(draw, trie, template, models)


def _with_arms(draw: Draw, trie: Trie, template: Template, models: tuple[str, ...]) -> AnnotatedTrie:
    names = ("success", "stop", "stop_success", "arm", "arm_success")
    arrays: dict[str, Any] = {name: np.zeros(len(trie)) for name in names}
    arrays["arm"][0] = 1.0
    for node in range(len(trie)):
        arms = list(trie.arms(node).values())
        shares = draw.shares(len(arms) + (node > 0))
        arrays["stop"][node] = shares.pop() if node else 0.0
        if trie.answerable[node]:
            arrays["stop_success"][node] = draw.part(arrays["stop"][node])
        for below, share in zip(arms, shares, strict=True):
            right = draw.part(share) if trie.answerable[node] else 0.0
            arrays["arm"][below], arrays["arm_success"][below] = share, right
        right = arrays["stop_success"][node] + sum(arrays["arm_success"][below[0]] for below in arms)
        open_end = 0.0 if arms or not trie.answerable[node] else draw.part(1.0 - arrays["stop"][node])
        arrays["success"][node] = right + open_end
    amounts = amounts_of(draw, len(trie))
    return AnnotatedTrie(trie, template, catalog_of(models), **arrays, **amounts, meta=provenance(draw))


# -- merged ------------------------------------------------------------------------------------------------------------


def merged(draw: Draw) -> AnnotatedTrie:
    """Loops that merge histories, some with a branch inside; every third with rates by the difficulty of the request."""
    rng = draw.rng
    while True:
        models = tuple(f"m{at}" for at in range(rng.randint(2, 3)))
        kept: dict[str, Any] = {"order": "ignored"} if rng.random() < 0.5 else {"memory": rng.randint(1, 2)}
        template = Template(_merged_steps(rng, models, kept)).bind(models)
        trie = Trie.from_template(template)
        if LEAST_NODES <= len(trie) <= MOST_NODES and trie.answerable.any():
            return _merged_rates(draw, trie, template, models)


def _merged_steps(rng: random.Random, models: tuple[str, ...], kept: dict[str, Any]) -> tuple[Any, ...]:
    turns = rng.randint(2, 5)
    agent = Stage("agent", models)
    inner = Branch({"search": (Stage("search", models[:2], False),), "code": (Stage("code", models[:2]),)})
    shapes = (
        (Loop((agent,), turns, **kept),),
        (Stage("plan", models[:1], False), Loop((agent,), turns, **kept)),
        (Loop((agent,), turns, **kept, early_exit=True), Stage("write", models)),
        (Stage("plan", models[:1], False), Loop((inner,), min(turns, 3), **kept)),
    )
    return rng.choice(shapes)


def _merged_rates(draw: Draw, trie: Any, template: Template, models: tuple[str, ...]) -> AnnotatedTrie:
    arrays = rates_of(draw, trie.answerable)
    optional: dict[str, Any] = {}
    if not template.is_linear:
        optional = {"arm": np.zeros(trie.n_edges), "arm_success": np.zeros(trie.n_edges)}
        for node in range(len(trie)):
            groups: dict[str, list[int]] = {}
            for edge in np.flatnonzero(trie.source == node).tolist():
                groups.setdefault(trie.stages[trie.stage[trie.target[edge]]], []).append(edge)
            if groups:
                on = 1.0 - arrays["stop"][node]
                right = arrays["success"][node] - arrays["stop_success"][node]
                weights = [1.0 + draw.rng.random() for _ in groups]
                for edges, weight in zip(groups.values(), weights, strict=True):
                    optional["arm"][edges] = on * weight / sum(weights)
                    optional["arm_success"][edges] = right * weight / sum(weights)
    elif draw.rng.random() < 0.4:
        optional["difficulty"] = _difficulty(draw, trie)
    return AnnotatedTrie(trie, template, catalog_of(models), **arrays, **amounts_of(draw, len(trie)), **optional)


def _difficulty(draw: Draw, trie: Any, points: int = 3) -> DifficultyRates:
    weight = np.array([0.25, 0.5, 0.25])
    parts = [rates_of(draw, trie.answerable) for _ in range(points)]
    return DifficultyRates(
        weight, *(np.stack([part[name] for part in parts], axis=1) for name in ("success", "stop", "stop_success"))
    )


# -- what requests show ------------------------------------------------------------------------------------------------


def signals(draw: Draw) -> AnnotatedTrie:
    """The trie of what requests show over a chain, as `vinelm.estimate` puts it into ``AnnotatedTrie.signals``."""
    rng = draw.rng
    while True:
        models = tuple(f"m{at}" for at in range(rng.randint(1, 3)))
        depth = rng.randint(1, 3)
        loop = (Loop((Stage("repair", models),), depth - 1),) if depth > 1 else ()
        template = Template((Stage("generate", models), *loop))
        tree = _OutcomeTree(draw, models, depth, goes_on=rng.random() < 0.5)
        if LEAST_NODES <= len(tree.parent) <= 3 * MOST_NODES:
            annotated = tree.annotated(template)
            return annotated if rng.random() < 0.7 else annotated.returning_last()


class _Shown(NamedTuple):
    """An outcome that a node may show."""

    label: int
    kind: int
    chance: float
    right: float
    right_last: float
    returned: int


class _OutcomeTree:
    """Grows the nodes in pre-order: a node is what was seen so far, and the model that runs next."""

    def __init__(self, draw: Draw, models: tuple[str, ...], depth: int, *, goes_on: bool) -> None:
        self._draw, self._models, self._depth, self._goes_on = draw, models, depth, goes_on
        self._arms: dict[tuple[int, int], int] = {}
        self.parent, self.end, self.depth, self.stage, self.model = [-1], [0], [0], [-1], [-1]
        self.arm, self.arm_success = [1.0], [0.0]
        self.shown: list[tuple[int, _Shown, int]] = []
        self._grow(0, 0, 1.0, 0.0, 0)
        self.end[0] = len(self.parent)

    def _grow(self, parent: int, stage: int, arm: float, right: float, classes: int) -> None:
        for model in range(len(self._models)):
            node = len(self.parent)
            for values, value in zip(
                (self.parent, self.end, self.depth, self.stage, self.model, self.arm, self.arm_success),
                (parent, 0, self.depth[parent] + 1, stage, model, arm, right),
                strict=True,
            ):
                values.append(value)  # type: ignore[arg-type]
            for shown in self._outcomes(classes):
                passed = LABELS[shown.label].passed
                is_open = self.depth[node] < self._depth and (self._goes_on or not passed)
                at = 1 + self._arms.setdefault((shown.label, shown.kind), len(self._arms)) if is_open else -1
                self.shown.append((node, shown, at))
                if is_open:
                    self._grow(node, at, shown.chance, shown.right, max(classes, shown.kind + 1))
            self.end[node] = len(self.parent)

    def _outcomes(self, classes: int) -> Iterator[_Shown]:
        """Two or three of the possible outcomes after ``classes`` different answers."""
        draw = self._draw
        possible = [(label, kind) for label in range(len(LABELS)) for kind in range(-1, min(classes, 1) + 1)]
        chosen = sorted(draw.rng.sample(possible, draw.rng.randint(2, 3)))
        for (label, kind), chance in zip(chosen, draw.shares(len(chosen)), strict=True):
            right = draw.part(chance) if kind >= 0 or classes else 0.0
            last = right if not classes or kind < 0 else draw.part(right)
            last = 0.0 if kind < 0 else last
            returned = -1 if right <= 0.0 else max(kind, 0) if last == right or not classes else 0
            yield _Shown(label, kind, chance, right, last, returned)

    def annotated(self, template: Template) -> AnnotatedTrie:
        """The trie with its outcomes."""
        names = ["generate", *(arm_title("repair", LABELS[label], kind) for label, kind in self._arms)]
        count = len(self.parent)
        trie = Trie(
            stages=names, models=self._models, parent=self.parent, end=self.end, depth=self.depth, stage=self.stage,
            model=self.model, answerable=[at > 0 for at in range(count)],
        )  # fmt: skip
        success, stop, both = np.zeros(count), np.zeros(count), np.zeros(count)
        for node, shown, arm in self.shown:
            success[node] += shown.right
            if arm < 0:
                stop[node] += shown.chance
                both[node] += shown.right
        return SignalTrie(
            trie, template, catalog_of(self._models), success=success, stop=stop, stop_success=both,
            **amounts_of(self._draw, count), arm=np.array(self.arm), arm_success=np.array(self.arm_success),
            outcomes=self._table(trie, count),
        )  # fmt: skip

    def _table(self, trie: Trie, count: int) -> Outcomes:
        rows = sorted(self.shown, key=lambda row: row[0])
        reach = self._reach(trie)
        by_fit = [[0.75 + self._draw.amount(0.5) for _ in range(FITS)] for _ in rows]
        mass = np.array(
            [[reach[node] * shown.right * each for each in fits] for (node, shown, _), fits in zip(rows, by_fit, strict=True)]
        )
        return Outcomes(
            labels=LABELS, stages=(0, *(1 for _ in self._arms)), goes_on=self._goes_on,
            node=np.array([row[0] for row in rows], np.int32),
            label=np.array([row[1].label for row in rows], np.int16),
            answer_class=np.array([row[1].kind for row in rows], np.int16),
            chance=np.array([row[1].chance for row in rows]), right=np.array([row[1].right for row in rows]),
            right_last=np.array([row[1].right_last for row in rows]),
            returned=np.array([row[1].returned for row in rows], np.int16),
            arm=np.array([row[2] for row in rows], np.int16), spread=mass.astype(np.float32),
            cost_spread=np.outer(reach, 1.0 + np.arange(FITS) / 8).astype(np.float32),
        )  # fmt: skip

    def _reach(self, trie: Trie) -> Any:
        reach = np.ones(len(trie))
        for node in range(1, len(trie)):
            reach[node] = reach[trie.parent[node]] * self.arm[node]
        return reach


KINDS: dict[str, Callable[[Draw], AnnotatedTrie]] = {
    "linear": linear, "branching": branching, "merged": merged, "signals": signals,
}  # fmt: skip
