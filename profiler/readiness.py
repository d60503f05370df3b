"""Checks whether a workflow can be profiled and served, without spending anything."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool
from langsmith import tracing_context
from pydantic import ValidationError

from vinelm.adapters.langchain.other_clients import other_clients_refused
from vinelm.adapters.langgraph.build import nodes_of_stages
from vinelm.adapters.langgraph.exits import resolved
from vinelm.adapters.langgraph.nodes.signature import line_of_user, user_place
from vinelm.adapters.langgraph.structure.code import template_code, template_imports
from vinelm.adapters.langgraph.structure.reading import template_differences
from vinelm.backends.base import estimate_tokens
from vinelm.backends.offline.scripted import ScriptedChatModel
from vinelm.backends.prompt_text import prompt_parts
from vinelm.catalog import Catalog, Model
from vinelm.errors import VineLMError, WorkflowError
from vinelm.foreign_code import answered, explained
from vinelm.judging import AsToday, LLMJudge
from vinelm.profiler.execution.fingerprint import fingerprint
from vinelm.profiler.execution.job import UnitBudget, UnitOutcome
from vinelm.profiler.execution.judging import judge_catalog
from vinelm.profiler.execution.outcome import beyond_turns
from vinelm.profiler.execution.replayed.runner import ReplayRunner, Units, make_units
from vinelm.profiler.execution.unit_adapter import UnitAdapter
from vinelm.prompts.layout import PromptLayout, PromptPart, SeenPrompt, layout_of
from vinelm.requests.protocols import CallContext
from vinelm.requests.workflow import Request, StagedWriter, Workflow
from vinelm.rows.observation import Observation, Usage
from vinelm.signals import Signals
from vinelm.template import Stage, Template

_LEAST_CHARS = 3  # characters of a state value that names a message: shorter values occur in any text


class SeenPrompts:
    """Collects prompts in memory. Threads of one run may share it."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[str, Sequence[BaseMessage], Sequence[Any]]]] = {}
        self._states: dict[str, Mapping[str, Any]] = {}

    def begin(self, request_id: str, state: Mapping[str, Any]) -> None:
        """Begin collecting prompts of a request with this state; discard the prompts of an earlier try."""
        self._seen[request_id], self._states[request_id] = [], state

    def end(self, request_id: str, state: Mapping[str, Any]) -> None:
        """Record the final state; its keys are used to name parts of prompts."""
        self._states[request_id] = {**self._states[request_id], **state}

    def seeing(self, call: CallContext) -> CallContext:
        """Return the call context, changed so that its prompts are collected here."""
        return replace(call, on_prompt=partial(self._see, call))

    def layout(self) -> PromptLayout:
        """Return which parts the collected prompts have in common."""
        return layout_of(
            [
                SeenPrompt(stage, request_id, tuple(_parts(messages, tools, self._states[request_id])))
                for request_id, calls in self._seen.items()
                for stage, messages, tools in calls
            ]
        )

    def _see(self, call: CallContext, messages: Sequence[BaseMessage], tools: Sequence[Any]) -> None:
        if call.request is not None:
            self._seen.setdefault(call.request.id, []).append((call.stage, list(messages), tools))


def _parts(messages: Sequence[BaseMessage], tools: Sequence[Any], state: Mapping[str, Any]) -> Iterator[PromptPart]:
    for number, text in enumerate(prompt_parts([], tools), 1):
        yield PromptPart(f"tool {number}", text, is_movable=False)
    taken: set[str] = set()
    is_opening = True  # after the model's first turn the order is that of the conversation
    for number, message in enumerate(sorted(messages, key=lambda one: one.type != "system"), 1):
        is_opening = is_opening and message.type in ("system", "human")
        for text in prompt_parts([message]):
            name = message.name or _key_of(text, state)
            name = f"{message.type} message {number}" if name is None or name in taken else name
            taken.add(name)
            yield PromptPart(name, text, is_movable=is_opening and message.type == "human")


