"""Sends recorded prompts to models within a budget. Spends money unless the models are simulated."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Semaphore
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, convert_to_messages

from vinelm.api.profiling import BATCH_WORKERS
from vinelm.backends import create_backends
from vinelm.backends.base import langsmith_names
from vinelm.backends.diagnostics import require_keys
from vinelm.backends.remote.batches import BatchesLeft, BatchGate, BatchTimes
from vinelm.backends.remote.equal_calls import EqualCalls
from vinelm.backends.resolver import ModelResolver
from vinelm.catalog import Catalog, Model
from vinelm.catalog.billed_settings import LIMITS
from vinelm.catalog.environment import take_variables
from vinelm.errors import UNSUPPORTED_CALL, CallError, ConfigError, InputError, VineLMError
from vinelm.profiler.cluster.messages import RequestJob, RequestOutcome
from vinelm.profiler.cluster.worker import ClusterWorker
from vinelm.profiler.execution.batch_api import CODE, PART, BatchPrices, gate_of, having_batches, through, with_batches
from vinelm.profiler.execution.job import TopUp, UnitBudget
from vinelm.replay.judge import ORDERS, comparison, verdict_name
from vinelm.replay.kept import LIST_USD, Kept, ReplayUnit, key_of
from vinelm.replay.same import Message, message_of
from vinelm.requests.protocols import Backend, CallContext, CallGuard, PricesCalls, RateLimiter
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Usage
from vinelm.running.crew import Crew
from vinelm.running.hosted import executed_on
from vinelm.running.request_ledger import RequestLedger
from vinelm.threads import beside
from vinelm.traces.served.answers import Answer
from vinelm.traces.served.kept_calls import KeptCalls
from vinelm.traces.store.batches import BatchRecords

SENT = (
    "temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty", "logit_bias", "reasoning_effort",
    "verbosity",
)  # fmt: skip
"""Recorded settings that decide the answer, and are sent unchanged. The limit, stops and tools are sent, too."""
TRANSIENT = ("rate_limit", "server", "timeout")
"""Temporary failures: if they cost nothing they are not stored, so that a later run asks again."""
ENDING_S = 30.0
"""Maximum seconds to wait, when an asker closes, for threads that store answers of batches."""
_BY_SCHEMA = ("anthropic", "amazon_bedrock", "bedrock_converse", "google_genai", "google_vertexai")
"""Providers that accept a schema by ``with_structured_output``, not as OpenAI's ``response_format``."""


