"""Asks models the recorded prompts as they were recorded, within a budget. Spends money with real models."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, convert_to_messages

from vinelm.backends.base import langsmith_names
from vinelm.backends.remote.equal_calls import EqualCalls
from vinelm.backends.resolver import ModelResolver
from vinelm.catalog import Catalog, Model
from vinelm.catalog.billed_settings import LIMITS
from vinelm.errors import UNSUPPORTED_CALL, CallError, ConfigError, InputError
from vinelm.profiler.execution.job import UnitBudget
from vinelm.replay.kept import Kept, ReplayUnit, key_of
from vinelm.replay.same import message_of
from vinelm.requests.protocols import Backend, CallContext, PricesCalls
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Usage
from vinelm.running.crew import Crew
from vinelm.running.request_ledger import RequestLedger
from vinelm.traces.served.answers import Answer
from vinelm.traces.served.kept_calls import KeptCalls

SENT = (
    "temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty", "logit_bias", "reasoning_effort",
    "verbosity",
)  # fmt: skip
"""Recorded settings that decide the answer, and are sent as they were. The limit, stops and tools are sent, too."""
TRANSIENT = ("rate_limit", "server", "timeout")
"""Failures of a moment: where they cost nothing they are not kept, so that a later run asks again."""
_BY_SCHEMA = ("anthropic", "amazon_bedrock", "bedrock_converse", "google_genai", "google_vertexai")
"""Providers that take a schema by ``with_structured_output``, not as OpenAI's ``response_format``."""


