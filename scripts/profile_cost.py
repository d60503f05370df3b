"""What a profile of 2 % costs, for three sets of real models and their list prices: arithmetic, no call is made.

    python scripts/profile_cost.py [--json] [--results results/profile-cost.json]

The application asks one model and, where its own check fails, asks again, up to three calls in all. A complete profile would
run every sequence of models on every request. Its dollars are

    requests x (sum of a call's price over the models) x (1 + f*M + (f*M)^2)

with M models and f the share of answers that fail the check: each of the M answers that fail is followed by each of the M
models. A profile of 2 % buys rows for 2 % of that. `tests/scripts/test_profile_cost.py` holds this against a table on which
everything is executed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from studies import study

from vinelm.catalog import find_price

COVERAGE, CALLS = 0.02, 3
TOKENS_IN, TOKENS_OUT, FAILS = 1_200, 300, 0.4
REQUESTS = (100, 300, 1_000)
MODELS = {
    "2: GPT-5 mini and GPT-5": ("openai/gpt-5-mini", "openai/gpt-5"),
    "4: and Gemini 2.5 Flash and Pro": (
        "openai/gpt-5-mini",
        "openai/gpt-5",
        "gemini/gemini-2.5-flash",
        "gemini/gemini-2.5-pro",
    ),
    "8 on Bedrock, Gemma 3 27B to Claude Sonnet": (
        "bedrock/google.gemma-3-27b-it",
        "bedrock/global.anthropic.claude-sonnet-4-6",
        "bedrock/moonshotai.kimi-k2.5",
        "bedrock/qwen.qwen3-32b-v1:0",
        "bedrock/zai.glm-4.7",
        "bedrock/meta.llama3-3-70b-instruct-v1:0",
        "bedrock/deepseek.v3.2",
        "bedrock/openai.gpt-oss-120b-1:0",
    ),
}


def call_usd(price_id: str) -> float:
    """Dollars of one call at the list price."""
    found = find_price(*price_id.split("/", 1))
    if found is None:
        raise SystemExit(f"error: no price is known for {price_id}")
    return found.price.cost_usd(TOKENS_IN, TOKENS_OUT)


def complete_usd(requests: int, calls_usd: Sequence[float], fails: float = FAILS, calls: int = CALLS) -> float:
    """Dollars of every sequence of up to ``calls`` models on every request."""
    reached = sum((fails * len(calls_usd)) ** k for k in range(calls))
    return requests * sum(calls_usd) * reached


def measure() -> dict[str, Any]:
    rows = []
    for title, ids in MODELS.items():
        prices = [call_usd(price_id) for price_id in ids]
        dollars = {str(n): COVERAGE * complete_usd(n, prices) for n in REQUESTS}
        rows.append({"models": title, "usd": dollars, "complete_300_usd": complete_usd(300, prices)})
    return {
        "coverage": COVERAGE,
        "calls": CALLS,
        "tokens_in": TOKENS_IN,
        "tokens_out": TOKENS_OUT,
        "fails": FAILS,
        "rows": rows,
    }


def lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"{COVERAGE:.0%} of every sequence of up to {CALLS} calls"
    yield f"{TOKENS_IN} tokens in, {TOKENS_OUT} out; {FAILS:.0%} of the answers fail the check"
    yield f"{'models':<44}" + "".join(f"{n:>10,}" for n in REQUESTS) + f"{'all of 300':>14}  requests"
    for row in found["rows"]:
        dollars = (f"${row['usd'][str(n)]:.2f}" for n in REQUESTS)
        yield f"{row['models']:<44}" + "".join(f"{text:>10}" for text in dollars) + f"{row['complete_300_usd']:>14.2f}"


def main() -> int:
    return study(__doc__, {}, lambda options: measure(), lines)


if __name__ == "__main__":
    sys.exit(main())