@dataclass(frozen=True, slots=True)
class AsIs:
    """A recorded call in the form of a LangChain chat model's input.

    Attributes:
        messages: The prompt.
        options: Keyword arguments of the call.
        tools: Declarations of tools.
        tool_options: Keyword arguments with which the tools are bound to the chat model.
        schema: The JSON schema of structured output, if the provider does not accept it as ``response_format``; otherwise
            None.
        limit: The recorded maximum length of the answer in tokens; None without a maximum.
    """

    messages: list[BaseMessage]
    options: dict[str, Any]
    tools: list[Any]
    tool_options: dict[str, Any]
    schema: Mapping[str, Any] | None
    limit: int | None

    @classmethod
    def of(cls, prompt: Mapping[str, Any], entry: Model) -> AsIs:
        """Convert a recorded prompt to the form in which the model of the catalog entry ``entry`` accepts it.

        Raises:
            ConfigError: No chat model accepts the prompt (code :data:`~vinelm.errors.UNSUPPORTED_CALL`).
        """
        settings, asked = prompt["settings"], prompt["response_format"]
        options = {name: settings[name] for name in SENT if settings.get(name) is not None}
        if stop := settings.get("stop") or settings.get("stop_sequences"):
            options["stop"] = [stop] if isinstance(stop, str) else list(stop)
        limits = [settings[name] for name in LIMITS if type(settings.get(name)) is int and settings[name] > 0]
        choice, tool_options = settings.get("tool_choice"), {}
        if isinstance(choice, Mapping):
            choice = choice.get("function", choice).get("name")
        if choice and choice != "auto":
            tool_options["tool_choice"] = "any" if choice == "required" else choice
        if settings.get("parallel_tool_calls") is not None:
            tool_options["parallel_tool_calls"] = settings["parallel_tool_calls"]
        schema = None
        if asked and langsmith_names(entry)[0] in _BY_SCHEMA:
            schema = asked.get("json_schema")  # for "json_object" the prompt itself says what is wanted
        elif asked:
            options["response_format"] = asked
        if schema is not None and prompt["tools"]:
            raise ConfigError("takes no tools beside a response format", code=UNSUPPORTED_CALL)
        try:
            messages = convert_to_messages([{**one, "content": one.get("content") or ""} for one in prompt["messages"]])
        except (ValueError, TypeError, KeyError, NotImplementedError) as error:
            raise ConfigError(f"the recorded prompt is none ({type(error).__name__})", code=UNSUPPORTED_CALL) from error
        return cls(messages, options, list(prompt["tools"]), tool_options, schema, max(limits, default=None))

    def said(self, chat: Any) -> dict[str, Any]:
        """Send the call to the chat model, and return the model's answer: a dict with ``content`` and ``tool_calls`` (names
        and arguments).
        """
        if self.schema is not None:
            schema = {"title": self.schema.get("name") or "answer", **self.schema.get("schema", self.schema)}
            found = chat.with_structured_output(schema, include_raw=True).invoke(self.messages, **self.options)["raw"]
            calls = found.tool_calls
            return {"content": json.dumps(calls[0]["args"]) if calls else _text(found), "tool_calls": []}
        bound = chat.bind_tools(self.tools, **self.tool_options) if self.tools else chat
        answer: AIMessage = bound.invoke(self.messages, **self.options)
        calls = [{"name": call["name"], "args": call["args"]} for call in answer.tool_calls]
        calls += [{"name": call["name"], "arguments": call["args"]} for call in answer.invalid_tool_calls]
        return message_of({"content": _text(answer), "tool_calls": calls})


def _text(message: AIMessage) -> str:
    return str(message.text)


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """One model call to be made, by this process or on a node of a cluster.

    Attributes:
        unit_id, step, request: The sampled call whose prompt is sent: its number, its step's key, and its request's name.
        name: The name under which the answer is stored: the model's name, or the name of a judge's verdict.
        model: The catalog entry to call.
        prompt: The prompt, in the form in which recorded prompts are stored.
    """

    unit_id: int
    step: str
    request: str
    name: str
    model: str
    prompt: Mapping[str, Any]

    def made(self, models: ModelResolver, guard: CallGuard) -> Answer:
        """Make the call and return an :class:`Answer`, which contains the model's answer or the reason why the call failed.

        Before each attempt, ``guard`` checks whether the budget allows the attempt's cost.
        """
        usages: list[Usage] = []
        entry, said, failure, detail = models.catalog[self.model], None, None, None
        context = CallContext(
            stage=self.step, prefix=(self.model,), clock=models.new_clock(), on_usage=usages.append, guard=guard,
            request=Request(id=self.request, data={}),
        )  # fmt: skip
        try:
            call = AsIs.of(self.prompt, entry)
            limits = None if call.limit is None else {"max_tokens": call.limit}
            said = call.said(models.chat_model(self.model, context, limits))
        except CallError as error:
            failure, detail = error.kind, str(error).removeprefix(f"{self.model}: ")
        except InputError as error:
            if error.code != UNSUPPORTED_CALL:
                raise
            failure, detail = "malformed", str(error).removeprefix(f"model {self.model!r}: ")
        except (
            ValueError,
            TypeError,
            KeyError,
            NotImplementedError,
        ) as error:  # raised by LangChain's packages before anything is sent
            failure, detail = "malformed", f"its package does not take the recorded call ({type(error).__name__})"
        equal = [usage for usage in usages if usage.is_equal]
        if said is not None and any(usage.list_usd is not None and not usage.is_equal for usage in usages):
            # Bought in a batch: plans are served at the ordinary price, and their latency is unknown.
            said |= {LIST_USD: sum(usage.cost_usd if usage.list_usd is None else usage.list_usd for usage in usages)}
        seconds = sum(usage.latency_s for usage in usages)
        return Answer(
            equal_calls=len(equal),
            saved_usd=sum(usage.list_usd or 0.0 for usage in equal),
            key=key_of(self.unit_id, self.name),
            prefix=(self.model,),
            cost_usd=sum(usage.cost_usd for usage in usages),
            latency_s=0.0 if math.isnan(seconds) else seconds,
            answer=None if said is None else json.dumps(said),
            failure=failure,
            detail=detail,
        )


