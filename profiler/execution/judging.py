"""Scores an answer with the workflow's judge: reserves money, calls the judge, reads the verdict, and reports the cost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from vinelm.backends import PROVIDERS, create_backends
from vinelm.catalog import Catalog, Model
from vinelm.errors import CallError, CallRefused, ConfigError, WorkflowError
from vinelm.foreign_code import explained
from vinelm.judging import Judgement, LLMJudge
from vinelm.judging.judge import AGAIN
from vinelm.judging.judgement import REFUSED, verdict_of
from vinelm.policies.policy import known_total
from vinelm.profiler.execution.fingerprint import code_digest
from vinelm.profiler.execution.job import UnitBudget
from vinelm.profiler.execution.ledger import FIRST_PROMPT_TOKENS
from vinelm.profiler.execution.unit_adapter import UNIT_BUDGET, UNIT_PROMPTS, UnitModels
from vinelm.requests.protocols import Backend, CallContext
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Usage

STAGE = "judge"
"""The stage name of the judge's calls: they are not paid by any stage of a workflow."""


class Judging:
    """The judge of a workflow, with the model and backend to call."""

    def __init__(self, judge: LLMJudge, models: UnitModels, entry: Model) -> None:
        self.judge, self.models, self.entry = judge, models, entry
        self.digest = judge.digest
        self._truth = "" if judge.truth is None else code_digest(judge.truth)

    def label_digest(self, request: Request) -> str | None:
        """Return a hash of the request's label and of how answers are compared with it; None without a label."""
        if not self.judge.is_labelled(request):
            return None
        return _hash([request.data[self.judge.label or ""], self.judge.answer, self._truth])

    def ask(
        self,
        request: Request,
        given: Mapping[str, Any],
        state: Mapping[str, Any],
        *,
        known: Mapping[str, bool],
        budget: UnitBudget | None,
    ) -> Judgement:
        """Return the judgement of an answer.

        Calls the judge's model, which spends money, unless the same question is in ``known``.

        Args:
            request: the request.
            given: the graph's inputs.
            state: the workflow state after the answer, without the key that VineLM adds to it.
            known: the verdicts on the request's answers so far, by the digest of the question to the judge.
            budget: authorizes each call; None allows every call.

        Raises:
            WorkflowError: the judge's prompt cannot be made from this state, or ``truth`` raised.
            ConfigError: the provider rejected the API key.
        """
        messages = self.judge.messages(request, given, state)
        asked = _hash([self.digest, messages])
        usages: list[Usage] = []
        correct, detail = known.get(asked), None
        if correct is None:
            correct, detail = self._verdict(request, messages, usages, budget)
        return Judgement(
            judge=self.digest, asked=asked, correct=correct, truth=self._truth_of(request, state),
            label=self.label_digest(request), model=self.entry.name, cost_usd=sum(usage.cost_usd for usage in usages),
            calls=len(usages), tokens_in=known_total([usage.tokens_in for usage in usages]),
            tokens_out=known_total([usage.tokens_out for usage in usages]), detail=detail,
        )  # fmt: skip

    def _truth_of(self, request: Request, state: Mapping[str, Any]) -> bool | None:
        where = f"request {request.id!r}: truth(request, state) raised"
        with explained(lambda error: WorkflowError(f"{where} {type(error).__name__}: it must compare any answer")):
            return self.judge.truth_of(request, state)

    def _verdict(
        self, request: Request, messages: list[tuple[str, str]], usages: list[Usage], budget: UnitBudget | None
    ) -> tuple[bool | None, str | None]:
        """Return (whether the judge finds the answer right, None), or (None, why the judge gave no verdict).

        Appends the usage of each call to ``usages``.
        """
        for attempt in range(self.judge.attempts):
            instructions = messages[0][1] if not attempt else f"{messages[0][1]}\n\n{AGAIN}"
            try:
                reply = self._reply(request, [("system", instructions), *messages[1:]], usages, budget)
            except CallRefused:
                return None, REFUSED
            except CallError as error:
                if error.kind == "auth":
                    raise ConfigError(
                        f"the judge {self.entry.name!r}: the provider refused the key: check its credentials",
                        code="key-refused",
                    ) from error
                return None, f"the judge's call failed: {error.kind}"  # its backend has already retried it
            verdict = verdict_of(reply)
            if verdict is not None:
                return verdict, None
        return None, f"none of the judge's {self.judge.attempts} replies held a verdict"

    def _reply(self, request: Request, messages: list[tuple[str, str]], usages: list[Usage], budget: UnitBudget | None) -> str:
        call = CallContext(
            stage=STAGE, prefix=(self.entry.name,), clock=self.models.new_clock(), on_usage=usages.append, request=request
        )
        token, prompts = UNIT_BUDGET.set(budget), UNIT_PROMPTS.set(None)  # its prompts belong to no row
        try:
            return str(self.models.chat_model(self.entry.name, call).invoke(messages).text)
        finally:
            UNIT_PROMPTS.reset(prompts)
            UNIT_BUDGET.reset(token)


