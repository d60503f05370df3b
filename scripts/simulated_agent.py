"""A simulated agent in a long loop: outcomes of any path of any request, made from a seed; nothing here is a real model.

A request needs a number of good turns before its agent is done: each turn a model makes progress with a chance that depends on
its strength, the request's difficulty, the model of the turn before (order effects) and how often it was called before. The
agent ends by its own check when the work is done, which is right more often after strong turns, or when it gives up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vinelm.catalog import Catalog
from vinelm.rows.observation import Observation
from vinelm.template import Loop, Stage, Template

Floats = npt.NDArray[np.float64]
CHECK_OF_RIGHT, CHECK_OF_WRONG = 0.80, 0.10
"""P(the agent ends | its answer is right), and | it is wrong."""


@dataclass(frozen=True)
class AgentTruth:
    """What decides a turn: logit P(right) = ability + difficulty + turns so far + effects of the earlier turns' models.

    Args:
        n_models: models, the dearer the more able.
        times: turns of the loop.
        order_effects: scale of the effects of earlier models; 0: a turn does not see what ran before.
        seed: of the abilities and effects.
    """

    n_models: int
    times: int
    order_effects: float
    seed: int

    @cached_property
    def catalog(self) -> Catalog:
        """The models m0, m1, ..."""
        price = {"input": 1.0, "output": 1.0, "source": "simulated", "as_of": "2025-01-01"}
        names = [f"m{i}" for i in range(self.n_models)]
        return Catalog.from_dict({"model": [{"name": n, "provider": "simulated", "model": n, "price": price} for n in names]})

    def template(self, *, memory: int | None = None, order: str = "seen") -> Template:
        """The template of the loop, bound."""
        loop = Loop((Stage("agent"),), self.times, memory=memory, order=order)  # type: ignore[arg-type]
        return Template((loop,)).bind(tuple(self.catalog))

    @cached_property
    def _effects(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        rng = np.random.default_rng([self.seed, self.n_models, self.times])
        ability = np.sort(rng.uniform(-3.0, -0.4, self.n_models))
        usd = 2e-4 * 2.2 ** np.arange(self.n_models) * rng.uniform(0.8, 1.25, self.n_models)
        seconds = rng.uniform(0.6, 3.0, self.n_models)
        pair = rng.normal(0.0, 0.5, (self.n_models, self.n_models))
        np.fill_diagonal(pair, -0.9)  # asking the same model again helps less
        older = rng.normal(0.0, 0.25, (self.n_models, self.n_models))
        return ability, usd, seconds, pair, older

    def logit(self, before: tuple[int, ...], model: int) -> float:
        """Logit of P(right) after this turn for a request of middle difficulty."""
        ability, _, _, pair, older = self._effects
        value = float(ability[model])
        if before:
            effect = pair[before[-1], model] + sum(older[j, model] * 0.6**k for k, j in enumerate(reversed(before[:-1])))
            value += self.order_effects * float(effect)
        return value

    def rates(self, before: tuple[int, ...], model: int, difficulty: Floats) -> tuple[Floats, Floats, Floats]:
        """P(right), P(stop), P(stop and right) of a turn by difficulty."""
        right = 1.0 / (1.0 + np.exp(-(self.logit(before, model) + 1.2 * difficulty)))
        stop_right = right * CHECK_OF_RIGHT
        return right, stop_right + (1.0 - right) * CHECK_OF_WRONG, stop_right

    def amounts(self, model: int, depth: int) -> tuple[float, float]:
        """Mean dollars and seconds of a turn: later turns read more."""
        _, usd, seconds, _, _ = self._effects
        return float(usd[model] * (1.0 + 0.06 * (depth - 1))), float(seconds[model])

    def path_accuracy(self, path: tuple[int, ...], points: int = 201) -> tuple[float, float]:
        """Exact accuracy and expected dollars of running a path until it ends or is through."""
        grid = np.linspace(-4.0, 4.0, points)
        mass = np.exp(-0.5 * grid**2)
        mass /= mass.sum()
        accuracy = cost = 0.0
        for k, model in enumerate(path):
            right, stop, stop_right = self.rates(path[:k], model, grid)
            cost += float(mass.sum()) * self.amounts(model, k + 1)[0]
            accuracy += float((mass * (stop_right if k + 1 < len(path) else right)).sum())
            mass = mass * (1.0 - stop)
        return accuracy, cost

    def profile(self, n_requests: int, n_walks: int, seed: int) -> list[Observation]:
        """Rows of random walks: a random request and a random model each turn, cells bought once."""
        rng = np.random.default_rng([seed, 77])
        difficulty = rng.normal(size=n_requests)
        size = rng.lognormal(-0.08, 0.4, n_requests)
        rows: dict[tuple[int, tuple[int, ...]], Observation] = {}
        for _ in range(n_walks):
            request = int(rng.integers(n_requests))
            path: tuple[int, ...] = ()
            for _ in range(self.times):
                path = (*path, int(rng.integers(self.n_models)))
                if (request, path) not in rows:
                    rows[request, path] = self._row(rng, request, path, (difficulty[request], size[request]))
                if rows[request, path].stopped:
                    break
        return list(rows.values())

    def _row(self, rng: np.random.Generator, request: int, path: tuple[int, ...], traits: tuple[float, float]) -> Observation:
        *before, model = path
        difficulty, size = traits
        is_right = bool(rng.random() < 1.0 / (1.0 + np.exp(-(self.logit(tuple(before), model) + 1.2 * difficulty))))
        usd, seconds = self.amounts(model, len(path))
        return Observation(
            request_id=f"q{request:04d}", prefix=tuple(f"m{m}" for m in path), stage="agent", success=is_right,
            stopped=bool(rng.random() < (CHECK_OF_RIGHT if is_right else CHECK_OF_WRONG)),
            cost_usd=float(usd * size * rng.lognormal(-0.045, 0.3)), latency_s=float(seconds * rng.lognormal(-0.045, 0.3)),
        )  # fmt: skip
