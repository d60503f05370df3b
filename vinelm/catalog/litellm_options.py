"""LiteLLM's parameters in the words of each provider here: reasoning effort, thinking budgets, further fields of the body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

BUDGETS = {"disable": 0, "none": 0, "minimal": 128, "low": 1024, "medium": 2048, "high": 4096}
"""Thinking tokens that LiteLLM takes for an effort."""
_LEAST_OF_CLAUDE = 1024
_WITH_BUDGET = re.compile(r"claude-3|claude-(opus|sonnet|haiku)-4(-[015])?($|[-@]20\d{6})")
"""Models of Claude that think within a budget; later ones adapt to an effort and refuse a budget."""


def in_words_of(provider: str, model_id: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as the provider's own API has them. LiteLLM translates OpenAI's words in the same way."""
    if provider in ("gemini", "vertex"):
        return _gemini(model_id, dict(options))
    if provider == "anthropic" or (provider == "bedrock" and "claude" in model_id):
        return _claude(model_id, dict(options))
    return dict(options)


def _gemini(model_id: str, options: dict[str, Any]) -> dict[str, Any]:
    effort, thinking = options.pop("reasoning_effort", None), options.pop("thinking", None)
    if isinstance(thinking, Mapping):
        budget = thinking.get("budget_tokens", -1) if thinking.get("type") == "enabled" else 0
        options["thinking_config"] = {"thinking_budget": budget}
    elif effort is not None and "gemini-3" in model_id:
        options["thinking_config"] = {"thinking_level": "high" if effort == "high" else "low"}
    elif effort is not None:
        options["thinking_config"] = {"thinking_budget": BUDGETS.get(effort, -1)}
    return options


def _claude(model_id: str, options: dict[str, Any]) -> dict[str, Any]:
    effort = options.pop("reasoning_effort", None)
    budget = BUDGETS.get(effort, 0) if effort is not None and "thinking" not in options else 0
    if budget and _WITH_BUDGET.search(model_id):
        options["thinking"] = {"type": "enabled", "budget_tokens": max(budget, _LEAST_OF_CLAUDE)}
    elif budget:
        options["thinking"] = {"type": "adaptive"}
        options["output_config"] = {"effort": "low" if effort == "minimal" else effort, **options.get("output_config", {})}
    return options