def _key_of(text: str, state: Mapping[str, Any]) -> str | None:
    """Return the key whose value is the longest of the state's values that occur in the text; None if none occurs."""
    found = {key: len(value) for key, value in state.items() if isinstance(value, str) and value in text}
    best = max(found, key=lambda key: found[key], default=None)
    return best if best is not None and found[best] >= _LEAST_CHARS else None


_FAULTS = (NameError, AttributeError, ImportError, SyntaxError, TypeError, NotImplementedError)
"""What a tool raises because of a mistake in its code, whatever its arguments."""
_UNREAD_FAULTS = (NameError, ImportError, SyntaxError, NotImplementedError, VineLMError)
"""What a tool never raises because of a model's text."""
_FOUND_NOTHING = "'NoneType' object"
"""The beginning of Python's message for a failed look-up, which is not a mistake in a tool: it was asked for something that
does not exist."""


@dataclass(frozen=True, slots=True)
class ToolRefusal:
    """A tool that refused its arguments by raising an exception.

    Attributes:
        tool: The tool's name.
        error: The exception that the tool raised.
    """

    tool: str
    error: BaseException


def tool_refusal(error: BaseException | None) -> ToolRefusal | None:
    """Return the tool that refused its arguments; None if the exception came from elsewhere, or from a bug in the tool."""
    if error is None or (isinstance(error, _FAULTS) and not str(error).startswith(_FOUND_NOTHING)):
        return None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        if isinstance(owner, BaseTool):
            return ToolRefusal(owner.name, error)
        trace = trace.tb_next
    return None


PROMPT_REQUESTS = 5
"""How many requests' prompts are compared, if there are as many."""


@dataclass(frozen=True, slots=True)
class CheckItem:
    """The result of one check of a workflow; ``name`` names the check, and ``is_ok`` is True if it passed.

    ``detail`` is a line that states what was found, or what is wrong and how to fix it. ``is_doubtful`` is True if only the
    workflow's author can decide whether the finding is right. ``answer_at`` is Python code that reads the answer from the
    final state, if the scorer reads another part of the state; otherwise empty.
    """

    name: str
    is_ok: bool
    detail: str
    is_doubtful: bool = False
    answer_at: str = ""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The results of all checks, in order. Checks that an earlier failure made impossible are left out.

    ``template_code`` is the code of the template that was derived from the graph; None if the workflow declares a template.
    ``today`` has the stages without a declared model, each with the catalog name of the model that the application called in
    the scripted run. ``without_today`` has the stages without a declared model for which that run called no model, or several.
    ``prompts`` describes the common parts of the requests' prompts; None if not requested, or if a check failed. ``requests``
    is the number of requests of the workflow.
    """

    workflow: str
    items: tuple[CheckItem, ...]
    template_code: str | None = None
    today: Mapping[str, str] = field(default_factory=dict)
    prompts: PromptLayout | None = None
    requests: int = 0
    without_today: tuple[str, ...] = ()

    @property
    def questions(self) -> tuple[str, ...]:
        """Questions to the author about the models of the current setup, with which plans are compared.

        A profile can run without the answers.
        """
        if not self.without_today:
            return ()
        names, first = ", ".join(self.without_today), self.without_today[0]
        models = set(self.today.values())
        name = f'"{min(models)}"' if len(models) == 1 else "NAME"  # what all other stages run is what they are likely to run
        return (f'which model runs today at {names}? Say it with its name in the catalog: Stage("{first}", default={name})',)

    @property
    def answer_at(self) -> str:
        """Python code that reads the answer from the final state, if the scorer reads another part of it; otherwise empty."""
        return next((item.answer_at for item in self.items if item.answer_at), "")

    @property
    def is_ok(self) -> bool:
        """Whether every check passed."""
        return all(item.is_ok for item in self.items)


def check_workflow(workflow: Workflow, catalog: Catalog, *, with_prompts: bool = False) -> CheckReport:
    """Check template, inputs and graph, and run the first request through every invocation on a scripted model.

    If ``with_prompts``, run :data:`PROMPT_REQUESTS` requests, and compare their prompts.

    Makes no call and spends nothing; runs the workflow's own tools and scorer. The scripted model writes the right answer if
    the workflow has a ``writer`` of simulated answers, else the first label, else a fixed text. It calls each tool once, with
    arguments that fit the tool's schema, and then answers; a structured answer is filled with data that fits. If these answers
    do not lead to every stage, or the application seems to misread them, the request runs again with other answers.

    Returns:
        The checks. An error in the workflow gives a failed item, never an exception.
    """
    asks, seen = _Asks(), SeenPrompts()
    refused: list[str] = []

    def refuse() -> WorkflowError:
        refused.append(line_of_user())
        return WorkflowError("this client's calls are refused in a dry run")

    # Scripted answers are none of the application's traces, and a client that VineLM is not around would send real calls.
    with tracing_context(enabled=False), other_clients_refused(refuse, but_langchain=True):
        items = tuple(_items(workflow, catalog, asks, seen, PROMPT_REQUESTS if with_prompts else 1))
    if refused:
        detail = (
            f"your code calls a model{refused[0]} by a client that VineLM is not around, and nothing was sent: put "
            "vine.around(...) around that client (docs/frameworks.md)"
        )
        items = (CheckItem("clients", False, detail), *items)
    prompts = seen.layout() if with_prompts and all(item.is_ok for item in items) else None
    code = None if workflow.has_template else _code_of(workflow, catalog)
    return CheckReport(workflow.name, items, code, asks.today, prompts, len(workflow.requests), asks.unknown)


def _code_of(workflow: Workflow, catalog: Catalog) -> str | None:
    backend = ScriptedBackend(workflow)
    backends = {model.provider: backend for model in catalog.models}
    template = answered(lambda: resolved(workflow, UnitAdapter(catalog, backends, template=None)).template, None)
    if template is None:  # a check item reports it
        return None
    return f"{template_imports(template)}\n\ntemplate = {template_code(template)}"


@dataclass(slots=True)
class _Asks:
    """The models that the application called, by stage, and the stages for which it called no model or several."""

    today: dict[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


class _Failed(WorkflowError):
    """An exception in the application's code, reported as a failed item."""

    def __init__(self, item: CheckItem) -> None:
        super().__init__(item.detail)
        self.item = item


