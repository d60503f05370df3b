"""What retrieval saves that starts while the program is still written: the bundled graph in virtual time, with gold programs.

Every part of the path is real (a streaming chat model, the stage's reader, reads ahead, the sandbox, the tool that joins) but
the seconds: the model writes at an assumed pace, and each retrieval takes assumed seconds, as one that asks a server would.
Both pass on a virtual clock, so that figures are exact and the same on every machine. No accuracy is measured.
"""

from __future__ import annotations

import ast
import contextvars
import random
from collections.abc import Sequence
from typing import Any, ClassVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk

from vinelm.adapters.langgraph import GraphAdapter
from vinelm.adapters.tools.shadow import IS_AHEAD
from vinelm.backends.resolver import ModelResolver
from vinelm.catalog import Catalog
from vinelm.clock import VirtualClock
from vinelm.policies import ForcedPolicy
from vinelm.tools.speculation import Speculation
from vinelm.workflows.graphqa import GraphSource, prompts
from vinelm.workflows.graphqa.dataset import text_of

TTFT_S, TOKENS_PER_S, TOKEN_CHARS = 0.5, 60.0, 4
RETRIEVAL_S = (0.3, 1.0)
"""Assumed seconds of one retrieval."""
ROLES = {prompts.CLASSIFY: "classify", prompts.ACT: "act", prompts.PLAN: "plan", prompts.REASON: "reason"}
PRICE = {"input": 0.0, "output": 0.0, "source": "scripted", "as_of": "2026-11-27"}


CLOCK: contextvars.ContextVar[VirtualClock] = contextvars.ContextVar("clock")
"""Of the run under way. Not an attribute of a class: it has a lock, and what refers to a lock is not called ahead."""


class Now:
    """The request of the run under way, and the retrievals that its program made itself or joined."""

    request, seconds = None, 0.0
    asked: ClassVar[list[str]] = []


class SlowSource(GraphSource):
    """A graph whose retrieval takes seconds of the virtual clock, unless it runs ahead: then it is over later by itself."""

    def retrieve(self, text: str) -> str:
        """Look it up; the caller waits."""
        clock = CLOCK.get(None)  # the dataset looks things up before any run
        if clock is not None and not IS_AHEAD.get():
            clock.sleep(Now.seconds)
            Now.asked.append(text)
        return super().retrieve(text)


class Joined:
    """Lets the clock wait for a read ahead whose result is taken, to its end."""

    def tool_ended(self, event: Any, ago_s: float) -> None:
        """A call has ended, in the thread that asked for it."""
        if event.kind == "eager" and event.is_used:
            clock = CLOCK.get()
            clock.seconds = max(clock.seconds, event.started_s + Now.seconds)
            Now.asked.append(event.arguments["text"])


class GoldChat(BaseChatModel):
    """Streams the right answer of the stage that asks, token by token."""

    writer: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        stage = next(name for start, name in ROLES.items() if messages[0].text.startswith(start))
        text = self.writer.at(stage).right(Now.request, random.Random(0))
        clock = CLOCK.get()
        clock.sleep(TTFT_S)
        for start in range(0, len(text), TOKEN_CHARS):
            clock.sleep(1.0 / TOKENS_PER_S)
            yield ChatGenerationChunk(message=AIMessageChunk(content=text[start : start + TOKEN_CHARS]))
        yield ChatGenerationChunk(message=AIMessageChunk(content="", response_metadata={"finish_reason": "stop"}))


def runs(workflow: Any, speculate: Speculation | None, seconds: float) -> list[tuple[float, str, list[str]]]:
    """Of each request the virtual seconds, the answer and the texts that were retrieved."""
    made = Catalog.from_chat_models({"gold": GoldChat(writer=workflow.writer)}, prices={"gold": PRICE})
    catalog = Catalog(made.models, {"langchain": {"stream": True}}, live=made.live)  # it has no whole answers
    template = workflow.template.bind(("gold",))
    vine = GraphAdapter(ModelResolver(catalog), template=template, enforces=True)
    vine.tools.record = "values"
    vine.observe(Joined())
    app = workflow.build(vine).compile()
    found = []
    for request in workflow.requests:
        Now.request, Now.seconds, Now.asked = request, seconds, []
        clock = VirtualClock()
        CLOCK.set(clock)
        policy = ForcedPolicy(template, ("gold",) * template.depth, clock=clock)
        state = app.invoke(workflow.graph_input(request), context=vine.context(policy=policy, speculate=speculate))
        found.append((clock.seconds, str(state.get("answer")), Now.asked))
    return found


def hidden_at_best(answer: str, asked: Sequence[str], seconds: float) -> float:
    """Seconds of these retrievals that can pass behind the program ``answer``: each begins with the last character of its call.

    Retrievals of the program follow one another, and each waits for those before it.
    """
    program = prompts.code_of(answer) or ""
    at, lines = answer.index(program), program.splitlines(keepends=True)
    ends: dict[str, list[float]] = {}
    for call in ast.walk(ast.parse(program)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "RetrieveNode" and call.args:
            last = lines[call.end_lineno - 1].encode()[: call.end_col_offset].decode()
            chars = at + len("".join(lines[: call.end_lineno - 1])) + len(last)
            ends.setdefault(text_of(call.args[0]), []).append(chars / TOKEN_CHARS / TOKENS_PER_S)
    now_s = written_s = -(-len(answer) // TOKEN_CHARS) / TOKENS_PER_S
    for text in asked:
        begun_s = min(ends[text].pop(0), written_s) if ends.get(text) else now_s
        now_s = max(now_s, begun_s + seconds)
    return len(asked) * seconds - (now_s - written_s)


def measured(workflow: Any) -> dict[str, Any]:
    """By the seconds of one retrieval: what is saved, what could be, and the same answers."""
    result: dict[str, Any] = {"ttft_s": TTFT_S, "tokens_per_s": TOKENS_PER_S, "requests": len(workflow.requests)}
    for seconds in RETRIEVAL_S:
        bare, ahead = runs(workflow, None, seconds), runs(workflow, Speculation(at_once=64), seconds)
        total_s, eager_s = (sum(took for took, _, _ in found) for found in (bare, ahead))
        best_s = sum(
            hidden_at_best(workflow.writer.at("act").right(request, random.Random(0)), asked, seconds)
            for request, (_, _, asked) in zip(workflow.requests, bare, strict=True)
        )
        calls = sum(len(asked) for _, _, asked in bare)
        result[f"{seconds}_s"] = {
            "retrieval_s": seconds,
            "calls": calls,
            "total_s": total_s,
            "of_it_retrieval": calls * seconds / total_s,
            "total_eager_s": eager_s,
            "saved_s": total_s - eager_s,
            "can_be_hidden_s": best_s,
            "saved_of_what_can_be_hidden": (total_s - eager_s) / best_s,
            "saved_of_total": (total_s - eager_s) / total_s,
            "same_answers": sum(one[1:] == other[1:] for one, other in zip(bare, ahead, strict=True)),
        }
    return result
