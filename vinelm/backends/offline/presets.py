"""The behaviours of simulated models: eight as in the VineLM paper (§5.1), and one that is better than all of these.

Nothing here was measured on a real model. Accuracies follow published text-to-SQL figures (.45–.80 for one call). Prices are
those of Amazon Bedrock. Speeds are typical of such models. Errors are correlated as in the recorded outcomes of real systems: a
model rarely corrects its own mistake, another model often does, and related models fail together.

The parameters were fixed before any estimator or plan was run on them, by looking only at single-call accuracy and at P(right |
another call was wrong). Do not tune them afterwards: create another preset.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vinelm.catalog import Catalog, Model, Price
from vinelm.errors import ConfigError
from vinelm.meant import did_you_mean

AS_OF = date(2026, 11, 21)
"""The day on which the parameters were fixed."""

HARDNESS_SD = 0.9
"""Spread of the difficulty that questions have for all models, beyond their skills (standard deviation of the margin)."""
FEEDBACK_GAIN = 0.25
"""Increase of a repair's margin if the invocation before made a visible error."""
VISIBLE_KINDS = frozenset({"syntax_error", "unknown_column", "wrong_value"})
"""Kinds of error that are visible when the answer is executed: an error message, or an empty result."""
REPEAT_KIND_SHARE = 0.7
"""Probability that a model's wrong answer has its usual kind of error on this question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """One simulated model. Its answer is right if the margin is above 0.

    The margin is ``ability``, minus the sum over skills of ``weakness`` times the demanded skill, plus random effects. These
    are drawn once per question (shared by all models), per question and ``family``, per question and model (``persistent_sd``),
    and per call (``fresh_sd``).

    Attributes:
        shaped_like: The real model that it imitates.
        family: The group of models whose errors are alike.
        ability: The margin on a question that demands no skill, without random effects.
        weakness: How much each demanded skill lowers the margin, by skill.
        family_sd, persistent_sd, fresh_sd: Standard deviations of the random effects.
        kinds: The relative frequency of its types of error; a type that is missing has 1.
        ttft_s: The time to first token in seconds.
        tokens_per_s: The speed of writing.
        latency_sigma: The standard deviation of the logarithm of its speed.
        reasoning_tokens: The median number of tokens written (and billed) before the answer.
        input_usd, output_usd: Prices in dollars per million tokens.
    """

    shaped_like: str
    family: str
    ability: float
    weakness: Mapping[str, float]
    family_sd: float = 0.5
    persistent_sd: float = 0.8
    fresh_sd: float = 0.3
    kinds: Mapping[str, float]
    ttft_s: float
    tokens_per_s: float
    latency_sigma: float
    reasoning_tokens: int
    input_usd: float
    output_usd: float


def _kinds(*, syntax: float, column: float, filter: float, aggregate: float, join: float, value: float) -> dict[str, float]:
    return {
        "syntax_error": syntax * 0.6,
        "unknown_column": syntax * 0.4,
        "wrong_column": column,
        "missing_filter": filter,
        "wrong_aggregate": aggregate,
        "wrong_join": join * 0.6,
        "wrong_order": join * 0.4,
        "wrong_value": value,
    }


def _behaviours() -> Iterator[tuple[str, Behaviour]]:
    text = (Path(__file__).parent / "simulated_models.toml").read_text(encoding="utf-8")
    for name, row in tomllib.loads(text).items():
        yield name, Behaviour(**{**row, "kinds": _kinds(**row["kinds"])})


BEHAVIOURS: Mapping[str, Behaviour] = MappingProxyType(dict(_behaviours()))

PRESETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "paper": ("gemma-27b", "sonnet", "kimi-k2", "qwen-32b", "glm", "llama-70b", "deepseek-v3", "gpt-oss-120b"),
        "paper-2": ("gemma-27b", "sonnet"),
        "paper-4": ("gemma-27b", "gpt-oss-120b", "deepseek-v3", "sonnet"),
        "paper-math": ("gemma-27b", "sonnet", "kimi-k2", "qwen-32b"),
        "one-wins": ("gemma-27b", "qwen-32b", "llama-70b", "all-rounder"),
    }
)
"""Behaviours by preset. In ``one-wins`` the all-rounder is the most accurate, the cheapest and the fastest."""


def simulated_catalog(preset: str = "paper") -> Catalog:
    """Return the catalog of a preset, with one engine per model. Raise :class:`ConfigError` if the preset is unknown."""
    return Catalog.from_dict(simulated_tables(preset), where=f"preset {preset!r}")


def simulated_tables(preset: str = "paper") -> dict[str, Any]:
    """Return the catalog of a preset as plain tables, as in a catalog file."""
    if preset not in PRESETS:
        raise ConfigError(
            f"unknown preset {preset!r}{did_you_mean(preset, PRESETS)}: simulated presets are {', '.join(PRESETS)}"
        )
    return {"model": [_entry(name) for name in PRESETS[preset]]}


def behaviour_of(model: Model) -> Behaviour:
    """Return the behaviour that the model's ``model_id`` names. Raise :class:`ConfigError` if it is unknown."""
    try:
        return BEHAVIOURS[model.model_id]
    except KeyError:
        raise ConfigError(
            f"model {model.name!r}: no simulated model {model.model_id!r}: known are {', '.join(BEHAVIOURS)}"
        ) from None


def _entry(name: str) -> dict[str, Any]:
    behaviour = BEHAVIOURS[name]
    price = Price(
        input=behaviour.input_usd,
        output=behaviour.output_usd,
        source=f"simulated, shaped like {behaviour.shaped_like}",
        as_of=AS_OF,
    )
    return {
        "name": f"sim-{name}",
        "provider": "simulated",
        "model": name,
        "engine": f"sim-{name}",
        "price": price.model_dump(exclude={"cached", "call"}),
    }
