"""The behaviours of simulated models: eight modelled on the VineLM paper's set (§5.1), and one that dominates all others.

Nothing here was measured on a real model. Accuracies follow published text-to-SQL figures (.45–.80 for one call), prices those
of Amazon Bedrock, and speeds those at which such models are served. Errors are correlated as in the recorded outcomes of real
systems: a model rarely corrects its own mistake, another model often does, and related models fail together.

The parameters were fixed before any estimator or plan was run on them, by looking only at single-call accuracy and at
P(right | another call was wrong). Do not tune them afterwards: create another preset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Any

from vinelm.catalog import Catalog, Model, Price
from vinelm.errors import ConfigError

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
    """One simulated model. Its answer is right if its margin is above 0.

    The margin is ``ability`` - sum of ``weakness`` × the skill demanded, plus effects that are drawn once per question (shared
    by all models), per question and ``family``, per question and model (``persistent_sd``), and per invocation (``fresh_sd``).
    ``reasoning_tokens`` is the median number of tokens written (and billed) before the answer, ``latency_sigma`` the standard
    deviation of the log of its speed. ``kinds`` weights its kinds of error (default 1). Prices are dollars per million tokens.
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


def _weakness(joins: float, aggregation: float, nesting: float, dates: float, filters: float) -> dict[str, float]:
    return {"joins": joins, "aggregation": aggregation, "nesting": nesting, "dates": dates, "filters": filters}


