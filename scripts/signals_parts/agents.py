"""Whole runs of coding agents with their real dollars, and single calls on code tasks of several kinds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from signals_parts.mixed import made
from signals_parts.record import Asked, Record, number, read_rows

from vinelm.errors import DatasetError
from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.outcome_table import NO_ANSWER, NO_SIGNAL

FOLDER = Path("agents")
SWE_AGENTS, LIVECODEBENCH = FOLDER / "swe_agents.csv.gz", FOLDER / "livecodebench.csv.gz"
MOST_CALLS, MOST_USD = 250, 3.0
"""Where the agent itself gives up: a run that ends so is the only failure that an application sees."""
SWE_ABOUT = (
    "whole runs of one agent, dollars and verdicts real; the check: the agent did not give up at its own limit of calls or "
    "dollars; a second try is another model's independent first run"
)
SWE_SYSTEMS = (
    "claude-opus-4-5-20251101", "claude-4-opus-20250514", "gpt-5.1-codex", "sonnet-4-5-20250929", "gpt-5", "gpt-5-mini",
    "deepseek-v3.2-reasoner", "gpt-5-nano",
)  # fmt: skip
USD_PER_MILLION = {
    "GPT-4-0613": (30.0, 60.0), "GPT-4-Turbo-1106": (10.0, 30.0), "GPT-4O-2024-05-13": (5.0, 15.0),
    "GPT-3.5-Turbo-0301": (1.5, 2.0), "Claude-3-Opus": (15.0, 75.0), "Claude-3-Sonnet": (3.0, 15.0),
    "Claude-3-Haiku": (0.25, 1.25), "Gemini-Pro-1.5-May": (3.5, 10.5), "Gemini-Flash-1.5-May": (0.35, 1.05),
    "Mistral-Large": (4.0, 12.0), "Codestral-Latest": (1.0, 3.0), "LLama3-70b-Ins": (0.9, 0.9),
}  # fmt: skip
"""List prices of a million tokens read and written, of mid-2024."""
TOKENS = (1000.0, 250.0)
LIVECODEBENCH_ABOUT = (
    "shares of passed samples real, right from a half on; single calls, no answers kept; list prices of mid-2024 for "
    "an assumed 1,000 tokens read and 250 written"
)


def load_swe_agents(data: Path) -> Record:
    """The run of every model on every issue; the kind is the repository."""
    path = data / SWE_AGENTS
    rows = read_rows(path, ("question_id", "repo", "model", "correct", "cost_usd", "calls"))
    cell = {(row["question_id"], row["model"]): row for row in rows}
    asked = Asked({row["question_id"]: row["repo"] for row in rows})
    requests = tuple(name for name in asked.kinds if all((name, model) in cell for model in SWE_SYSTEMS))
    if not requests:
        raise DatasetError(f"{path}: no issue was given to all {len(SWE_SYSTEMS)} models")

    def column(of: str) -> np.ndarray:
        return np.array([[number(cell[name, model], of, path) for model in SWE_SYSTEMS] for name in requests])

    usd, calls = column("cost_usd"), column("calls")
    outcomes = OutcomeTable(
        request_ids=requests,
        systems=SWE_SYSTEMS,
        success=column("correct") >= 0.5,
        signal=np.full(usd.shape, NO_SIGNAL),
        labels=(),
        passed=(calls < MOST_CALLS) & (usd < MOST_USD),
        answer_class=np.full(usd.shape, NO_ANSWER),
        cost_usd=usd,
        groups=requests,
    )
    return made("swe", outcomes, SWE_ABOUT, asked, most_calls=None)


def load_livecodebench(data: Path) -> Record:
    """Every model's share of passed samples on every task that all were given; one call for each request."""
    path, systems = data / LIVECODEBENCH, tuple(USD_PER_MILLION)
    rows = read_rows(path, ("question_id", "scenario", "model", "pass_percent"))
    cell = {(row["question_id"], row["model"]): row for row in rows}
    kinds = {row["question_id"]: row["scenario"] for row in rows}
    requests = tuple(name for name in kinds if all((name, model) in cell for model in systems))
    if not requests:
        raise DatasetError(f"{path}: no task was given to all {len(systems)} models")
    score = np.array([[number(cell[name, model], "pass_percent", path) for model in systems] for name in requests])
    usd = np.array([sum(n * price / 1e6 for n, price in zip(TOKENS, USD_PER_MILLION[name], strict=True)) for name in systems])
    outcomes = OutcomeTable(
        request_ids=requests,
        systems=systems,
        success=score >= 50.0,
        signal=np.full(score.shape, NO_SIGNAL),
        labels=(),
        passed=np.ones(score.shape, np.bool_),
        answer_class=np.full(score.shape, NO_ANSWER),
        cost_usd=np.tile(usd, (len(requests), 1)),
        groups=requests,
    )
    asked = Asked({name: kinds[name] for name in requests})
    return made("livecodebench", outcomes, LIVECODEBENCH_ABOUT, asked, most_calls=1)