def judge_catalog(judge: LLMJudge, catalog: Catalog) -> Catalog:
    """Return a catalog that has only the judge's model.

    The workflow names this model as a ``Model``, by the name of a catalog entry, or as ``provider:model`` with a known price.

    Raises:
        ConfigError: there is no such entry, and the name is not a ``provider:model`` with a known price.
    """
    if isinstance(judge.model, Model):
        entry = judge.model
    elif judge.model in catalog:
        entry = catalog[judge.model]
    else:
        try:
            entry = Catalog.from_strings([judge.model]).models[0]
        except ConfigError as error:
            raise ConfigError(
                f"the judge {judge.model!r} is no entry of the catalog, and: {error}", code="judge-model"
            ) from error
    live = {name: chat for name, chat in catalog.live.items() if name == entry.name}
    tables = {name: table for name, table in catalog.backends.items() if name == entry.provider}
    return Catalog([entry], tables, live=live)


def judge_backends(judge: LLMJudge, catalog: Catalog, backends: Mapping[str, Backend]) -> Mapping[str, Backend]:
    """Return the one backend that calls the judge's model, keyed by provider name. Makes no call.

    It is the backend in ``backends`` for that provider if the model is in the catalog, otherwise a new one.
    """
    own = judge_catalog(judge, catalog)
    provider = own.models[0].provider
    is_entry = own.models[0].name in catalog or provider not in PROVIDERS  # a backend only knows the engines of its catalog
    return {provider: backends[provider]} if is_entry and provider in backends else create_backends(own)


def judge_backends_of(workflow: Workflow, catalog: Catalog, backends: Mapping[str, Backend]) -> Mapping[str, Backend]:
    """Return the backend of the workflow's judge, by provider; empty without a judge. Makes no call.

    Raises:
        ConfigError: see :func:`judge_catalog`.
    """
    return judge_backends(workflow.score, catalog, backends) if isinstance(workflow.score, LLMJudge) else {}


def judge_price(workflow: Workflow, catalog: Catalog) -> tuple[str, float] | None:
    """Return the judge's model and the maximum cost of one call, in dollars; None without a judge.

    The length of the prompt is assumed, as for a stage without results.

    Raises:
        ConfigError: see :func:`judge_catalog`.
    """
    if not isinstance(workflow.score, LLMJudge):
        return None
    entry = judge_catalog(workflow.score, catalog).models[0]
    return entry.name, entry.price.cost_usd(FIRST_PROMPT_TOKENS, entry.max_tokens)


def make_judging(workflow: Workflow, catalog: Catalog, backends: Mapping[str, Backend]) -> Judging | None:
    """Return the judge of a workflow; None if its scorer is not a judge. Makes no call.

    Raises:
        ConfigError: see :func:`judge_catalog`.
        WorkflowError: the template ends a request at its first right answer (oracle), which a judge cannot recognize.
    """
    judge = workflow.score
    if not isinstance(judge, LLMJudge):
        return None
    if workflow.has_template:
        workflow.template.rule.require_served(
            WorkflowError("the oracle stop ends where the answer is right, which a judge does not know: use stop='workflow'")
        )
    own = judge_catalog(judge, catalog)
    models = UnitModels(own, judge_backends(judge, catalog, backends))
    return Judging(judge, models, own.models[0])


class JudgedUnit:
    """Judges the answer of one job, and keeps the result. The arguments are those of :meth:`Judging.ask`.

    Attributes:
        judgement: the result; None before the judge has been called.
    """

    def __init__(self, judging: Judging, known: Mapping[str, bool], budget: UnitBudget | None) -> None:
        self._judging, self._known, self._budget = judging, known, budget
        self.judgement: Judgement | None = None

    def verdict(self, workflow: Workflow, request: Request, state: Mapping[str, Any]) -> bool | None:
        """Judge an answer, keep the judgement, and return its verdict."""
        given = {key: value for key, value in workflow.graph_input(request).items() if key != self._judging.judge.label}
        self.judgement = self._judging.ask(request, given, state, known=self._known, budget=self._budget)
        return self.judgement.correct


UNIT_JUDGE: ContextVar[JudgedUnit | None] = ContextVar("vinelm_unit_judge", default=None)
"""The judging of the unit that runs in this context; None if no judge is asked."""


@contextmanager
def judged(unit: JudgedUnit) -> Iterator[JudgedUnit]:
    """Inside the block, let ``unit`` score the answers that need a judge. Outside of the block such answers get no score."""
    token = UNIT_JUDGE.set(unit)
    try:
        yield unit
    finally:
        UNIT_JUDGE.reset(token)


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
