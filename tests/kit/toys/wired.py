"""A remote provider without a network: real chat models, gates and retries over a wire that answers by itself."""

import threading
import time
from contextlib import contextmanager

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from kit.toys.profiling import LoadedWorkflow, State, catalog_for, one_stage, toy
from vinelm.backends.limits.rate_limits import EngineRateLimiter
from vinelm.backends.remote.backend import RemoteBackend
from vinelm.backends.remote.provider import Provider
from vinelm.backends.remote.retry import AttemptFailed
from vinelm.backends.settings import ProviderSettings
from vinelm.template import Stage, Template

TOKENS = 30, 12
CALLS = 2
"""That the stage makes."""


class ToyChat(BaseChatModel):
    """Each attempt takes a while; the first of a model's calls with ``flaky`` in its prompt is turned down."""

    seconds: float = 0.0
    max_tokens: int = 1024
    turned_down: list = Field(default_factory=list)

    @property
    def _llm_type(self):
        return "toy"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        time.sleep(self.seconds)
        if "flaky" in str(messages[-1].content) and not self.turned_down:
            self.turned_down.append(True)
            raise AttemptFailed("rate_limit", "slow down", may_be_billed=False)
        usage = {"input_tokens": TOKENS[0], "output_tokens": TOKENS[1], "total_tokens": sum(TOKENS)}
        message = AIMessage("right", usage_metadata=usage, response_metadata={"finish_reason": "stop"})
        return ChatResult(generations=[ChatGeneration(message=message)])


class ToyProvider(Provider):
    def __init__(self, seconds=0.0):
        self.seconds = seconds

    def check(self, model):
        pass

    def make(self, model):
        return ToyChat(seconds=self.seconds, max_tokens=model.max_tokens)


def generate(state: State, model) -> State:
    model.invoke("plan " + state["question"])
    return {"answer": model.invoke("write " + state["question"]).text}


async def agenerate(state: State, model) -> State:
    await model.ainvoke("plan " + state["question"])
    return {"answer": (await model.ainvoke("write " + state["question"])).text}


def wired(n_requests=8, seconds=0.0, is_async=False):
    """One stage that calls its model twice."""

    workflow = toy(
        n_requests=n_requests,
        build=one_stage(agenerate if is_async else generate),
        template=Template((Stage("generate", ("m0", "m1")),)),
        score=lambda *_: True,
    )
    catalog = catalog_for(workflow)
    setup = ProviderSettings(provider="test", catalog=catalog, table={"backoff_s": 0.001})
    return LoadedWorkflow(workflow, catalog, {"test": RemoteBackend(setup, ToyProvider(seconds))})


class CountingLimiter(EngineRateLimiter):
    """``most`` attempts were inside at once, ``tickets`` are all there were."""

    def __init__(self, limits):
        super().__init__(limits)
        self.tickets, self.most, self.now, self.lock = [], 0, 0, threading.Lock()

    @contextmanager
    def admit(self, tokens, sleep, priority=0.0):
        with super().admit(tokens, sleep, priority) as ticket:
            with self.lock:
                self.tickets.append(ticket)
                self.now += 1
                self.most = max(self.most, self.now)
            try:
                yield ticket
            finally:
                with self.lock:
                    self.now -= 1