BEHAVIOURS: Mapping[str, Behaviour] = MappingProxyType(
    {
        "gemma-27b": Behaviour(
            shaped_like="Gemma-3-27B",
            family="dense",
            ability=0.45,
            weakness=_weakness(0.78, 0.54, 0.96, 0.72, 0.3),
            kinds=_kinds(syntax=0.30, column=0.22, filter=0.16, aggregate=0.12, join=0.12, value=0.08),
            ttft_s=0.45,
            tokens_per_s=55.0,
            latency_sigma=0.30,
            reasoning_tokens=20,
            input_usd=0.23,
            output_usd=0.38,
        ),
        "sonnet": Behaviour(
            shaped_like="Sonnet-4.6",
            family="frontier",
            ability=1.25,
            weakness=_weakness(0.48, 0.54, 0.6, 0.36, 0.3),
            kinds=_kinds(syntax=0.06, column=0.24, filter=0.20, aggregate=0.18, join=0.22, value=0.10),
            ttft_s=1.10,
            tokens_per_s=62.0,
            latency_sigma=0.35,
            reasoning_tokens=120,
            input_usd=3.0,
            output_usd=15.0,
        ),
        "kimi-k2": Behaviour(
            shaped_like="Kimi-K2.5",
            family="mixture",
            ability=1.0,
            weakness=_weakness(0.54, 0.42, 0.72, 0.6, 0.36),
            kinds=_kinds(syntax=0.10, column=0.20, filter=0.20, aggregate=0.15, join=0.20, value=0.15),
            ttft_s=0.95,
            tokens_per_s=48.0,
            latency_sigma=0.45,
            reasoning_tokens=260,
            input_usd=0.60,
            output_usd=3.0,
        ),
        "qwen-32b": Behaviour(
            shaped_like="Qwen3-32B",
            family="reasoner",
            ability=0.6,
            weakness=_weakness(0.54, 0.84, 0.54, 0.6, 0.36),
            kinds=_kinds(syntax=0.18, column=0.30, filter=0.12, aggregate=0.20, join=0.12, value=0.08),
            ttft_s=0.40,
            tokens_per_s=85.0,
            latency_sigma=0.40,
            reasoning_tokens=180,
            input_usd=0.15,
            output_usd=0.60,
        ),
        "glm": Behaviour(
            shaped_like="GLM-4.7",
            family="mixture",
            ability=0.87,
            weakness=_weakness(0.66, 0.48, 0.54, 0.54, 0.3),
            kinds=_kinds(syntax=0.12, column=0.18, filter=0.26, aggregate=0.14, join=0.18, value=0.12),
            ttft_s=0.80,
            tokens_per_s=70.0,
            latency_sigma=0.40,
            reasoning_tokens=220,
            input_usd=0.60,
            output_usd=2.20,
        ),
        "llama-70b": Behaviour(
            shaped_like="Llama-3.3-70B",
            family="dense",
            ability=0.62,
            weakness=_weakness(0.48, 0.66, 1.02, 0.66, 0.3),
            kinds=_kinds(syntax=0.24, column=0.18, filter=0.14, aggregate=0.16, join=0.18, value=0.10),
            ttft_s=0.50,
            tokens_per_s=95.0,
            latency_sigma=0.30,
            reasoning_tokens=20,
            input_usd=0.72,
            output_usd=0.72,
        ),
        "deepseek-v3": Behaviour(
            shaped_like="DeepSeek-V3.2",
            family="mixture",
            ability=0.95,
            weakness=_weakness(0.48, 0.6, 0.66, 0.42, 0.36),
            kinds=_kinds(syntax=0.10, column=0.26, filter=0.16, aggregate=0.20, join=0.16, value=0.12),
            ttft_s=1.20,
            tokens_per_s=40.0,
            latency_sigma=0.50,
            reasoning_tokens=60,
            input_usd=0.62,
            output_usd=1.85,
        ),
        "gpt-oss-120b": Behaviour(
            shaped_like="gpt-oss-120b",
            family="reasoner",
            ability=0.77,
            weakness=_weakness(0.72, 0.48, 0.48, 0.36, 0.42),
            kinds=_kinds(syntax=0.14, column=0.22, filter=0.22, aggregate=0.12, join=0.22, value=0.08),
            ttft_s=0.35,
            tokens_per_s=160.0,
            latency_sigma=0.35,
            reasoning_tokens=240,
            input_usd=0.15,
            output_usd=0.60,
        ),
        # Only for the preset "one-wins": the best and the cheapest at once. Its mistakes are those of hard questions, where the
        # others fail too, and asking it again is worth more than asking another.
        "all-rounder": Behaviour(
            shaped_like="no real model",
            family="all-rounder",
            ability=2.3,
            weakness=_weakness(0.3, 0.3, 0.3, 0.3, 0.18),
            family_sd=0.1,
            persistent_sd=0.3,
            fresh_sd=1.2,
            kinds=_kinds(syntax=0.30, column=0.15, filter=0.15, aggregate=0.15, join=0.15, value=0.10),
            ttft_s=0.30,
            tokens_per_s=170.0,
            latency_sigma=0.25,
            reasoning_tokens=20,
            input_usd=0.10,
            output_usd=0.30,
        ),
    }
)

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
    """Return the catalog of a preset, with one engine per model; :class:`ConfigError` for an unknown preset."""
    return Catalog.from_dict(simulated_tables(preset), where=f"preset {preset!r}")


def simulated_tables(preset: str = "paper") -> dict[str, Any]:
    """Return the catalog of a preset as plain tables, as in a catalog file."""
    if preset not in PRESETS:
        raise ConfigError(f"unknown preset {preset!r}: simulated presets are {', '.join(PRESETS)}")
    return {"model": [_entry(name) for name in PRESETS[preset]]}


def simulated_toml(preset: str = "paper") -> str:
    """Return the text of a catalog file with the preset's models, as a template for one's own."""
    lines = ["# Simulated models: nothing here was measured on a real one."]
    for entry in simulated_tables(preset)["model"]:
        price = entry["price"]
        lines += ["", "[[model]]"]
        lines += [f'{key} = "{entry[key]}"' for key in ("name", "provider", "model", "engine")]
        lines.append(
            f"price = {{ input = {price['input']}, output = {price['output']}, "
            f'source = "{price["source"]}", as_of = {price["as_of"].isoformat()} }}'
        )
    return "\n".join(lines) + "\n"


def behaviour_of(model: Model) -> Behaviour:
    """Return the behaviour named by the model's ``model_id``; :class:`ConfigError` for an unknown one."""
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