def _of_application(name: str, what: str = "build(vine) raised") -> AbstractContextManager[None]:
    return explained(lambda error: _Failed(CheckItem(name, False, _line(error, what))))


def _items(workflow: Workflow, catalog: Catalog, asks: _Asks, seen: SeenPrompts, n_requests: int) -> Iterator[CheckItem]:
    try:
        yield from _checked(workflow, catalog, asks, seen, n_requests)
    except _Failed as failed:
        yield failed.item


def _checked(workflow: Workflow, catalog: Catalog, asks: _Asks, seen: SeenPrompts, n_requests: int) -> Iterator[CheckItem]:
    backend = ScriptedBackend(workflow, seen)
    backends = {model.provider: backend for model in catalog.models}
    is_given = workflow.has_template
    if isinstance(workflow.score, LLMJudge):
        judge = _judge(workflow.score, catalog)
        yield judge
        if not judge.is_ok:
            return
        workflow = replace(workflow, score=_unasked(workflow, workflow.score))
    with _of_application("template"):
        workflow = resolved(workflow, UnitAdapter(catalog, backends, template=None))
        template = workflow.template.bind(tuple(catalog))
    yield CheckItem("template", True, f"{template.words}, over {len(template.models)} models, stop = {template.stop}")
    inputs = _inputs(workflow)
    yield inputs
    if not inputs.is_ok:
        return
    with _of_application("graph"):
        units = make_units(workflow, catalog, backends)
        parts = fingerprint(workflow, catalog, backends)
    yield CheckItem(
        "graph", True, f"has {', '.join(stage.name for stage in template.stages)}; fingerprint of {len(parts)} parts"
    )
    if is_given and not isinstance(units, ReplayRunner):
        nodes = nodes_of_stages(units.graph, units.control.adapter.agents)
        yield from (CheckItem("arms", False, line) for line in template_differences(template, units.graph, nodes))
    declared = dict(units.control.adapter.declared)
    yield from _dry_run(units, workflow.requests[0], backend)
    for request in workflow.requests[1:n_requests]:
        yield from (item for item in _dry_run(units, request, backend) if not item.is_ok)
    if len(template.models) > 1 and not all(model.provider == "simulated" for model in catalog.models):
        yield from _runs_today(template, catalog, declared, units.control.adapter.called, asks)


