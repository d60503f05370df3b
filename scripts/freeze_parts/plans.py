"""Questions to the planner about the random tries, and its answers as plain values."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from freeze_parts.tries import ENGINES, made

from vinelm.controller import Planner
from vinelm.errors import InfeasibleError, VineLMError
from vinelm.objective import Objective
from vinelm.trie.annotated_trie import AnnotatedTrie

TRIES = 200
"""Of each kind."""
QUESTIONS = 7
"""About each trie."""
REFUSED, NO_PLAN = "refused", "no plan"
Asked = tuple[dict[str, Any], dict[str, Any]]
"""The fields of an objective, and the other arguments of a plan."""
FIGURES = ("accuracy", "path_cost_usd", "path_latency_s", "remaining_cost_usd", "remaining_latency_s")


class Question(NamedTuple):
    """A kind of question, the objective and the other arguments of :meth:`Planner.plan`."""

    kind: str
    objective: Objective
    asked: dict[str, Any]

    def __str__(self) -> str:
        shown = {
            name: f"{sum(value)} of {len(value)} nodes" if name == "candidates" else value for name, value in self.asked.items()
        }
        return f"{self.kind}: {self.objective.to_dict()} {shown}"


class Scales(NamedTuple):
    """What a request of the whole length costs and takes, by the means of each depth."""

    usd: float
    seconds: float

    @classmethod
    def of(cls, annotated: AnnotatedTrie) -> Scales:
        """Those of a trie."""
        depths = range(int(annotated.trie.depth.max()) + 1)
        means = [
            [float(values[annotated.trie.depth == at].mean()) for at in depths]
            for values in (annotated.cost_usd, annotated.latency_s)
        ]
        return cls(sum(means[0]), sum(means[1]))


class Asker:
    """Draws questions about one trie."""

    def __init__(self, annotated: AnnotatedTrie, rng: random.Random) -> None:
        self._annotated, self._rng, self._scales = annotated, rng, Scales.of(annotated)

    def question(self, kind: str) -> Question:
        """A question of that kind."""
        fields, asked = KINDS[kind](self)
        return Question(kind, Objective(**fields), asked)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _usd(self, low: float = 0.1, high: float = 1.2) -> float:
        return self._rng.uniform(low, high) * self._scales.usd

    def _seconds(self, low: float = 0.3, high: float = 1.5) -> float:
        return self._rng.uniform(low, high) * self._scales.seconds

    def _load(self) -> dict[str, float]:
        return {
            f"e{at}": self._rng.uniform(0.0, 0.6) * self._scales.seconds for at in range(ENGINES) if self._rng.random() < 0.8
        }

    def _inner_node(self) -> dict[str, Any]:
        """A node that a request may have come to, and what comes next there."""
        annotated, node, rng = self._annotated, 0, self._rng
        trie = annotated.trie
        for _ in range(rng.randint(1, max(int(trie.depth.max()) - 1, 1))):
            arms = self._possible_arms(node)
            children = [child for stage in arms for child in trie.arms(node)[stage]]
            inner = [child for child in children if self._possible_arms(child)]
            if not inner:
                break
            node = rng.choice(inner)
        arms = self._possible_arms(node)
        if not annotated.is_contingent:
            return {"node": node}
        return {"node": node, "stage": rng.choice(arms)} if rng.random() < 0.7 else {"node": node}

    def _possible_arms(self, node: int) -> list[str]:
        """The stages that may come next with some probability."""
        annotated, trie = self._annotated, self._annotated.trie
        if annotated.arm is None:
            return list(trie.arms(node))
        if trie.is_merged:
            return list(trie.arms(node)) if annotated.stop[node] < 1.0 else []
        return [stage for stage, below in trie.arms(node).items() if annotated.arm[below[0]] > 0.0]

    # -- kinds -----------------------------------------------------------------------------------------------------

    def _mean_budget(self) -> Asked:
        return {"maximize": "accuracy", "max_cost_usd": self._usd()}, {"may_stop": False}

    def _request_budget(self) -> Asked:
        fields = {"maximize": "accuracy", "max_cost_usd": self._usd(0.4, 1.4), "cost_budget": "per_request"}
        return fields | ({"z": 0.5} if self._rng.random() < 0.3 else {}), {"may_stop": False}

    def _deadline(self) -> Asked:
        fields = {"maximize": "accuracy", "max_latency_s": self._seconds()}
        return fields | ({"risk": "mean+sd"} if self._rng.random() < 0.3 else {}), {"may_stop": False}

    def _cheapest_with_floor(self) -> Asked:
        return {"minimize": "cost", "min_accuracy": self._rng.uniform(0.2, 0.8)}, {"may_stop": False}

    def _fastest(self) -> Asked:
        fields: dict[str, Any] = {"minimize": "latency"}
        if self._rng.random() < 0.5:
            fields["min_accuracy"] = self._rng.uniform(0.1, 0.7)
        if self._rng.random() < 0.3:
            fields["max_cost_usd"] = self._usd(0.3)
        return fields, {"may_stop": False}

    def _confident(self) -> Asked:
        return {"maximize": "accuracy", "max_cost_usd": self._usd(), "confidence": 0.9}, {"may_stop": False}

    def _confident_per_request(self) -> Asked:
        fields = {"minimize": "cost", "min_accuracy": self._rng.uniform(0.1, 0.5), "confidence": 0.8}
        return fields | {"max_latency_s": self._seconds(0.5)}, {"may_stop": False}

    def _program(self) -> Asked:
        return {"maximize": "accuracy", "max_latency_s": self._seconds(), "risk": "dp"}, {"may_stop": False}

    def _loaded(self) -> Asked:
        fields: dict[str, Any] = {"maximize": "accuracy", "max_latency_s": self._seconds(0.5, 2.0)}
        if self._rng.random() < 0.3:
            fields = {"minimize": "latency"}
        return fields, {"may_stop": False, "load": self._load()}

    def _under_way(self) -> Asked:
        fields: dict[str, Any] = {"maximize": "accuracy", "max_latency_s": self._seconds()}
        if self._rng.random() < 0.5:
            fields |= {"max_cost_usd": self._usd(0.3), "cost_budget": "per_request"}
        asked: dict[str, Any] = {"elapsed_s": 0.3 * self._seconds(), "spent_usd": 0.3 * self._usd()}
        return fields, asked | self._inner_node() | ({"load": self._load()} if self._rng.random() < 0.4 else {})

    def _under_way_on_average(self) -> Asked:
        fields = {"maximize": "accuracy", "max_cost_usd": self._usd()}
        return fields, {"elapsed_s": 0.5, "spent_usd": 0.25} | self._inner_node()

    def _or_raise(self) -> Asked:
        bound = self._rng.choice(("max_cost_usd", "max_latency_s", "min_accuracy"))
        value = {"max_cost_usd": self._usd(0.0, 0.5), "max_latency_s": self._seconds(0.1, 0.8), "min_accuracy": 0.6}[bound]
        target = {"minimize": "cost"} if bound == "min_accuracy" else {"maximize": "accuracy"}
        return target | {bound: value, "on_infeasible": "raise"}, {"may_stop": False}

    def _narrowed(self) -> Asked:
        asked: dict[str, Any] = self._inner_node()
        if self._rng.random() < 0.5:
            asked["without"] = (self._rng.choice(self._annotated.trie.models),)
        else:
            asked["candidates"] = np.array([self._rng.random() < 0.8 for _ in range(len(self._annotated.trie))])
        return {"maximize": "accuracy", "max_cost_usd": self._usd()}, asked


KINDS: dict[str, Callable[[Asker], Asked]] = {
    "mean budget": Asker._mean_budget,
    "deadline": Asker._deadline,
    "under way": Asker._under_way,
    "cheapest with floor": Asker._cheapest_with_floor,
    "request budget": Asker._request_budget,
    "loaded": Asker._loaded,
    "fastest": Asker._fastest,
    "confident": Asker._confident,
    "under way on average": Asker._under_way_on_average,
    "confident per request": Asker._confident_per_request,
    "program": Asker._program,
    "or raise": Asker._or_raise,
    "narrowed": Asker._narrowed,
}


def questions(kind: str, number: int, annotated: AnnotatedTrie) -> Iterator[Question]:
    """The questions about a trie; its neighbours in number are asked other kinds."""
    asker, names = Asker(annotated, random.Random(f"frozen questions {kind} {number}")), list(KINDS)
    for at in range(QUESTIONS):
        yield asker.question(names[(number * QUESTIONS + at) % len(names)])


def trie_values(annotated: AnnotatedTrie) -> str:
    """A short digest of the trie's shape: depth, stage and model of each node, what it follows, and whether it may answer."""
    trie = annotated.trie
    links = (trie.source, trie.target) if trie.is_merged else (trie.parent,)
    shape = [
        trie.stages,
        trie.models,
        *(np.asarray(v).tolist() for v in (trie.depth, trie.stage, trie.model, trie.answerable, *links)),
    ]
    return digest(shape)


