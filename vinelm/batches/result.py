"""The result of a batch: answers, costs, models and durations. Also writes the file of answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import file_digest
from pathlib import Path
from typing import Any, Literal

from vinelm.batches.requests import DatasetRequests
from vinelm.batches.steering import DatasetForecast
from vinelm.errors import ConfigError
from vinelm.io.atomic import atomic_path
from vinelm.profiler.dry_run.batch_api_forecast import BatchApiForecast
from vinelm.requests.workflow import Request
from vinelm.traces.served.answers import READ_AT_ONCE, Answer, Answers

Status = Literal["ok", "failed", "unanswered"]
MOST_REASONS = 10
"""How many reasons of failures a result has, the most frequent ones."""


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """The result of a batch, finished or not.

    Attributes:
        requests: The number of requests in the data set.
        equal: The number of requests that equal an earlier request and get its answer.
        by_status: The numbers of requests by status: "ok", "failed" and "unanswered"; empty for a dry run.
        unanswered_because: Why requests have no answer; None if all are answered.
        reasons: The numbers of failed requests by reason, most frequent first.
        calls_by_model: The numbers of invocations by model; equal requests count once.
        equal_calls: The number of these invocations that got the answer of an equal call for free.
        saved_usd: Dollars that the equal calls would have cost.
        spent_usd: Dollars spent, including interrupted runs; calls of unknown outcome count at their maximum cost.
        budget_usd: The maximum cost of the batch in dollars; None if there is no limit.
        elapsed_s: Seconds since the first start; with simulated models the requests' total seconds, divided by the workers.
        deadline_s: The maximum duration of the batch in seconds; None if there is no limit.
        forecast: The forecast before the first request; None without a forecast.
        in_batches: The savings of batch prices; None if no call uses a batch, or without a forecast.
        shared: Of all tokens in the prompts of first calls, the fraction that repeats the beginning of the preceding request's
            prompt, in [0, 1]. None if it is unknown.
        note: Why ``shared`` is unknown; empty if it is known.
        output: The file of answers.
        store: The store of the answers: a file or the address of a database, as text.
        is_simulated: Whether some models are simulated.
    """

    requests: int
    equal: int
    by_status: Mapping[Status, int] = field(default_factory=dict)
    unanswered_because: str | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)
    calls_by_model: Mapping[str, int] = field(default_factory=dict)
    equal_calls: int = 0
    saved_usd: float = 0.0
    spent_usd: float = 0.0
    budget_usd: float | None
    elapsed_s: float = 0.0
    deadline_s: float | None
    forecast: DatasetForecast | None
    in_batches: BatchApiForecast | None = None
    shared: float | None
    note: str
    output: Path
    store: str
    is_simulated: bool

    @property
    def is_complete(self) -> bool:
        """Whether every request has an answer or has failed; False for a dry run."""
        return bool(self.by_status) and not self.by_status["unanswered"]

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of the file :attr:`output`: one dictionary per request, in the dataset's order."""
        with self.output.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON types, without the answers to single requests."""
        plain = dict(vars(self)) | {"output": str(self.output), "is_complete": self.is_complete}
        in_batches = None if self.in_batches is None else asdict(self.in_batches)
        return plain | {"forecast": None if self.forecast is None else self.forecast.to_dict(), "in_batches": in_batches}


class Tally:
    """Counts requests by status."""

    def __init__(self, found: DatasetRequests) -> None:
        self._times = Counter(found.keys)
        self.by_status: Counter[Status] = Counter()
        self.by_status["unanswered"] = len(found.keys)
        self.reasons: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def add(self, answer: Answer) -> None:
        """Count an answer once for each of the equal requests that get it."""
        times = self._times[answer.key]
        self.by_status["ok" if answer.failure is None else "failed"] += times
        self.by_status["unanswered"] -= times
        self.calls.update(answer.prefix)
        if answer.failure is not None:
            self.reasons[f"{answer.failure}: {answer.detail}" if answer.detail else answer.failure] += times

    def to_fields(self) -> dict[str, Any]:
        """Return the fields ``by_status``, ``reasons`` and ``calls_by_model`` of a :class:`BatchResult`; ``reasons`` has only
        the most frequent ones.
        """
        return {
            "by_status": {status: self.by_status[status] for status in ("ok", "failed", "unanswered")},
            "reasons": dict(self.reasons.most_common(MOST_REASONS)),
            "calls_by_model": dict(self.calls.most_common()),
        }


def write_lines(output: Path, requests: Sequence[Request], keys: Sequence[str], answers: Answers, because: str | None) -> None:
    """Write one JSON line per request, in the dataset's order. The file is replaced atomically.

    The store records the file's digest first: only a recorded file is replaced the next time (:func:`require_own`).

    Args:
        output: The file.
        requests: The requests of the data set.
        keys: The key of each request.
        answers: The answers in the store.
        because: Why requests are unanswered.

    Raises:
        ConfigError: The file cannot be written. The answers stay in the store.
    """
    paid: set[str] = set()
    try:
        with atomic_path(output) as draft, draft.open("w", encoding="utf-8", errors="backslashreplace") as file:
            for at in range(0, len(keys), READ_AT_ONCE):
                found = answers.of(set(keys[at : at + READ_AT_ONCE]))
                for request, key in zip(requests[at : at + READ_AT_ONCE], keys[at : at + READ_AT_ONCE], strict=True):
                    line = _line(request.id, found.get(key), because, is_again=key in paid)
                    paid.add(key)
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()
            with draft.open("rb") as written:
                answers.note_output(file_digest(written, "sha256").hexdigest())
    except OSError as error:
        raise ConfigError(
            f"{output}: cannot write the answers ({error.strerror}); all are kept in the store: make room or name another file,"
            " and run the same line again, which buys nothing anew",
            code="answers-not-written",
        ) from error


def require_own(output: Path, answers: Answers) -> None:
    """Raise :class:`ConfigError` if the batch would overwrite ``output``, a file that it has not written.

    Raises:
        ConfigError: The batch did not write the file, or the file was changed since.
    """
    try:
        with output.open("rb") as file:
            is_own = file_digest(file, "sha256").hexdigest() in answers.outputs()
            file.seek(0)
            is_own = is_own or not file.read(1)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{output}: cannot be read ({error.strerror}): use another name for the output") from error
    if not is_own:
        raise ConfigError(
            f"{output}: exists, and is not what this batch has written: use another name for the output, or move it away",
            code="answers-not-own",
        )


def _line(request_id: str, answer: Answer | None, because: str | None, *, is_again: bool) -> dict[str, Any]:
    """Return the line of one request as JSON types.

    Args:
        request_id: The request's id.
        answer: Its answer; None if it is unanswered.
        because: Why it is unanswered.
        is_again: Whether an earlier line has this answer already. This line then has the cost 0, so that the lines' costs add
            up to the total.
    """
    if answer is None:
        return {"id": request_id, "status": "unanswered", "reason": because}
    line = {
        "id": request_id,
        "status": "ok" if answer.failure is None else "failed",
        "answer": None if answer.answer is None else json.loads(answer.answer),
        "cost_usd": 0.0 if is_again else answer.cost_usd,
        "latency_s": answer.latency_s,
        "models": list(answer.prefix),
    }
    if answer.failure is not None:
        line["reason"] = f"{answer.failure}: {answer.detail}" if answer.detail else answer.failure
    return line