def _runs_today(
    template: Template,
    catalog: Catalog,
    declared: Mapping[str, str | None],
    called: Mapping[str, Iterable[str]],
    asks: _Asks,
) -> Iterator[CheckItem]:
    """Yield the findings about the model that each stage uses at present.

    This is the declared model, or else the model that the application called in the scripted run.

    The called model of a stage without a declaration is recorded in ``asks.today``. If such a stage called no model or several,
    the stage is recorded in ``asks.unknown``.

    Args:
        template: the workflow's template.
        catalog: the models.
        declared: the model that the application declares for each stage, or None.
        called: the models that the application called for each stage.
        asks: receives the called models, and the stages without one.
    """
    unknown: list[Stage] = []
    for stage in template.stages:
        said, stated = list(called.get(stage.name, ())), stage.default or declared.get(stage.name)
        if stated is not None:
            if said and stated not in said:
                detail = f"{stage.name} is said to run {stated} today, and the application made it with {' and '.join(said)}"
                yield CheckItem("today", True, detail, is_doubtful=True)
        elif len(said) != 1:
            unknown.append(stage)
        elif said[0] not in catalog:
            lacks = f"{stage.name} runs {said[0]} today, which the catalog lacks: add an entry for it (models.toml)"
            yield CheckItem("today", False, lacks)
        else:
            asks.today[stage.name] = said[0]
    if asks.today:
        lines = ", ".join(f'Stage("{stage}", default="{model}")' for stage, model in asks.today.items())
        yield CheckItem("today", True, f"the application says what runs today: write {lines}", is_doubtful=True)
    if unknown:
        asks.unknown = tuple(stage.name for stage in unknown)


def _judge(judge: LLMJudge, catalog: Catalog) -> CheckItem:
    try:
        entry = judge_catalog(judge, catalog).models[0]
    except VineLMError as error:
        return CheckItem("judge", False, str(error))
    price = f"${entry.price.input:g} and ${entry.price.output:g} per million tokens in and out"
    against = f"measured against the label {judge.label!r}" if judge.label else "taken at its word: no label= measures it"
    return CheckItem("judge", True, f"{entry.name}, {price}; {against}")


def _unasked(workflow: Workflow, judge: LLMJudge) -> Callable[[Request, Mapping[str, Any]], bool]:
    """Return a scorer that builds the judge's prompt without calling the judge."""

    def score(request: Request, state: Mapping[str, Any]) -> bool:
        judge.messages(request, workflow.graph_input(request), state)
        judge.truth_of(request, state)
        return False

    return score


def _inputs(workflow: Workflow) -> CheckItem:
    request = workflow.requests[0]
    with _of_application("inputs", f"inputs(request {request.id!r}) raised"):
        given = workflow.graph_input(request)
    for label in workflow.labels:
        if label in given:
            return CheckItem("inputs", False, f"the label {label!r} reaches the graph: leave it out of inputs(request)")
        if not any(label in other.data for other in workflow.requests):  # with several kinds, each has different labels
            known = ", ".join(request.data)
            return CheckItem("inputs", False, f"request {request.id!r} has no label {label!r}: its row has {known}")
    return CheckItem("inputs", True, f"{len(workflow.requests):,} requests; the graph gets {', '.join(given)}")


def _dry_run(units: Units, request: Request, backend: ScriptedBackend) -> Iterator[CheckItem]:
    """Yield the checks of a scripted run.

    If the application seems to have misread an answer, run again with answers of the JSON form that its prompts describe. If
    the answers have not led to some stage, run again with answers whose booleans are False.
    """
    items = _with_tools(units, request, backend)
    if _is_misread(items) and not backend.fills_prompts:
        backend.fills_prompts = True
        again = _with_tools(units, request, backend)
        backend.fills_prompts = not _is_misread(again)
        items = again if backend.fills_prompts else items
    reached = backend.reached
    if all(item.is_ok for item in items) and {stage.name for stage in units.template.stages} - reached:
        backend.denies = True
        again = _with_tools(units, request, backend)
        backend.denies = False
        if backend.reached - reached and all(item.is_ok for item in again) and not _is_misread(again):
            items = again
    yield from items


