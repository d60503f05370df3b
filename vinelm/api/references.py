"""Handles requests without labels in a profile: compares all answers with those of the current models, and asks people."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from vinelm.evaluation.comparison.referred_rows import ReferredAnswer, ReferredRows
from vinelm.judging import AsToday
from vinelm.plans.assignment import place_of
from vinelm.profiler.sampling.runs import run_of, whole_path
from vinelm.requests.workflow import Workflow
from vinelm.rows.observation import Cell, Observation
from vinelm.signals.declaration import canonical
from vinelm.traces.served.replayed import ReplayRows

if TYPE_CHECKING:
    from vinelm.traces import ObservationStore
    from vinelm.trie.verdict import Verdict

Compared = Callable[[Sequence[Observation]], Sequence[Observation]]


def references_of(workflow: Workflow) -> References | None:
    """Return the object that compares the answers of requests without labels with the current setup's answers.

    None if all requests have labels, if the workflow's scorer cannot compare two answers, or if the current setup is unknown.
    """
    score = workflow.score
    if not isinstance(score, AsToday) or workflow.template.today is None:
        return None
    unlabelled = {request.id for request in workflow.requests if not score.is_labelled(request)}
    return References(workflow, score, frozenset(unlabelled)) if unlabelled else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    """The answers to a request.

    Attributes:
        digest: the digest of the current setup's answer.
        message: the current setup's answer as a chat message.
        run: the results of the calls in the current setup's run, which ended with this answer.
        others: all answers to the request as chat messages, keyed by their digests; they include the current setup's.
    """

    digest: str
    message: dict[str, Any]
    run: Sequence[Observation]
    others: dict[str, dict[str, Any]]


@dataclass(frozen=True, eq=False)
class References:
    """Compares the answers of a profile with those of the current setup.

    Attributes:
        workflow: The workflow; its template is bound and contains the current setup.
        scorer: The workflow's scorer, which compares two answers.
        unlabelled: The requests that have no label.
    """

    workflow: Workflow
    scorer: AsToday
    unlabelled: frozenset[str]
    _same: dict[tuple[str, str], bool] = field(default_factory=dict)

    def compared(self, store: ObservationStore) -> Compared:
        """Return a function that takes the rows of a profile and returns them with scores.

        Scores come from comparisons with the current setup's answers, and from what people have said about answers so far.
        """
        known = ReplayRows(store)
        said = {} if known.is_new else known.said()
        units = {} if known.is_new else {(row["request"], row["answer"]): row["unit_id"] for row in known.units()}

        def compared(rows: Sequence[Observation]) -> Sequence[Observation]:
            answered, failed = self._answered(rows)
            answers = {}
            for request, one in answered.items():
                unit = units.get((request, json.dumps(one.message, sort_keys=True)), -1)
                answers[request] = self._beside(request, one, unit)
            return ReferredRows(answers, said, failed).scored(rows)

        return compared

    def keep(self, store: ObservationStore) -> None:
        """Compare all answers in a store with the current setup's answers, and record in the store which are the same. Calls no
        model.
        """
        known, (answered, failed) = ReplayRows(store), self._answered(store.observations())
        with store.database.transaction():
            if known.is_new:
                known.create([], {})
            units = {(row["request"], row["answer"]): row["unit_id"] for row in known.units()}
            last, new, rows = max(units.values(), default=0), [], []
            for request, one in sorted(answered.items()):
                text = json.dumps(one.message, sort_keys=True)
                unit = units.get((request, text))
                if unit is None:  # also if the current setup now answers differently: labels were about the earlier answer
                    unit = last = last + 1
                    new.append(self._unit(unit, request, one, text))
                for digest, about in self._beside(request, one, unit).items():
                    message = json.dumps(one.others.get(digest, one.message), sort_keys=True)
                    rows.append({
                        "unit_id": unit, "model": digest, "answer": message, "is_today": about.is_today,
                        "is_same": about.is_same, "is_audited": about.is_audited, "may_hide": about.may_hide,
                    })  # fmt: skip
            known.add_units(new)
            known.set_compared(rows)
            known.note({**known.notes(), "failed": sorted(failed), "unlabelled": sorted(self.unlabelled)})

    def _answered(self, rows: Iterable[Observation]) -> tuple[dict[str, _Answered], set[str]]:
        """Return the answers to unlabelled requests, keyed by request id, and the ids of the requests on which the current
        setup failed. Requests that the current setup has not answered are left out of the answers.
        """
        template, by_cell = self.workflow.template, dict[Cell, Observation]()
        requests: dict[str, None] = {}
        others: dict[str, dict[str, dict[str, Any]]] = {}
        for row in rows:
            if row.request_id not in self.unlabelled:
                continue
            by_cell[row.request_id, row.prefix] = row
            requests[row.request_id] = None
            if row.success is None and row.failure is None and row.answer is not None and row.answer_digest is not None:
                of_request = others.setdefault(row.request_id, {})
                if row.answer_digest not in of_request:
                    of_request[row.answer_digest] = _message(row.answer)
        path = whole_path(template, template.today or {})
        found, failed = {}, set()
        for request in requests:
            run, is_whole = run_of(by_cell, template, request, path)
            if not is_whole or not run:
                continue
            digest = run[-1].answer_digest
            if run[-1].failure is not None or digest is None or digest not in others.get(request, {}):
                failed.add(request)
                continue
            found[request] = _Answered(digest=digest, message=others[request][digest], run=run, others=others[request])
        return found, failed

    def _beside(self, request: str, one: _Answered, unit: int) -> dict[str, ReferredAnswer]:
        """Return how each answer to a request compares with the current setup's answer, keyed by the digest of the answer.

        Args:
            request: The request's id.
            one: The current setup's answer, and all answers.
            unit: The number of the stored row (``unit_id``) under which people are asked about the request; -1 if there is
                none.
        """
        share, found = self.scorer.same.audit([one.message]), {}
        for digest, message in one.others.items():
            is_today = digest == one.digest
            pair = one.digest, digest
            if pair not in self._same:  # a sampler asks in every round, and executing SQL takes time
                self._same[pair] = is_today or self.scorer.same(one.message, message)
            is_same = self._same[pair]
            is_audited = is_same and not is_today and place_of(f"{request} {one.digest} {digest}") < share
            found[digest] = ReferredAnswer(
                unit=unit, is_today=is_today, is_same=is_same, is_audited=is_audited, may_hide=share > 0.0
            )
        return found

    def _unit(self, unit: int, request_id: str, one: _Answered, text: str) -> dict[str, Any]:
        """Return the row to store for a request, with the prompt and the answer that are shown to people who compare answers.

        Args:
            unit: The number of the new row (``unit_id``).
            request_id: The request's id.
            one: The current setup's answer and its run.
            text: The current setup's answer as JSON.
        """
        request = next(request for request in self.workflow.requests if request.id == request_id)
        given = self.workflow.graph_input(request)
        shown = next(iter(given.values())) if len(given) == 1 else given
        content = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, indent=1, default=str)
        prompt: dict[str, Any] = {"messages": [{"role": "user", "content": content}], "tools": [], "settings": {}}
        models = " > ".join(dict.fromkeys(row.model for row in one.run))
        seconds = [row.latency_s + row.tool_latency_s for row in one.run if row.is_timed]
        return {
            "unit_id": unit, "step": self.workflow.name, "title": self.workflow.name, "request": request_id, "call": "",
            "model": models, "weight": 1, "cost_usd": sum(row.cost_usd + row.tool_cost_usd for row in one.run),
            "latency_s": sum(seconds) if len(seconds) == len(one.run) else None, "tokens_in": 0, "tokens_out": 0,
            "answer": text,
            "cluster": hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:32],
            "prompt": zlib.compress(json.dumps(prompt).encode("utf-8")),
        }  # fmt: skip


def forget(store: ObservationStore) -> None:
    """Delete the comparisons of answers and close all open questions, since all requests have labels now. Answers that people
    gave are kept.
    """
    known = ReplayRows(store)
    if not known.is_new and "failed" in (notes := known.notes()):
        with store.exclusive(), store.database.transaction():
            known.set_compared([])
            known.open_questions([])
            known.note({name: value for name, value in notes.items() if name not in ("failed", "unlabelled")})


def ask(store: ObservationStore, verdict: Verdict) -> Verdict:
    """Open exactly those questions for people that a verdict needs, and close all others. Return the verdict, marked with
    whether questions are open.

    If all requests have labels, nothing is opened, and the verdict is returned unchanged.
    """
    if verdict.by_today is None:
        return verdict
    known, referred = ReplayRows(store), ReferredRows.of_store(store)
    assert referred is not None
    known.open_questions(
        {
            "unit_id": (unit := referred.answers[request][digest].unit),
            "model": digest,
            "is_today_left": place_of(f"{unit} {digest}") < 0.5,
        }
        for request, digest in verdict.by_today.questions
    )
    return replace(verdict, by_today=replace(verdict.by_today, is_put=verdict.waiting > 0))


def _message(text: str) -> dict[str, Any]:
    """Convert a stored answer (canonical JSON) to a chat message, the form in which answers are compared and shown."""
    value = json.loads(text)
    return {"content": value if isinstance(value, str) else "" if value is None else canonical(value), "tool_calls": []}
