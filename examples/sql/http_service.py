"""What the text-to-SQL service answers: a question, a database and optionally the request's objective."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from vinelm import Objective, Request, VineLM, Workflow
from vinelm.errors import ConfigError

Answer = dict[str, Any]


class HttpService:
    """Answers questions; thread-safe. ``default`` is the objective of requests without one.

    Simulated models need the dataset's row of a request, so they answer only questions of the dataset.
    """

    def __init__(self, workflow: Workflow, vine: VineLM, app: Any, default: Objective, *, is_simulated: bool) -> None:
        self._workflow, self._vine, self._app, self._default = workflow, vine, app, default
        self._known = {(row.data["question"], row.data["db_id"]): row for row in workflow.requests} if is_simulated else None
        self._databases = sorted({str(row.data["db_id"]) for row in workflow.requests})
        self._numbers = itertools.count(1)

    def ask(self, body: bytes) -> Answer:
        """Answer one request: statement, status, number of rows, models, dollars and seconds.

        Raises:
            InputError: the body is not a valid request.
        """
        asked = _object(body)
        request, objective = self._request(asked), self._objective(asked.get("objective"))
        session = None if self._vine.planner is None else self._vine.session(objective, request=request)
        context = self._vine.context(objective, policy=session, request=request)
        state: Mapping[str, Any] = self._app.invoke(self._workflow.graph_input(request), context=context)
        answer = {"sql": state["sql"], "status": state["status"], "rows": state["row_count"]}
        if session is None:
            return answer
        models = max((done.prefix for done in session.invocations), key=len, default=())
        spent_s = session.clock.now() - session.started_at
        return {**answer, "models": list(models), "cost_usd": session.spent_usd, "latency_s": round(spent_s, 3)}

    def _request(self, asked: Mapping[str, Any]) -> Request:
        question, database = (asked.get(name) for name in ("question", "db_id"))
        if not isinstance(question, str) or not question.strip():
            raise ConfigError("question must be a non-empty string")
        if database not in self._databases:
            raise ConfigError(f"db_id must be one of {', '.join(self._databases)}")
        if self._known is None:
            return Request(f"ask-{next(self._numbers)}", {"question": question, "db_id": database})
        if (question, database) not in self._known:
            raise ConfigError(
                "simulated models answer only questions of the dataset: start the service with --models for others"
            )
        return self._known[question, database]

    def _objective(self, plain: Any) -> Objective:
        if plain is None:
            return self._default
        if not isinstance(plain, dict):
            raise ConfigError('objective must be an object such as {"maximize": "accuracy", "max_latency_s": 5}')
        return Objective.from_dict(plain)


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        raise ConfigError("the body is not valid JSON") from None
    if not isinstance(asked, dict):
        raise ConfigError("the body is not a JSON object")
    for key in asked:
        if key not in ("question", "db_id", "objective"):
            raise ConfigError(f"unknown key {key!r}: use question, db_id and objective")
    return asked