def _is_misread(items: Sequence[CheckItem]) -> bool:
    """Return whether ``items``, the checks of a scripted run, show that the application seems to have misread an answer."""
    return any(item.is_doubtful and item.name == "dry run" for item in items)


def _with_tools(units: Units, request: Request, backend: ScriptedBackend) -> list[CheckItem]:
    """Return the results of the checks of a scripted run.

    If a tool refuses the scripted arguments, run again without that tool.
    """
    while True:
        items = list(_one_run(units, request, backend))
        refusal = None if all(item.is_ok for item in items) else tool_refusal(units.last_error)
        if refusal is None or refusal.tool in backend.untried:
            return items
        backend.untried[refusal.tool] = f"the tool {refusal.tool!r} refused the script's arguments ({_placed(refusal.error)})"


def _one_run(units: Units, request: Request, backend: ScriptedBackend) -> Iterator[CheckItem]:
    backend.seen.begin(request.id, units.workflow.graph_input(request))
    backend.has_written, backend.reached = False, set()
    if not isinstance(units, ReplayRunner):
        units.saver.is_comparing = True
    rows: list[Observation] = []
    states: list[bytes | None] = []
    checkpoint: bytes | None = None
    is_past_end = False
    try:
        while (stage := _following(units.template, rows)) is not None:
            prefix = (*(rows[-1].prefix if rows else ()), stage.default_model)
            is_past_end = any(row.stopped is True for row in units.template.rule.by_itself(rows[-1:]))
            if is_past_end and (isinstance(units, ReplayRunner) or not units.knows(stage.name)):
                break
            outcome = units.run(request, prefix, checkpoint, stages=_stages(units.template, rows, stage))
            checkpoint, row = outcome.checkpoint, outcome.observation
            assert row is not None  # without a budget no call is refused
            rows.append(row)
            backend.reached.add(row.stage)
            states.append(checkpoint)
            if row.failure is not None:
                break
            backend.seen.end(request.id, units.values_after(checkpoint))
    except Exception as error:  # the application runs here
        if not (is_past_end and getattr(error, "code", "") == "stage-not-run"):  # after its end the graph need not continue
            yield CheckItem("dry run", False, _line(error, "raised"))
            return
    last = rows[-1]
    if last.failure is not None and is_past_end:
        rows.pop()  # the graph has ended by itself and cannot be tried any further
        last = rows[-1]
    is_beyond = last.failure is not None and beyond_turns(last) is not None
    forced = None if last.failure is None else tool_refusal(units.last_error)
    is_stuck = forced is not None and forced.tool in backend.untried  # the application forces the call that was refused before
    if last.failure is not None and not (is_beyond or is_stuck):
        yield _failed(last, request, units.last_error, backend)
    else:
        way = "a checkpoint" if not isinstance(units, ReplayRunner) else f"its start with recorded answers ({units.reason})"
        path = " > ".join(row.stage for row in rows)
        yield CheckItem(
            "dry run",
            True,
            f"request {request.id!r}: {path}, each from {way}" + _not_tried(units.template, rows, backend, is_beyond, is_stuck),
        )
    if last.failure != "state" and not isinstance(units, ReplayRunner):
        yield _round_trip(units.saver.changed)
    if last.failure is None:
        shown = units.template.base.form.answered(rows)
        known = [row for row in shown if row.success is not None]  # a function that continues shows no answer yet
        ended = [row for row in known if row.stopped] or known[-1:]  # before its end a request may show no answer yet
        yield from (_scored(units, request, row, states[row.depth - 1]) for row in ended[:1])
        yield from _referred(units.workflow, rows)
        if units.signals:
            yield _shown(units.signals, rows)


def _following(template: Template, rows: Sequence[Observation]) -> Stage | None:
    """Return the stage that comes next after the last result; None if the request ends there."""
    return template.following(len(rows), rows[-1].arm) if rows else template.first_stages[0]