@dataclass(frozen=True, slots=True)
class AsIs:
    """A call as a chat model of LangChain takes it.

    Attributes:
        messages: The prompt.
        options: Keyword arguments of the call.
        tools: Declarations of tools; ``tools_options`` go with them.
        schema: What structured output is asked for, where the provider takes no ``response_format``.
        limit: The recorded limit of an answer in tokens; None without one.
    """

    messages: list[BaseMessage]
    options: dict[str, Any]
    tools: list[Any]
    tool_options: dict[str, Any]
    schema: Mapping[str, Any] | None
    limit: int | None

    @classmethod
    def of(cls, prompt: Mapping[str, Any], entry: Model) -> AsIs:
        """Return the call of a recorded prompt for a model.

        Raises:
            ConfigError: The prompt is none that a chat model takes (code :data:`~vinelm.errors.UNSUPPORTED_CALL`).
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
            schema = asked.get("json_schema")  # to "json_object" the prompt itself says what is wanted
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
        """Call the chat model, and return its answer."""
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


class Asker:
    """Asks models what is not known yet, several at a time, until the budget refuses a call.

    Each call's upper bound is durable before it is made, and its answer in one transaction with its price: a process that is
    killed asks nothing again that is paid.

    Attributes:
        is_exhausted: The budget has refused a call: nothing more is asked.

    Args:
        kept: The store, held.
        catalog: The models.
        budget_usd: The most that all calls of the store may cost, those of earlier runs included.
        workers: Calls at a time.
        backends: By provider; None makes those of the catalog.
        on_progress: Called now and then, by the calling thread, with how many calls have ended, and how many of them there are.
    """

    def __init__(
        self,
        kept: Kept,
        catalog: Catalog,
        *,
        budget_usd: float,
        workers: int = 4,
        backends: Mapping[str, Backend] | None = None,
        on_progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> None:
        self._kept, self._catalog, self._workers, self._on_progress = kept, catalog, workers, on_progress
        self._models = ModelResolver(catalog, backends)
        self._models.equal = EqualCalls(KeptCalls(kept.store))
        self._ledger = RequestLedger(kept.store, budget_usd)
        self._budget_usd = budget_usd
        self._missed: dict[tuple[int, str], str] = {}
        self.is_exhausted = False

    @property
    def spent_usd(self) -> float:
        """Dollars spent, by earlier runs too; calls of unknown outcome count at their upper bound."""
        return self._ledger.committed_usd

    @property
    def left_usd(self) -> float:
        """Dollars that are left of the budget."""
        return max(self._budget_usd - self.spent_usd, 0.0)

    def upper_bound_usd(self, unit: ReplayUnit, model: str) -> float:
        """Return the most that a call can cost; 0 for a prompt that the model cannot be asked."""
        entry, backend = self._catalog[model], self._models.backend_of(model)
        try:
            call = AsIs.of(self._kept.prompt(unit), entry)
            if isinstance(backend, PricesCalls):
                limited = entry if call.limit is None else entry.model_copy(update={"max_tokens": call.limit})
                options = {**call.options, **({"tools": call.tools} if call.tools else {})}
                options.pop("stop", None)
                return backend.upper_bound_usd(limited, call.messages, **options)
        except InputError:
            return 0.0
        return entry.price.most_usd(unit.tokens_in, call.limit or entry.max_tokens)

    def refused(self, model: str) -> list[str]:
        """Return the recorded settings that a model was seen to refuse, in this process: it is asked without, as in service."""
        inner = getattr(self._models.backend_of(model), "inner", None)
        return sorted(inner(self._catalog[model]).refused) if inner is not None else []

    def is_known(self, unit: ReplayUnit, model: str) -> bool:
        """Return whether a model need not be asked: its answer or failure is there."""
        return (unit.unit_id, model) in self._kept.answers or (unit.unit_id, model) in self._missed

    def failure(self, unit: ReplayUnit, model: str) -> str | None:
        """Return why a model has no answer to a unit that it was asked, in a few words; None where it has one."""
        if (unit.unit_id, model) in self._missed:
            return self._missed[unit.unit_id, model]
        found = self._kept.answers[unit.unit_id, model]
        return None if found.answer is not None else found.detail or str(found.failure)

    def failures(self, units: Iterable[ReplayUnit], model: str) -> Counter[str]:
        """Return how often a model failed on units that it was asked, by reason."""
        asked = [unit for unit in units if self.is_known(unit, model)]
        return Counter(reason for unit in asked if (reason := self.failure(unit, model)) is not None)

    def ask(self, wanted: Sequence[tuple[ReplayUnit, str]]) -> bool:
        """Ask what is not known. Returns whether all of it is known now; False where the budget has refused a call.

        Raises:
            ConfigError: A provider has refused the key, or a setting of the catalog is wrong.
            KeyboardInterrupt: After the calls under way have ended.
        """
        left = list(dict.fromkeys((unit.unit_id, model) for unit, model in wanted))
        jobs = iter([(self._kept.units[number], model) for number, model in left if not self._is_there(number, model)])

        def take() -> tuple[ReplayUnit, str] | None:
            with crew.changed:
                return None if self.is_exhausted else next(jobs, None)

        def run(job: tuple[ReplayUnit, str]) -> None:
            if not self._served(*job):
                self.is_exhausted = True
                crew.stop()

        if not self.is_exhausted and any(not self._is_there(number, model) for number, model in left):
            crew = Crew(take, run, size=self._workers, name="vinelm replay")
            crew.work(lambda: self._on_progress(sum(self._is_there(*one) for one in left), len(left)))
        return all(self._is_there(number, model) for number, model in left)

    def _is_there(self, number: int, model: str) -> bool:
        return (number, model) in self._kept.answers or (number, model) in self._missed

    def _served(self, unit: ReplayUnit, model: str) -> bool:
        """Make one call, and keep what it gave; False if the budget refused it."""

        def keep(entry: int, answer: Answer) -> None:
            if not _is_passing(answer):
                self._kept.add(entry, answer)

        answer = self._ledger.serve(f"{unit.request}/{unit.call}", lambda guard: self._called(unit, model, guard), keep)
        if answer is None:
            return False
        if answer.failure == "auth":
            raise ConfigError(f"{model}: the provider refused the key: check its credentials", code="key-refused")
        if _is_passing(answer):
            self._missed[unit.unit_id, model] = answer.detail or str(answer.failure)
        else:
            self._kept.note(answer)
        return True

    def _called(self, unit: ReplayUnit, model: str, guard: UnitBudget) -> Answer:
        usages: list[Usage] = []
        entry, said, failure, detail = self._catalog[model], None, None, None
        context = CallContext(
            stage=unit.step, prefix=(model,), clock=self._models.new_clock(), on_usage=usages.append, guard=guard,
            request=Request(id=unit.request, data={}),
        )  # fmt: skip
        try:
            call = AsIs.of(self._kept.prompt(unit), entry)
            limits = None if call.limit is None else {"max_tokens": call.limit}
            said = json.dumps(call.said(self._models.chat_model(model, context, limits)))
        except CallError as error:
            failure, detail = error.kind, str(error).removeprefix(f"{model}: ")
        except InputError as error:
            if error.code != UNSUPPORTED_CALL:
                raise
            failure, detail = "malformed", str(error).removeprefix(f"model {model!r}: ")
        except (
            ValueError,
            TypeError,
            KeyError,
            NotImplementedError,
        ) as error:  # of LangChain's packages, before anything is sent
            failure, detail = "malformed", f"its package does not take the recorded call ({type(error).__name__})"
        equal = [usage for usage in usages if usage.is_equal]
        return Answer(
            equal_calls=len(equal),
            saved_usd=sum(usage.list_usd or 0.0 for usage in equal),
            key=key_of(unit.unit_id, model),
            prefix=(model,),
            cost_usd=sum(usage.cost_usd for usage in usages),
            latency_s=sum(usage.latency_s for usage in usages),
            answer=said,
            failure=failure,
            detail=detail,
        )


def _is_passing(answer: Answer) -> bool:
    """Whether a failure says nothing about the model and the prompt, and nothing was paid."""
    return answer.failure == "auth" or (answer.failure in TRANSIENT and not answer.cost_usd)