@dataclass(frozen=True, kw_only=True)
class CallerMaker:
    """Creates, on a node of a cluster, the object that makes model calls there. It contains the names of API keys, not the
    keys.

    Args:
        catalog: The models, as plain JSON types.
        folder: The folder of the catalog's file, whose ``.env`` has the keys; None if there is none.
        seed: Decides the answers of simulated models.
    """

    catalog: Mapping[str, Any]
    folder: Path | None
    seed: int

    def __call__(self, rate_limiters: Mapping[str, RateLimiter]) -> NodeCaller:
        """Return the object that makes model calls on this node, within the rate limits given for each model.

        Raises:
            ConfigError: The node lacks an API key.
        """
        take_variables(self.folder, json.dumps(self.catalog))
        catalog = Catalog.from_dict(self.catalog)
        require_keys(catalog.entries)
        models = ModelResolver(catalog, create_backends(catalog, seed=self.seed))
        models.rate_limiters = rate_limiters
        return NodeCaller(models)


class NodeCaller:
    """Makes model calls on a node of a cluster, each on the thread that requests it."""

    def __init__(self, models: ModelResolver) -> None:
        self._models = models

    def run(self, job: RequestJob, top_up: TopUp) -> RequestOutcome:
        """Make the model call of a job, and return the answer with its cost in dollars.

        If an attempt may cost more than is left of the money reserved for the job, ``top_up`` is called first to request more.
        """
        budget = UnitBudget(job.upper_usd, top_up)
        try:
            answer = job.plan.made(self._models, budget)
        finally:
            budget.close()
        return RequestOutcome(answer, budget.spent_usd + budget.reserved_usd)

    def close(self) -> None:
        """Do nothing: running calls end with the process."""


