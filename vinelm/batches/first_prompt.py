"""Learns, without calling a model, how the prompt of a request's first call is made of the request's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from vinelm.adapters.langgraph import build_graph
from vinelm.adapters.langgraph.build import begins_with_stages
from vinelm.adapters.langgraph.whole_run import whole_run
from vinelm.api import VineLM
from vinelm.backends.offline.chat_model import OfflineChatModel
from vinelm.backends.prompt_text import prompt_parts
from vinelm.catalog import Catalog, Model
from vinelm.errors import is_of_code
from vinelm.requests.protocols import CallContext
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Usage

PILOTS = 3
"""How many requests' first prompts are read: one to learn, the others to check."""
LEAST_CHARS = 3
"""Minimum length of a value to look for: shorter values occur in any text."""


class _FirstCall(BaseException):
    """Raised to end a run at its first call. The application's handlers of :class:`Exception` do not catch it."""


@dataclass(frozen=True, slots=True)
class FirstPrompt:
    """The pattern that the prompts of all requests' first calls have in common.

    It consists of fixed texts, and of places at which a request's inputs are inserted.

    Args:
        pieces: the pieces of the prompt in the order in which a server reads it: texts, and keys of the graph's input.
        is_key: whether each piece is a key.
    """

    pieces: tuple[str, ...]
    is_key: tuple[bool, ...]

    def of(self, given: Mapping[str, Any]) -> list[str]:
        """Return the prompt of a request's first call, as a list of texts to be joined; ``given`` is the graph's input."""
        return [str(given.get(piece, "")) if key else piece for piece, key in zip(self.pieces, self.is_key, strict=True)]

    @classmethod
    def learnt(cls, text: str, given: Mapping[str, Any]) -> FirstPrompt:
        """Return the pattern of the prompt ``text``, in which each input's key replaces the first occurrence of its value."""
        found = sorted(
            (text.index(value), key, len(value))
            for key, value in given.items()
            if isinstance(value, str) and len(value) >= LEAST_CHARS and value in text
        )
        places = [place for n, place in enumerate(found) if not any(at + size > place[0] for at, _, size in found[:n])]
        pieces, is_key, done = [], [], 0
        for at, key, size in places:
            pieces += [text[done:at], key]
            is_key += [False, True]
            done = at + size
        return cls((*pieces, text[done:]), (*is_key, False))


def of_inputs(requests: Sequence[Mapping[str, Any]]) -> FirstPrompt:
    """Return a pattern to use if the prompt of the first call is unknown. It consists of the inputs only: those with the fewest
    different values first.
    """
    different: dict[str, set[str]] = {}
    for given in requests:
        for key, value in given.items():
            different.setdefault(key, set()).add(str(value)[:256])
    keys = sorted(different, key=lambda key: len(different[key]))
    return FirstPrompt(tuple(keys), (True,) * len(keys))


def first_prompt(workflow: Workflow, catalog: Catalog, requests: Sequence[Request]) -> tuple[FirstPrompt | None, str]:
    """Learn how the prompt of a request's first call is made of the request's inputs, from up to :data:`PILOTS` requests.

    Runs the graph of each of these requests until its first model call, which is not made; spends nothing. Application code
    before that call runs. If it includes a node that is not a stage, nothing is run.

    Returns:
        The pattern and "", or None and the reason why there is no pattern, worded as the end of a sentence.
    """
    pilot = _Pilot()
    vine = VineLM(
        catalog,
        {model.provider: pilot for model in catalog.models},
        template=workflow.template,
        fallback=False,
        labelled=True,
        signals=workflow.signals,
        kind=workflow.kind,
    )
    app = build_graph(workflow, vine)
    if not begins_with_stages(app, vine.adapter.agents, but=workflow.unrepeatable):
        return None, "a node that is no stage comes before the first call"
    chosen = requests[:PILOTS]
    texts = [pilot.prompt_of(workflow, vine, app, request) for request in chosen]
    if texts[0] is None:
        return None, "the graph of the first request calls no model"
    found = FirstPrompt.learnt(texts[0], workflow.graph_input(chosen[0]))
    if any("".join(found.of(workflow.graph_input(one))) != text for one, text in zip(chosen, texts, strict=True)):
        return None, "the prompt is made of more than the inputs as they are"
    return found, ""


class _Pilot:
    """A :class:`~vinelm.requests.protocols.Backend` whose model calls store their prompt and then end the run."""

    is_simulated = True
    is_virtual_time = True

    def __init__(self) -> None:
        self._seen: list[str] = []

    def prompt_of(self, workflow: Workflow, vine: VineLM, app: Any, request: Request) -> str | None:
        """Return the prompt of a request's first call; None if it makes no call."""
        self._seen.clear()
        try:
            whole_run(workflow, app, request, vine.context(request=request))
        except _FirstCall:
            pass
        except BaseException as error:  # whatever the application raises here, it raises again when the request is served
            if not is_of_code(error):
                raise
        return self._seen[0] if self._seen else None

    def chat_model(self, model: Model, call: CallContext) -> BaseChatModel:
        """Return a chat model that stores its prompt instead of answering."""
        return OfflineChatModel.bound(self, model, replace(call, on_prompt=self._keep))

    def answer(self, model: Model, call: CallContext, prompt_chars: int) -> tuple[str, Usage]:
        """End the run by an exception instead of answering; the chat model has stored the prompt."""
        raise _FirstCall

    def _keep(self, messages: Sequence[BaseMessage], tools: Sequence[Any]) -> None:
        self._seen.append("\n".join(prompt_parts(messages, tools)))
