"""LiteLLM's parameters in the words of each provider here: reasoning effort, thinking budgets, further fields of the body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BUDGETS = {"disable": 0, "none": 0, "minimal": 128, "low": 1024, "medium": 2048, "high": 4096}
"""Thinking tokens that LiteLLM takes for an effort."""
_LEAST_OF_CLAUDE = 1024


def in_words_of(provider: str, model_id: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as the provider's own API has them. LiteLLM translates OpenAI's words in the same way."""
    if provider in ("gemini", "vertex"):
        return _gemini(model_id, dict(options))
    if provider == "anthropic" or (provider == "bedrock" and "claude" in model_id):
        return _claude(dict(options))
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


def _claude(options: dict[str, Any]) -> dict[str, Any]:
    effort = options.pop("reasoning_effort", None)
    if effort is not None and "thinking" not in options:
        budget = BUDGETS.get(effort, 0)
        if budget:
            options["thinking"] = {"type": "enabled", "budget_tokens": max(budget, _LEAST_OF_CLAUDE)}
    return options
