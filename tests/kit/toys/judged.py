"""A judge for the toy: it reads what it is sent, and knows what is right but for the mistakes that it is told to make."""

import hashlib
import json
import os
import signal
from collections.abc import Callable
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import PrivateAttr

from kit.toys.profiling import LoadedWorkflow, ToyBackend, catalog_for, new_store, toy
from vinelm.catalog import Model, Price
from vinelm.judging import llm_judge
from vinelm.rows.observation import Usage

JUDGE_USD = 0.002
BOUND_USD = 0.005
ENTRY = Model(
    name="grader", provider="judge", model_id="grader-1", engine="west", max_tokens=100,
    price=Price(input=1.0, output=4.0, source="a test", as_of="2026-01-01"),
)  # fmt: skip
RIGHT = ("right", "odd")


def honest(question, answer):
    """What a good judge says."""
    return json.dumps({"reason": "it says so", "correct": answer in RIGHT})


def erring(question, answer):
    """Errs on a fixed sixth of the pairs."""
    wrong = hashlib.sha256(f"{question}/{answer}".encode()).digest()[0] % 6 == 0
    return json.dumps({"correct": (answer in RIGHT) != wrong})


class JudgeChat(BaseChatModel):
    """Answers as its backend's ``reply`` says, and charges the guard before."""

    _backend: Any = PrivateAttr()
    _call: Any = PrivateAttr()

    @property
    def _llm_type(self) -> str:
        return "judge toy"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        permit = self._call.guard.authorize(BOUND_USD) if self._call.guard is not None else None
        content = json.loads(messages[-1].content)
        self._backend.asked.append((content["question"], content["answer"], messages[0].content))
        reply = self._backend.reply(content["question"], content["answer"])
        usage = Usage(model=ENTRY.name, cost_usd=JUDGE_USD, latency_s=0.0, tokens_in=50, tokens_out=5)
        if permit is not None:
            permit.settle(usage)
        self._call.on_usage(usage)
        if isinstance(reply, Exception):
            raise reply
        return ChatResult(generations=[ChatGeneration(message=AIMessage(reply))])


class JudgeBackend:
    is_simulated = True
    is_virtual_time = True

    def __init__(self, reply: Callable[[str, str], str] = honest):
        self.reply, self.asked = reply, []

    def chat_model(self, model, call):
        chat = JudgeChat()
        chat._backend, chat._call = self, call
        return chat

    def upper_bound_usd(self, model, messages, **options):
        return BOUND_USD


def judged_toy(*, label=None, truth=None, rubric="It is right or odd.", **settings):
    """The toy, scored by a judge."""
    return toy(score=llm_judge(ENTRY, rubric=rubric, question="question", label=label, truth=truth), **settings)


def backends(reply=honest):
    return {"test": ToyBackend(), "judge": JudgeBackend(reply)}


def load_judged() -> LoadedWorkflow:
    """The judged toy by name, for fresh processes."""
    workflow = judged_toy(label="label", truth=truth)
    return LoadedWorkflow(workflow, catalog_for(workflow), backends())


def dies(question, answer):
    """Kills the process that asks, as the kernel does."""
    os.kill(os.getpid(), signal.SIGKILL)


def dies_over(doomed):
    """Answers without a verdict about the doomed question, and kills the process when it is asked again; else honest."""
    asked = set()

    def reply(question, answer):
        if question != doomed:
            return honest(question, answer)
        if question in asked:
            dies(question, answer)
        asked.add(question)
        return "no verdict"

    return reply


def load_dying(doomed: str) -> LoadedWorkflow:
    """The judged toy, whose judge dies over one question in its second call."""
    workflow = judged_toy()
    return LoadedWorkflow(workflow, catalog_for(workflow), backends(dies_over(doomed)))


def truth(request, state):
    return state["answer"] in RIGHT


def judged_store(path, workflow):
    return new_store(path, workflow)