def _stages(template: Template, rows: Sequence[Observation], stage: Stage) -> tuple[str, ...]:
    """Return the stages of all results so far, followed by ``stage``, the stage of the next call.

    Empty if no call was made yet and several first stages are possible.
    """
    if not rows and len(template.first_stages) > 1:
        return ()
    return (*(row.stage for row in rows), stage.name)


def _not_tried(
    template: Template, rows: Sequence[Observation], backend: ScriptedBackend, is_beyond: bool, is_stuck: bool
) -> str:
    """Return in words the stages, tools and loop ends that the scripted answers did not reach; empty if they reached all.

    Args:
        template: the workflow's template.
        rows: the results of the scripted run.
        backend: names the tools that refused their arguments.
        is_beyond: whether the loop took more turns than the template allows.
        is_stuck: whether the application forces a call that a tool refused.
    """
    tried = {row.stage for row in rows}
    others = [stage.name for stage in template.stages if stage.name not in tried]
    notes = [
        *([f"its answers did not lead to {', '.join(others)}"] if others else []),
        *(["its answers never end the loop: times= has to be the most turns that a request takes"] if is_beyond else []),
        *backend.untried.values(),
        *(["nothing behind it was tried, since the application forces this call"] if is_stuck else []),
    ]
    return "".join(f"; {note}" for note in notes)


def _failed(row: Observation, request: Request, error: BaseException | None, backend: ScriptedBackend) -> CheckItem:
    if row.failure == "state":
        return CheckItem("checkpoint", False, f"{row.detail}: keep plain JSON types in the state")
    if row.detail and row.detail.startswith(("score ", "answer ")):
        must = "it must return True or False, or a number in [0, 1]"
        must = must if row.detail.startswith("score ") else "it must return the answer of every state"
        return CheckItem("scorer", False, f"{row.detail}, on request {request.id!r}: {must}")
    where = f"request {request.id!r}, stage {row.stage!r} as invocation {row.depth}"
    detail = row.detail if error is None else _placed(error)
    said = f"{where}, or a tool after it, failed on a scripted model: {detail}"
    if backend.has_written and error is not None and not isinstance(error, _UNREAD_FAULTS):
        form = "your code may read an answer's text in a form that only its prompt names: then a real model's answer shows it"
        return CheckItem("dry run", True, f"{said}; {form}", is_doubtful=True)
    return CheckItem("dry run", False, said)


def _placed(error: BaseException) -> str:
    """Return an error's class, the first line of its text, and the place in the application's code where it arose.

    The place is left out if unknown. The text contains no answer of a model, since no model was called.
    """
    place = user_place(error)
    first = (str(error).splitlines() or [""])[0]
    if isinstance(error, ValidationError):  # its text goes on with the fields, and with values of the request
        fields = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_input=False))
        first = f"{first}: {'; '.join(fields)}"
    return f"{type(error).__name__}: {first}{'' if place is None else f' (at {place})'}"


def _round_trip(changed: dict[str, str]) -> CheckItem:
    if changed:
        return CheckItem("checkpoint", False, f"the state does not survive a checkpoint: {'; '.join(changed.values())}")
    return CheckItem("checkpoint", True, "the state comes back from a checkpoint as it was")


def _scored(units: Units, request: Request, row: Observation, state: bytes | None) -> CheckItem:
    workflow = units.workflow
    if workflow.writer is not None and not row.success and workflow.template.stage(row.stage).answerable:
        wrong = f"request {request.id!r}: the scorer calls the writer's own right answer wrong"
        return CheckItem("scorer", False, f"{wrong}: look at what `score` reads from the state, and at the writer's key")
    if not row.success and workflow.labels and units.template.stage(row.stage).answerable:
        budget = UnitBudget(math.inf, lambda _upper_usd: True)
        again = UnitOutcome(None) if state is None else units.score(request, row.prefix, state, budget)
        said = "calls the scripted answer wrong, although the model wrote nothing but the label"
        said = f"{said}: {again.shown}" if again.shown else said
        return CheckItem("scorer", True, said, is_doubtful=True, answer_at=again.answer_at)
    if not isinstance(row.success, bool):
        return CheckItem("scorer", True, f"returns a number in [0, 1]; the scripted answer scores {row.success:g}")
    return CheckItem("scorer", True, f"returns a bool; it calls the scripted answer {'right' if row.success else 'wrong'}")