class Asker:
    """Asks models for missing answers, several at a time, until the budget refuses a call.

    Each call's maximum cost is stored durably before the call, and its answer in one transaction with its cost. So no call is
    paid for twice, even if the process is killed in between.

    Attributes:
        is_exhausted: Whether the budget has refused a call, so that no more calls are made.
        workers: Number of calls at a time.

    Args:
        kept: The open store of the replay; the caller holds its lock.
        catalog: The models.
        budget_usd: The maximum cost of all calls of the store, including calls of earlier runs.
        workers: Maximum number of calls at the same time; calls in batches do not count.
        backends: The backend of each provider, keyed by provider; None creates those of the catalog.
        times: If calls are made in batches of the providers: how long to wait for a batch. None makes each call directly.
        is_waiting: Whether :meth:`ask` waits for batches. Otherwise it submits calls and returns, :meth:`take_in`
            collects the answers that have arrived, and models without batches are called directly.
        hosts: Makes the calls on the nodes of a cluster; None makes them in this process.
        on_progress: Called from time to time, by the calling thread, with the number of finished calls and of all
            calls.

    Raises:
        ConfigError: Batches are wanted but no model has them, or the store has calls in batches although they are no
            longer wanted.
    """

    def __init__(
        self,
        kept: Kept,
        catalog: Catalog,
        *,
        budget_usd: float,
        workers: int = 4,
        backends: Mapping[str, Backend] | None = None,
        times: BatchTimes | None = None,
        is_waiting: bool = True,
        hosts: ClusterWorker | None = None,
        on_progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> None:
        self._kept, self._catalog, self._on_progress, self._hosts = kept, catalog, on_progress, hosts
        self._records, self._gate = BatchRecords(kept.store), None
        backends = create_backends(catalog) if backends is None else backends
        batched = () if times is None else (with_batches if is_waiting else having_batches)(tuple(catalog), catalog, backends)
        if batched and times is not None:
            self._gate = gate_of(batched, catalog, backends, BatchPrices(times=times))
            backends = through(self._gate, backends)
        elif self._records.requests():
            raise ConfigError("calls of this replay are bought in the provider's batches: run it with batch prices", code=CODE)
        self.workers = workers if self._gate is None else BATCH_WORKERS
        self._at_once = Semaphore(workers)  # for calls without batches, which batch threads make, too
        self._models = ModelResolver(catalog, backends)
        if self._gate is None and hosts is None:  # calls in a batch or on a node cannot share answers
            self._models.equal = EqualCalls(KeptCalls(kept.store))
        if self._gate is not None:
            kept.store.abandon_open()
            self._records.release_unsent()
        self._ledger = RequestLedger(kept.store, budget_usd, None if self._gate is None else self._records)
        self._budget_usd = budget_usd
        self._missed: dict[tuple[int, str], str] = {}
        self._calls: dict[tuple[int, str], ReplayedCall] = {}
        self._handed_in: dict[tuple[int, str], Future[Answer | None]] = {}
        self._is_waiting = is_waiting
        self._taken_in = 0
        self.is_exhausted = False
        if self._gate is not None:
            self._gate.start(self._records)

    def close(self) -> None:
        """Stop waiting for batches. Answers that were paid for and have not arrived are fetched by the next run."""
        if self._gate is not None:
            self._gate.end()
            wait(self._handed_in.values(), ENDING_S)  # what was stored meanwhile has to be known, or it is bought again
            while any(future.done() for future in self._handed_in.values()):
                with suppress(VineLMError):  # it waits no more: the next one fetches what is bought
                    self.take_in()

    @property
    def problem(self) -> str | None:
        """The reason why waiting for batches has stopped; None while it continues."""
        return None if self._gate is None else self._gate.problem

    @property
    def is_batched(self) -> bool:
        """Whether calls are made in batches of the providers, so that a call may take a day."""
        return self._gate is not None

    @property
    def spent_usd(self) -> float:
        """Dollars spent, including earlier runs; a call with an unknown outcome counts at its maximum cost."""
        return self._ledger.committed_usd

    @property
    def left_usd(self) -> float:
        """Dollars of the budget that are not spent yet."""
        return max(self._budget_usd - self.spent_usd, 0.0)

    def upper_bound_usd(self, unit: ReplayUnit, model: str) -> float:
        """Return the maximum cost, in dollars, of one call that asks a model about a sampled call; 0 if the model does not
        accept the prompt.
        """
        entry, backend = self._catalog[model], self._models.backend_of(model)
        part = 1.0 if self._gate is None or model not in self._gate.models else PART
        try:
            call = AsIs.of(self._kept.prompt(unit), entry)
            if isinstance(backend, PricesCalls):
                limited = entry if call.limit is None else entry.model_copy(update={"max_tokens": call.limit})
                options = {**call.options, **({"tools": call.tools} if call.tools else {})}
                options.pop("stop", None)
                return part * backend.upper_bound_usd(limited, call.messages, **options)
        except InputError:
            return 0.0
        return part * entry.price.most_usd(unit.tokens_in, call.limit or entry.max_tokens)

    def refused(self, model: str) -> list[str]:
        """Return the names of the recorded settings, such as ``temperature``, that a model has rejected in this process.

        Later calls of this model omit these settings.
        """
        inner = getattr(self._models.backend_of(model), "inner", None)
        return sorted(inner(self._catalog[model]).refused) if inner is not None else []

    def is_known(self, unit: ReplayUnit, name: str) -> bool:
        """Return whether an answer or failure is stored for a sampled call under ``name``, so that no model has to be asked.

        ``name`` is a model's name, or the name of a judge's verdict.
        """
        return (unit.unit_id, name) in self._kept.answers or (unit.unit_id, name) in self._missed

    def failure(self, unit: ReplayUnit, model: str) -> str | None:
        """Return a short reason why a model gave no answer to a sampled call; None if it answered. The model must have been
        asked.
        """
        if (unit.unit_id, model) in self._missed:
            return self._missed[unit.unit_id, model]
        found = self._kept.answers[unit.unit_id, model]
        return None if found.answer is not None else found.detail or str(found.failure)

    def failures(self, units: Iterable[ReplayUnit], model: str) -> Counter[str]:
        """Return how often a model failed on these sampled calls, as a count for each reason."""
        asked = [unit for unit in units if self.is_known(unit, model)]
        return Counter(reason for unit in asked if (reason := self.failure(unit, model)) is not None)

    def compare(self, unit: ReplayUnit, judge: str, other: Message) -> list[tuple[ReplayUnit, str]]:
        """Prepare the calls in which a judge model compares ``other`` with the recorded answer of a sampled call.

        There are two calls: one shows the recorded answer first, one shows it second. Calls whose verdict is stored already
        are left out. Return a pair (sampled call, name of the verdict) for each prepared call; pass the list to
        :meth:`ask`, which makes the calls.
        """
        found = []
        for order in ORDERS:
            name = verdict_name(judge, other, order)
            if not self.is_known(unit, name):
                prompt = comparison(self._kept.prompt(unit), unit.answer, other, order)
                self._calls[unit.unit_id, name] = self._call(unit, name, judge, prompt)
                found.append((unit, name))
        return found

    def ask(self, wanted: Sequence[tuple[ReplayUnit, str]]) -> bool:
        """Make the model calls for all ``wanted`` answers that are not stored yet.

        Each wanted answer is a pair (sampled call, name), where the name is that of a model or of a judge's verdict. Return
        True if each wanted call now has a stored answer or failure; False if the budget has refused a call, or batches are
        still open.

        Raises:
            ConfigError: A provider has refused the key, or a setting of the catalog is wrong.
            WorkerDied: No node is left.
            VineLMError: A batch has not ended in time (code ``batches-left``).
            KeyboardInterrupt: After all calls in progress have ended or are waiting for a batch.
        """
        self.take_in()
        left = list(dict.fromkeys((unit.unit_id, name) for unit, name in wanted))
        open_ = [(self._kept.units[number], name) for number, name in left if not self._is_there(number, name)]
        if self._gate is not None and not self._is_waiting:
            later = [one for one in open_ if self._call_of(*one).model in self._gate.models]
            open_ = [one for one in open_ if one not in later]
            self._hand_in(later, self._gate)
        jobs = iter(open_)

        def take() -> tuple[ReplayUnit, str] | None:
            with crew.changed:
                return None if self.is_exhausted else next(jobs, None)

        def run(job: tuple[ReplayUnit, str]) -> None:
            if not self._served(*job):
                self.is_exhausted = True
                crew.stop()

        if not self.is_exhausted and open_:
            size, leave = min(self.workers, len(open_)), None if self._gate is None else self._gate.close
            crew = Crew(take, run, size=size, name="vinelm replay", on_cut=leave or (lambda: None))
            crew.work(lambda: self._on_progress(sum(self._is_there(*one) for one in left), len(left)))
        return all(self._is_there(number, name) for number, name in left)

    def _hand_in(self, jobs: Iterable[tuple[ReplayUnit, str]], gate: BatchGate) -> None:
        """Start a thread for each pair (sampled call, name of its answer); the thread waits for the call's batch and stores
        the answer.

        :meth:`take_in` then collects the answer. If ``workers`` threads are running, no more threads are started; call this
        method again with the remaining pairs.
        """
        for unit, name in jobs:
            key = unit.unit_id, name
            if self.is_exhausted or len(self._handed_in) >= self.workers:
                return
            if key not in self._handed_in:
                call = self._call_of(unit, name)
                self._handed_in[key] = beside(partial(self._bought, call, gate, self._keep), name=f"vinelm batched {name}")

    def take_in(self) -> int:
        """Collect the batch answers that have arrived, and return how many such answers this object has collected in
        total.

        Raises:
            ConfigError: A provider has refused the key.
            VineLMError: The asker no longer waits for batches (:attr:`problem`, code ``batches-left``).
        """
        for (number, name), future in list(self._handed_in.items()):
            if future.done():
                del self._handed_in[number, name]
                self._calls.pop((number, name), None)
                self._taken_in += 1
                self.is_exhausted |= not self._noted(number, name, future.result())
        return self._taken_in

    def _is_there(self, number: int, name: str) -> bool:
        return (number, name) in self._kept.answers or (number, name) in self._missed

    def fetch(self, judge: str | None = None) -> None:
        """Fetch batch answers that an interrupted run has bought, even if they are no longer needed.

        Args:
            judge: The model whose verdicts may be among the fetched answers; None if no model judges.
        """
        bought = [key.partition(" ") for key in sorted(self._records.requests())] if self._gate is not None else []
        found = [(self._kept.units[int(number)], name) for number, _, name in bought]
        self.ask([one for one in found if one[1] in self._catalog])
        verdicts = {(unit.unit_id, name) for unit, name in found if name not in self._catalog}
        if judge is not None and verdicts:  # each prompt is built again from the answer that it is about
            units = {number: self._kept.units[number] for number, _ in verdicts}
            models = [one for one in self._kept.answers if one[0] in units and one[1] in self._catalog]
            others = [(units[number], self._kept.message(units[number], model)) for number, model in models]
            compared = [one for unit, other in others if other is not None for one in self.compare(unit, judge, other)]
            self.ask([(unit, name) for unit, name in compared if (unit.unit_id, name) in verdicts])

    def _call(self, unit: ReplayUnit, name: str, model: str, prompt: Mapping[str, Any]) -> ReplayedCall:
        return ReplayedCall(unit.unit_id, unit.step, unit.request, name, model, prompt)

    def _served(self, unit: ReplayUnit, name: str) -> bool:
        """Make the call whose answer is stored under ``name``, and store the answer; return False if the budget refused the
        call.

        ``name`` is a model's name, or the name of a judge's verdict.
        """
        call = self._call_of(unit, name)
        self._calls.pop((unit.unit_id, name), None)
        if self._gate is not None and call.model in self._gate.models:
            answer = self._bought(call, self._gate, self._keep)
        else:
            with self._at_once:
                answer = self._ledger.serve(f"{unit.request}/{unit.call}", lambda guard: self._made(call, guard), self._keep)
        return self._noted(unit.unit_id, name, answer)

    def _call_of(self, unit: ReplayUnit, name: str) -> ReplayedCall:
        return self._calls.get((unit.unit_id, name)) or self._call(unit, name, name, self._kept.prompt(unit))

    def _keep(self, entry: int, answer: Answer) -> None:
        if not _is_passing(answer):
            self._kept.add(entry, answer)

    def _noted(self, number: int, name: str, answer: Answer | None) -> bool:
        """Keep a call's result in memory; return False if the budget refused the call.

        Args:
            number: The number of the sampled call.
            name: The name under which the answer is stored.
            answer: The answer or failure; None if the budget refused the call.

        Raises:
            ConfigError: The provider has refused the key.
        """
        if answer is None:
            return False
        if answer.failure == "auth":
            (model,) = answer.prefix
            raise ConfigError(f"{model}: the provider refused the key: check its credentials", code="key-refused")
        if _is_passing(answer):
            self._missed[number, name] = answer.detail or str(answer.failure)
        else:
            self._kept.note(answer)
        return True

    def _made(self, call: ReplayedCall, guard: UnitBudget) -> Answer:
        if self._hosts is None:
            return call.made(self._models, guard)
        answer: Answer = executed_on(self._hosts, RequestJob(key_of(call.unit_id, call.name), call), guard)
        return answer

    def _bought(self, call: ReplayedCall, gate: BatchGate, keep: Callable[[int, Answer], None]) -> Answer | None:
        """Make a call in a batch, through the queue ``gate``; or fetch its answer if an earlier run has paid for it.

        Return the answer or failure after storing it; None if the budget refused the call. ``keep(entry, answer)`` stores it,
        where ``entry`` is the number of the call's entry in the ledger.
        """
        records, cell = self._records, (key_of(call.unit_id, call.name), ())

        def keep_and_drop(entry: int, answer: Answer) -> None:
            keep(entry, answer)
            records.drop(cell)

        with gate.unit(cell, is_batched=True) as unit:
            paying = self._ledger.paying(
                cell[0],
                unused_usd=lambda: records.upper_usd(cell, frozenset(unit.asked)),
                has_bought=lambda: bool(records.digests(cell)),
                waiting=lambda: gate.idle(unit),
            )
            try:
                return self._ledger.serve(cell[0], lambda guard: call.made(self._models, guard), keep_and_drop, paying)
            except BatchesLeft as left:
                raise VineLMError(str(left), code="batches-left") from None


def _is_passing(answer: Answer) -> bool:
    """Return whether an answer is a failure that later runs should try again: a rejected API key, or a temporary failure
    that cost nothing.
    """
    return answer.failure == "auth" or (answer.failure in TRANSIENT and not answer.cost_usd)