def digest(plain: Any) -> str:
    """A short digest of plain JSON types."""
    return hashlib.sha256(json.dumps(plain, default=list).encode()).hexdigest()[:10]


def answer(planner: Planner, question: Question) -> list[Any]:
    """What the planner says: what runs next, the relaxed bounds, the figures, the plan's digest, the binding bound and slacks.

    ``["refused", why]`` where the planner does not plan so, ``["no plan", bound, best]`` where nothing meets the bounds.
    """
    try:
        decision = planner.plan(question.objective, **question.asked)
    except InfeasibleError as error:
        return [NO_PLAN, error.bound, error.best]
    except VineLMError as error:
        return [REFUSED, str(error)]
    promise = decision.promise
    return [
        next_of(decision),
        " ".join(decision.relaxed),
        *(float(getattr(decision, name)) for name in FIGURES),
        promise.accuracy,
        promise.standard_error,
        decision.binding,
        *(value for _, value in sorted(decision.slack.items())),
        plan_digest(planner, decision),
    ]


def is_tie(old: Any, new: Any) -> bool:
    """Whether two answers are different plans with the same figures."""
    both = [one[2 : 2 + len(FIGURES)] for one in (old, new) if isinstance(one, list) and len(one) > 2 + len(FIGURES)]
    return len(both) == 2 and np.allclose(*(np.array(one, float) for one in both), rtol=1e-9, atol=1e-12, equal_nan=True)