def _referred(workflow: Workflow, rows: Sequence[Observation]) -> Iterator[CheckItem]:
    """Yield a check, always passed, which reports how many requests have no label and quotes the scripted run's last answer.

    Nothing is yielded unless the scorer compares answers to unlabelled requests with those of the current setup.
    """
    score = workflow.score
    if not isinstance(score, AsToday):
        return
    unlabelled = sum(not score.is_labelled(request) for request in workflow.requests)
    said = f"{unlabelled:,} of {len(workflow.requests):,} requests have no label, so that today's answer counts"
    answers = [row.answer for row in rows if row.answer is not None]
    shown = f"; the scripted one is read as {answers[-1][:60]}" if answers else ""
    yield CheckItem("scorer", True, f"{said}{shown}")


def _shown(signals: Signals, rows: Sequence[Observation]) -> CheckItem:
    """Return the result of a check of the signals and answers that were read in a scripted run."""
    labels = dict.fromkeys(row.signal for row in rows if row.signal is not None)
    answers = [json.loads(row.answer) for row in rows if row.answer is not None]
    try:
        classes = [signals.class_of(answer, answers[:1]) for answer in answers]
    except WorkflowError as error:
        return CheckItem("signals", False, str(error))
    parts = [f"the signal says {', '.join(labels)}" if labels else "no signal"]
    if signals.answer:
        counted = sum(number is not None for number in classes)
        parts.append(f"{counted} of {len(rows)} invocations left an answer ({', '.join(signals.answer)})")
    return CheckItem("signals", True, "; ".join(parts))


def _line(error: BaseException, otherwise: str) -> str:
    """Return the text of an error of VineLM; for any other error, ``otherwise`` with its class, text and place in the code."""
    if isinstance(error, VineLMError):
        return str(error)
    return f"{otherwise} {_placed(error)}"


class ScriptedBackend:
    """A backend for every provider that gives the same answer to every prompt, free and at once."""

    is_simulated = True
    is_virtual_time = True

    def __init__(self, workflow: Workflow, seen: SeenPrompts | None = None) -> None:
        self._workflow, self.seen = workflow, seen or SeenPrompts()
        self.untried: dict[str, str] = {}
        """Tools that are not called, each with a note on why."""
        self.has_written = False
        """Whether it has answered a prompt with free text since the run began, which an application may misread."""
        self.fills_prompts = False
        """Whether an answer has the JSON form that its prompt describes in words or by an example."""
        self.denies = False
        """Whether the booleans of its answers are False."""
        self.reached: set[str] = set()
        """The stages that the last run reached."""

    def chat_model(self, model: Model, call: CallContext) -> BaseChatModel:
        """Return a chat model for one stage invocation that gives the scripted answers."""
        return ScriptedChatModel.bound(self, model, self.seen.seeing(call))

    def answer(self, model: Model, call: CallContext, prompt_chars: int) -> tuple[str, Usage]:
        """Return the scripted answer to a call, and its usage, whose tokens are estimated from ``prompt_chars``, the prompt's
        length.
        """
        text = self._text(call.request, call.stage)
        tokens_in, tokens_out = estimate_tokens(prompt_chars), estimate_tokens(len(text))
        usage = Usage(model=model.name, cost_usd=0.0, latency_s=0.0, tokens_in=tokens_in, tokens_out=tokens_out)
        return text, replace(usage, tokens_estimated=True, finish_reason="stop")

    def _text(self, request: Request | None, stage: str) -> str:
        workflow = self._workflow
        if request is not None and workflow.writer is not None:
            writer = workflow.writer
            return (writer.at(stage) if isinstance(writer, StagedWriter) else writer).right(request, random.Random(0))
        label: Any = request.data.get(workflow.labels[0]) if request is not None and workflow.labels else None
        return "a scripted answer" if label is None else str(label)