def next_of(decision: Any) -> str:
    """What runs next, by stage where several may come."""
    models = getattr(decision, "next_models", None)
    if models is None:
        return decision.next_model or "end"
    named = ", ".join(f"{stage}: {model or 'end'}" for stage, model in models.items())
    return f"{decision.next_model or 'end'} ({named})"


def plan_digest(planner: Planner, decision: Any) -> str | None:
    """A digest of the whole plan: the path, or the models after each history; None where histories are merged."""
    if planner.trie.is_merged:
        return None
    if not planner.annotated.is_contingent:
        return "/".join(decision.path)
    return digest(_steps(decision.to_dict()["contingent_plan"]["steps"]))


def _steps(steps: list[dict[str, Any]]) -> list[Any]:
    return [[step["stage"], step["model"], _steps(step["steps"])] for step in steps]


def answers(kind: str, numbers: range = range(TRIES)) -> dict[str, Any]:
    """By number of the trie: its shape, and the answers to its questions."""
    found: dict[str, Any] = {}
    for number in numbers:
        annotated = made(kind, number)
        planner = Planner(annotated)
        found[str(number)] = [trie_values(annotated), *(answer(planner, one) for one in questions(kind, number, annotated))]
    return found


def question_of(kind: str, number: int, place: int) -> str:
    """The question of an answer, in words."""
    annotated = made(kind, number)
    return f"{annotated.template.to_dict()['steps']}: {list(questions(kind, number, annotated))[place]}"
